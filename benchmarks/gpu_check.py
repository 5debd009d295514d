"""Does what only a GPU can show hold? A line and a verdict for each promise, in minutes.

python benchmarks/gpu_check.py            on the first NVIDIA GPU (make gpu-check)
python benchmarks/gpu_check.py --write    and put the lines into docs/gpu.md
python benchmarks/gpu_check.py --toy      every branch on a CPU, in less than 3 minutes: a trial of the check itself
"""

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

import worker  # noqa: F401 — found by the line above; before torch, since it says how OpenMP's threads wait

# isort: split
import torch
import transformers
from peft import LoraConfig, get_peft_model
from results.page import ROOT, command_line, gpu, replace_tables, table  # found beside this file
from sides.floor import synchronize
from sides.process import environment, ours
from sides.random_model import random_model
from sides.workloads import LEARNING
from torch import Tensor
from torch.nn.attention import SDPBackend

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.training import Decoding, Sampling
from worker.algorithms.advantages import group_statistics
from worker.credit import Credit
from worker.learner import Learner, Update, _Pass
from worker.policy import device as devices
from worker.policy.attention import Padded, backend_for
from worker.policy.device import Transfers, take_device
from worker.policy.kernels import Plain, States
from worker.policy.loading import load_policy
from worker.policy.logprobs import TokenBatch
from worker.policy.packing import Packing
from worker.policy.policy import Policy
from worker.policy.recording import Recomputation
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.rollout.choice import truncate
from worker.rollout.draws import Draws
from worker.rollout.engine import Request, Rollout
from worker.rollout.sampler import NativeEngine
from worker.rollout.slots import Drawing

PAGE = ROOT / "docs" / "gpu.md"
DECODINGS: list[dict[str, Json]] = [{}, {"top_k": 20}, {"top_p": 0.9}, {"stop": ["</think>", "= 1"]}]


@dataclass(frozen=True)
class Line:
    """A promise, whether it holds, and what was seen."""

    promise: str
    holds: bool
    seen: str


@dataclass(frozen=True)
class Check:
    """The device, and how much is tried on it."""

    device: torch.device
    toy: bool

    @property
    def prompts(self) -> list[list[int]]:
        """Of different lengths."""
        return [list(range(5, 5 + 8 + 3 * number)) for number in range(4 if self.toy else 16)]

    def tiny(self, *, fast: bool = True, dtype: str = "float32") -> Policy:
        source = resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)
        return load_policy(Model(dtype=dtype), source, self.device, fast=fast)

    def large(self, family: str = "qwen2", *, lora: bool = False, **changed: int) -> Policy:
        """Random weights of Qwen2.5-0.5B's shape, or of one that differs in some sizes."""
        model = random_model(family, toy=self.toy, **changed)
        if lora:
            model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        policy = Policy(model, self.tiny().tokenizer, self.device, "bfloat16")
        if not lora:
            policy.copy_reference()
        return policy


def versions(check: Check) -> Line:
    """What ran, so that figures can be explained later."""
    query = torch.empty(1, 2, 7, 64, dtype=torch.bfloat16, device=check.device)
    mask = torch.zeros(1, 1, 1, 7, dtype=query.dtype, device=check.device)
    decoding = SDPBackend(torch._fused_sdp_choice(query, query, query, mask)).name.lower()
    packing = Packing.of([[1] * 4], [[2] * 4], [0], check.device)
    training = type(backend_for(query[0].transpose(0, 1), packing)).__name__
    return Line(
        "what ran is known, and cuDNN's attention is off",
        check.toy or not torch.backends.cuda.cudnn_sdp_enabled(),
        f"torch {torch.__version__}, {gpu() or devices.describe(check.device)}; attention: {training} in training, {decoding} in decoding",
    )


def kernels(check: Check) -> Line:
    """The attention of training in half precision, forward and gradients, against float32 written out."""
    lengths = [7, 64, 33, 1, 12], [5, 130, 17, 1, 80, 64, 9, 1, 2], [0, 0, 1, 1, 2, 2, 2, 3, 4]
    packing = Packing.of([[1] * n for n in lengths[0]], [[2] * n for n in lengths[1]], lengths[2], check.device)
    draw = torch.Generator().manual_seed(0)
    drawn = [torch.randn(len(packing.ids_N), heads, 64, generator=draw).to(check.device) for heads in (14, 2, 2)]
    exact = States(*drawn)
    half = States(*(each.bfloat16() for each in drawn))
    gradient = torch.randn(exact.q.shape, generator=draw).to(check.device)
    way, plain = backend_for(half.q, packing), Padded(Plain())
    read, wanted = way.read(half, packing), plain.read(exact, packing)
    found = [read.states, *way.gradients(gradient.bfloat16(), half, read, packing)]
    right = [wanted.states, *plain.gradients(gradient, exact, wanted, packing)]
    errors = [float((one.float() - other).norm() / other.norm()) for one, other in zip(found, right, strict=True)]
    return Line(
        "attention in half precision is float32's but for rounding",
        max(errors) < 2e-2,
        f"{type(way).__name__}: " + ", ".join(f"{error:.1e}" for error in errors),
    )


def recorded(check: Check) -> Line:
    """Recorded steps against computed ones, in float32, with other requests between."""
    asked = [
        Request(check.prompts, 4, Decoding.model_validate({"max_new_tokens": 40, **how}), Draws(0, "train", step))
        for step, how in enumerate([*DECODINGS, *DECODINGS])
    ]
    with _abilities(check.device, recorder=None, asynchronous=False):
        computing = NativeEngine(check.tiny())
        eager = [computing.sample(one) for one in asked]
    playing = NativeEngine(check.tiny())
    pairs = [
        (one, other)
        for request, before in zip(asked, eager, strict=True)
        for one, other in zip(playing.sample(request), before, strict=True)
    ]
    same = sum(one.ids == other.ids for one, other in pairs)
    drawn = [zip(one.logprobs, other.logprobs, strict=True) for one, other in pairs if one.ids == other.ids]
    apart = max(abs(mine - theirs) for both in drawn for mine, theirs in both)
    return Line(
        "recorded steps draw what computed ones draw",
        same >= 0.99 * len(pairs) and apart < 1e-3,
        f"{same} of {len(pairs)} completions the same, log-probs within {apart:.1e}",
    )


def waits(check: Check) -> Line:
    """Nothing between the first kernel of a decode step or of an update's micro-batches and its last waits for the device."""
    policy = check.large()
    engine = NativeEngine(policy)
    learner, rollout = Learner(policy, GrpoConfig()), _rollout(policy, check, engine)
    _train(learner, rollout)  # the check of the first pass compares numbers
    batch = learner.split(rollout)
    learner.measure_before(batch)
    weights = torch.full(batch.tokens.mask.shape, 1e-3)
    began = time.perf_counter()
    without_fetching = patch.object(Transfers, "fetch", lambda self: None)  # that is once, behind the last gradient
    with without_fetching, _no_waiting(check.device):
        learner._pass_through(partial(_Pass, batch, _credit(rollout), weights, batch.tokens), lambda *done: None)
    queued = time.perf_counter() - began
    synchronize(check.device)
    finished = time.perf_counter() - began
    slots, sampling = engine._slots, engine._weights
    assert slots is not None
    assert sampling is not None
    for how in DECODINGS:
        slots.drawing = Drawing.of(Request(check.prompts, 1, Decoding.model_validate(how), Draws(0, "train")))
        with torch.inference_mode(), _no_waiting(check.device):
            slots._compute(sampling, slots.count, slots.capacity)
    return Line(
        "an update's micro-batches and a decode step wait for nothing",
        True,
        f"torch's debug mode for synchronisation raised nothing; an update was queued in {queued:.3f} s and done in {finished:.3f}",
    )


def agree(check: Check) -> Line:
    """What was drawn and what is trained have the same probabilities in half precision, for rows of mixed lengths."""
    seen, apart, remarks = list[str](), list[float](), list[str]()
    for family in ("qwen2", "qwen3"):  # the second has norms of queries and keys
        policy = check.large(family)
        policy.chat.stop_ids = set(range(0, policy.config.vocab_size, 64))
        how = Decoding(max_new_tokens=32 if check.toy else 256)
        completions = NativeEngine(policy).sample(Request(check.prompts, 8, how, Draws(0, "train")))
        prompts = [prompt for prompt in check.prompts for _ in range(8)]
        batch = TokenBatch.of(prompts, [one.ids for one in completions], check.device)
        values = policy.logprobs(batch, temperature=1.0).logprob_R_T[batch.mask_R_T]
        values.sum().backward()
        sampled = torch.tensor([logprob for one in completions for logprob in one.logprobs])
        apart.append(float((values.detach().cpu() - sampled).abs().mean()))
        lengths = [len(one.ids) for one in completions]
        remarks += policy.remarks
        seen.append(
            f"{family}: {len(lengths)} completions of {min(lengths)} to {max(lengths)} tokens by {policy.computed_by}, "
            f"{apart[-1]:.4f} nats a token apart; {'; '.join(policy.remarks) or 'no fast path was refused'}"
        )
    holds = max(apart) < 0.03 and not remarks
    return Line("sampling and training agree in half precision", holds, ". ".join(seen))


def cut(check: Check) -> Line:
    """top-p, which on a GPU sorts whole rows and looks at no number, keeps the tokens that float64 keeps on the CPU."""
    rows, vocabulary = (8, 512) if check.toy else (256, 151_936)
    logits = 2 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
    kept = truncate(logits.to(check.device), top_k=0, top_p=0.9).isfinite().sum(-1)
    exact = truncate(logits[:16].double(), top_k=0, top_p=0.9).isfinite().sum(-1)
    most = int((kept[:16].cpu() - exact).abs().max())  # long sums round differently
    seen = f"{len(exact)} of {rows} × {vocabulary}: at most {most} tokens more or fewer"
    return Line("top-p keeps the same tokens as float64 does", most <= 2, seen)


def memory(check: Check) -> Line:
    """After runs 1, 2 and 3 the device holds the same."""
    held = []
    for _ in range(3):
        policy = check.large()
        learner, rollout = Learner(policy, GrpoConfig()), _rollout(policy, check)
        _train(learner, rollout)
        del policy, learner, rollout
        devices.give_back_memory()
        held.append(torch.cuda.memory_allocated() if check.device.type == "cuda" else len(gc.get_objects()))
    return Line("a run leaves no memory behind", held[2] <= held[1], f"held after each: {held}")


def room(check: Check) -> Line:
    """An update that runs out of memory takes the sampler's, and begins again."""
    policy = check.large()
    engine, filler, asked = NativeEngine(policy), list[Tensor](), list[bool]()

    def make_room() -> bool:
        filler.clear()
        asked.append(engine.make_room())
        return True

    learner = Learner(policy, GrpoConfig(), make_room)
    rollout = _rollout(policy, check, engine)
    batch = learner.split(rollout)
    learner.measure_before(batch)
    if check.device.type == "cuda":  # the weights' gradients do not fit
        torch.cuda.empty_cache()
        filler.append(torch.empty(torch.cuda.mem_get_info()[0] - 2**29, dtype=torch.uint8, device=check.device))
    with _failing_once() if check.toy else nullcontext():
        update = learner.update(0, batch, _credit(rollout), torch.ones(rollout.rows, dtype=torch.bool))
    return Line(
        "an update that finds no memory takes the sampler's and begins again",
        update.applied and len(asked) == 1,
        f"asked for room {len(asked)} times; the sampler had some: {asked}",
    )


def lost(check: Check) -> Line:
    """A device-side assert is known for what it is."""
    code, said = _process(check, "poisoned")
    return Line(
        "an error that poisons the context is known for one", code == 0, f"the process ended with {code} {said}".strip()
    )


def anew(check: Check) -> Line:
    """A worker that replaces itself leaves no memory behind."""
    code, said = _process(check, "replaced")
    return Line("a process that begins anew holds nothing of before", code == 0, said)


def quickstart(check: Check) -> Line:
    """The shipped recipe, by the product's own trainer in a process of its own."""
    work = replace(LEARNING, accelerator=not check.toy, threads=None, steps=2 if check.toy else LEARNING.steps)
    with (
        tempfile.TemporaryDirectory(prefix="groupscope-check-") as folder,
        ours(work, Path(folder), Path(folder) / "log") as side,
    ):
        steps = [side.step() for _ in range(work.steps)]
    rewards = [step.trained.metrics["reward"] or 0.0 for step in steps]
    first, last = fmean(rewards[:5]), fmean(rewards[-10:])
    return Line(
        "the quickstart learns",
        check.toy or last > 0.9,
        f"reward {first:.3f} → {last:.3f} in {len(steps)} steps, {median(step.seconds for step in steps):.2f} s a step",
    )


def learns(check: Check) -> Line:
    """Half precision and LoRA: the rewarded tokens become likelier."""
    policy = check.large(lora=True, vocab_size=512)  # with more, so few adapters cannot move the share
    config = GrpoConfig.model_validate({"optimizer": {"learning_rate": 2e-3}, "algorithm": {"kl": {"beta": 0}}})
    learner, shares = Learner(policy, config), []
    for step in range(4 if check.toy else 20):
        rollout = _rollout(policy, check, step=step)
        even = torch.tensor([sum(id % 2 == 0 for id in one.ids) / len(one.ids) for one in rollout.completions_R])
        shares.append(float(even.mean()))
        _train(learner, rollout, 25 * even.double(), step=step)  # shares of 100 tokens differ by 0.04
    return Line(
        "a LoRA run in half precision learns",
        shares[-1] > shares[0] + (-1 if check.toy else 0.2),
        f"share of even tokens {shares[0]:.3f} → {shares[-1]:.3f}",
    )


CHECKS: list[Callable[[Check], Line]] = [
    versions, kernels, recorded, agree, cut, waits, memory, room, lost, anew, learns, quickstart,
]  # fmt: skip


def _rollout(policy: Policy, check: Check, engine: NativeEngine | None = None, step: int = 0) -> Rollout:
    how = Sampling(max_new_tokens=16 if check.toy else 128, group_size=4, prompts_per_step=len(check.prompts))
    request = Request(check.prompts, 4, how, Draws(0, "train", step))
    return Rollout([], [], check.prompts, 4, (engine or NativeEngine(policy)).sample(request))


def _train(learner: Learner, rollout: Rollout, rewards_R: Tensor | None = None, step: int = 0) -> Update:
    batch = learner.split(rollout)
    learner.measure_before(batch)
    return learner.update(step, batch, _credit(rollout, rewards_R), torch.ones(rollout.rows, dtype=torch.bool))


def _credit(rollout: Rollout, rewards_R: Tensor | None = None) -> Credit:
    """Centred rewards; without any, some that differ."""
    if rewards_R is None:
        rewards_R = torch.arange(rollout.rows, dtype=torch.float64) % 3
    rewards_P_G = rewards_R.numpy().reshape(-1, rollout.group_size)
    centred = torch.from_numpy(rewards_P_G - rewards_P_G.mean(1, keepdims=True)).reshape(-1, 1)
    return Credit(rewards_P_G, group_statistics(rewards_P_G), centred, None, None)


def _process(check: Check, what: str) -> tuple[int, str]:
    """How a process that meets this ended, and the last that it said."""
    command = [sys.executable, "-m", "sides.lost_device", what, check.device.type]
    ended = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.returncode, (ended.stdout or ended.stderr).strip().rpartition("\n")[2]


def _failing_once() -> AbstractContextManager[object]:
    """With a `backward` that finds no memory the first time: on a CPU memory does not run out by itself."""
    backward, failing = Tensor.backward, iter([True])

    def once(self: Tensor, *given: object, **named: object) -> None:
        if next(failing, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        backward(self, *given, **named)  # type: ignore[arg-type]

    return patch.object(Tensor, "backward", once)


def _abilities(device: torch.device, **changed: object) -> AbstractContextManager[object]:
    """The device as if it could do other things."""
    known = devices._ABILITIES[device.type]
    return patch.dict(devices._ABILITIES, {device.type: replace(known, **changed)})  # type: ignore[arg-type]


@contextmanager
def _no_waiting(device: torch.device) -> Iterator[None]:
    """Whatever waits for the device raises."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def main() -> int:
    """Check, print, and end with 1 if a line does not hold."""
    parser = command_line(__doc__, page=PAGE)
    parser.add_argument("--toy", action="store_true", help="every branch on the CPU")
    arguments = parser.parse_args()
    if not arguments.toy and not torch.cuda.is_available():
        parser.error("torch finds no NVIDIA GPU here; --toy tries the check itself on the CPU")
    transformers.utils.logging.disable_progress_bar()
    if arguments.toy and arguments.write:
        parser.error("--toy is a trial on the CPU: the page is for verdicts of a GPU")
    check = Check(take_device("cpu" if arguments.toy else "cuda:0")[0], arguments.toy)
    changed = {"recorder": Recomputation, "asynchronous": True, "keeps_copies": True} if arguments.toy else {}
    lines, began = list[Line](), time.monotonic()
    with _abilities(check.device, **changed):
        for one in CHECKS:
            try:
                line = one(check)
            except Exception as error:  # noqa: BLE001 — each line has its verdict, also the one after a line that broke
                line = Line(str(one.__doc__).partition("\n")[0], False, f"{type(error).__name__}: {error}")
            print(f"{'holds ' if line.holds else 'BROKEN'}  {line.promise}: {line.seen}", flush=True)
            lines.append(line)
    print(f"{sum(line.holds for line in lines)} of {len(lines)} lines hold, in {time.monotonic() - began:.0f} s")
    if arguments.write:
        rows = [(line.promise, "holds" if line.holds else "**broken**", line.seen) for line in lines]
        replace_tables(PAGE, table(("promise", "", "seen"), rows), "checked on a GPU")
    return 0 if all(line.holds for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
