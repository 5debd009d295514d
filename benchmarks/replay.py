"""Explaining a step: what it costs beside the step itself, and whether its effect is what the gradients foretell.

    python benchmarks/replay.py cost       SmolLM2-135M, the reference work (4 × 8 completions): time and memory, some minutes
    python benchmarks/replay.py forecast   the tiny model in float64: the sign of each probe's change, a minute

`cost` records two steps, and then does the second again in fresh processes, alone and with its explanation, in turns. `forecast` compares,
for each completion of the probes, the change of its log-prob that a real update made with the one to first order, ⟨∇ log p, Δθ⟩. It counts
those whose forecast exceeds ten times the rounding, which is measured: the same completion alone, and among the others.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch
from pydantic import BaseModel, TypeAdapter
from results.page import command_line, where
from sides.workloads import REFERENCE

from backend.contract.groups import GroupReport
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import Report
from worker.group_step import GroupStep
from worker.groups import PhaseClock
from worker.policy.loading import load_policy
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.policy.sources import resolve
from worker.replay.records import StepRecord
from worker.replay.replay import Replay, Replayable, copy_of_moments
from worker.replay.step_update import StepUpdate
from worker.reporter import Channels, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.draws import Draws
from worker.rollout.engine import Rollout, quiet
from worker.rollout.sampler import NativeEngine
from worker.store import Store
from worker.tasks.loading import load_items
from worker.trainer import Trainer

MODELS = Path(".groupscope/models")
GROUPS: TypeAdapter[list[GroupReport]] = TypeAdapter(list[GroupReport])
TURNS = 3
RATES = (1e-7, 1e-6, 1e-5, 1e-4)
STEPS = 4
Moments = dict[torch.Tensor, dict[str, torch.Tensor]]


def loaded(config: GrpoConfig, models: Path, resume: Path | None = None) -> Policy:
    """The policy of a run, on a CPU."""
    source = resolve(config.model.source, converted=models, root=None, checkpoint=None)
    reference = config.algorithm.needs_reference
    return load_policy(
        config.model, source, torch.device("cpu"), resume=resume, reference=reference, seed=config.budget.seed
    )


# ---- what it costs


def record(models: Path, folder: Path) -> None:
    """Train two steps, each with a checkpoint before and after it, and keep what was reported."""
    config = reference_work()
    reports: dict[int, Report] = {}

    def send(_: str, message: BaseModel) -> None:
        if isinstance(message, Report) and message.groups and message.step is not None:
            reports[message.step] = message

    policy = loaded(config, models)
    place = Place(1, 1, Store(folder), "store", None, "CPU", {})
    channels = Channels(send, quiet, lambda: "nothing", quiet, lambda: False)
    with RewardScorer(config.rewards) as scorer:
        items = load_items(config.task, fetch_upload=lambda _: b"")
        Trainer(config, policy, NativeEngine(policy), items, scorer, place, channels).run()
    kept = {
        step: {"groups": GROUPS.dump_python(one.groups, mode="json"), "metrics": one.metrics}
        for step, one in reports.items()
    }
    (folder / "records.json").write_text(json.dumps(kept))


def reference_work() -> GrpoConfig:
    """The reference work for two steps, with probes in the second."""
    budget = REFERENCE.config.budget.model_copy(update={"steps": 2, "eval_every": 0, "checkpoint_every": 1})
    return REFERENCE.config.model_copy(update={"budget": budget})


def again(models: Path, folder: Path, *, explained: bool) -> None:
    """Do the second step again, and print its seconds, the processor's among them, and the most memory that this process held, in MiB."""
    torch.set_num_threads(2)
    config = reference_work()
    checkpoint = folder / "run-1" / "step-1-attempt-1"
    policy = loaded(config, models, checkpoint / "model")
    kept = json.loads((folder / "records.json").read_text())

    def recorded(step: int) -> StepRecord:
        return StepRecord(step, GROUPS.validate_python(kept[str(step)]["groups"]), kept[str(step)]["metrics"])

    items = load_items(config.task, fetch_upload=lambda _: b"")
    replay = Replay(Replayable(1, config, policy, NativeEngine(policy), items, checkpoint, recorded))
    began, worked = time.monotonic(), time.process_time()
    (replay.explain if explained else replay.repeat)(1)
    seconds = time.monotonic() - began, time.process_time() - worked
    print(json.dumps([*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def cost(models: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, __file__, "--models", str(models), "--folder", folder]
        subprocess.run([*call, "record"], check=True)
        found: dict[str, list[list[float]]] = {"step": [], "explained": []}
        for turn in range(TURNS):
            for side in sorted(found, reverse=bool(turn % 2)):
                printed = subprocess.run([*call, side], check=True, capture_output=True, text=True).stdout
                found[side].append(json.loads(printed.splitlines()[-1]))
                print(f"  {side:<10} {found[side][-1]}", flush=True)
    alone, explained = ([median(column) for column in zip(*found[side], strict=True)] for side in ("step", "explained"))
    print(f"\n{REFERENCE.about}\n\n| | seconds | of the processor | MiB at most |\n|---|---|---|---|")
    for name, row in (("the step alone", alone), ("explained", explained)):
        print(f"| {name} | {row[0]:.1f} | {row[1]:.1f} | {row[2]:,.0f} |")
    print("| times |" + "".join(f" **{long / short:.2f}** |" for short, long in zip(alone, explained, strict=True)))
    print(f"\n{where()}")


# ---- whether the gradients foretell it


class Probes:
    """Completions of held-out prompts, and their log-probs in float64."""

    def __init__(self, policy: Policy, rollout: Rollout) -> None:
        self._policy, self._rollout = policy, rollout

    def _logprobs(self, rows: Sequence[int]) -> torch.Tensor:
        prompts, ids = (
            [one(row) for row in rows]
            for one in (self._rollout.prompt_of, lambda row: self._rollout.completions_R[row].ids)
        )
        batch = TokenBatch.of(prompts, ids, self._policy.device)
        return (self._policy.logprobs(batch, temperature=1.0).logprob_R_T * batch.mask_R_T).sum(-1)

    @torch.no_grad()
    def together(self) -> list[float]:
        """Of all completions, in one pass."""
        values: list[float] = self._logprobs(range(self._rollout.rows)).tolist()
        return values

    @torch.no_grad()
    def alone(self) -> list[float]:
        """Of each by itself: what differs is rounding."""
        return [float(self._logprobs([row])) for row in range(self._rollout.rows)]

    def gradients(self) -> Iterator[None]:
        """Put the gradient of each completion's log-prob into the parameters, one after the other."""
        for row in range(self._rollout.rows):
            for _, parameter in self._policy.named_parameters():
                parameter.grad = None
            self._logprobs([row]).sum().backward()  # type: ignore[no-untyped-call]
            yield


def forecast(models: Path) -> None:
    """For each learning rate, the share of the probes' completions whose change has the sign that was forecast."""
    print(
        "| learning rate | completions | forecast beyond ten times the rounding | of them with the same sign | rounding, nats |"
    )
    print("|---|---|---|---|---|")
    for rate in RATES:
        compared, rounding = compare(rate, models)
        clear = [(foretold, change) for foretold, change in compared if abs(foretold) > 10 * rounding]
        same = sum(foretold * change > 0 for foretold, change in clear)
        share = f"{same / len(clear):.1%}" if clear else "–"
        print(f"| {rate:g} | {len(compared)} | {len(clear)} | **{share}** | {rounding:.1e} |", flush=True)
    print(f"\n{where()}")


def keep_and_see(optimizer: torch.optim.AdamW, kept: Moments, made: StepUpdate, measured: Mapping[str, float]) -> None:
    """Show a pass to what takes it apart, and keep the moments, with which the run goes on."""
    kept.update(copy_of_moments(optimizer))
    made.see(measured)


def compare(rate: float, models: Path) -> tuple[list[tuple[float, float]], float]:
    """The forecast and the measured change of each probe's completion over some steps, and the measured rounding."""
    config = GrpoConfig.model_validate(
        {
            "sampling": {"prompts_per_step": 8, "group_size": 8},
            "optimizer": {"learning_rate": rate},
            "budget": {"steps": STEPS, "eval_every": 0},
            "telemetry": {"probe_prompts": 4},
        }
    )
    policy = loaded(config, models)
    policy.model.double()
    policy.set_reference({name: one.detach().clone() for name, one in policy.named_parameters()})
    items = load_items(config.task, fetch_upload=lambda _: b"")
    compared: list[tuple[float, float]] = []
    rounding = 0.0
    with RewardScorer(config.rewards) as scorer:
        steps = GroupStep(config, policy, NativeEngine(policy), items, scorer)
        cursor = 0
        for number in range(STEPS):
            sampled = steps.sampler.sample_and_score(
                items.held_out[: config.telemetry.probe_prompts],
                8,
                config.sampling,
                Draws(config.budget.seed, "probe", number),
            )
            probes = Probes(policy, sampled.rollout)
            drawn = steps.draw(number, cursor, PhaseClock(), quiet)
            cursor += drawn.prompts
            earlier = probes.together()
            rounding = max([rounding, *(abs(a - b) for a, b in zip(earlier, probes.alone(), strict=True))])
            optimizer = steps.learner.optimizer
            made = StepUpdate(policy, optimizer, max_grad_norm=config.optimizer.max_grad_norm)
            moments: Moments = {}
            steps.update(number, drawn, PhaseClock(), quiet, partial(keep_and_see, optimizer, moments, made))
            changes = [now - then for now, then in zip(probes.together(), earlier, strict=True)]
            after = [one.detach().clone() for _, one in policy.named_parameters()]
            made.close()
            compared += [(made.along(), change) for change, _ in zip(changes, probes.gradients(), strict=True)]
            optimizer.state.update(moments)
            for (_, parameter), now in zip(policy.named_parameters(), after, strict=True):
                parameter.data, parameter.grad = now, None
    return compared, rounding


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("what", choices=["cost", "forecast", "record", "step", "explained"])
    parser.add_argument("--models", type=Path, default=MODELS, help="where converted models lie")
    parser.add_argument("--folder", type=Path, help="of the recorded steps; for the processes that `cost` starts")
    asked = parser.parse_args()
    doings: dict[str, Callable[[], None]] = {
        "cost": lambda: cost(asked.models),
        "forecast": lambda: forecast(asked.models),
        "record": lambda: record(asked.models, asked.folder),
        "step": lambda: again(asked.models, asked.folder, explained=False),
        "explained": lambda: again(asked.models, asked.folder, explained=True),
    }
    doings[asked.what]()


if __name__ == "__main__":
    main()
