"""How fast is a step on a GPU? A model of Qwen2.5-0.5B's shape with random weights, against TRL and against the floor.

    python benchmarks/gpu.py            all of it (make bench-gpu)
    python benchmarks/gpu.py --write    and put the tables into docs/benchmarks.md
    python benchmarks/gpu.py --only trl    a section (140 seconds on an H100), and keep the others: batching, mixed, check
    python benchmarks/gpu.py --toy --out /tmp/toy.json    a trial of the benchmark itself, on the CPU and in seconds

16 prompts × 16 completions, 256 prompt tokens, exactly 512 new ones or about one in 256 the last, bfloat16. Nothing is downloaded.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from results.page import MEASURED, PAGE, command_line, gpu, show_tables, table, where
from results.records import Comparison, OnGpu, Pair
from results.tables import side_by_side, where_the_time_goes
from sides.floor import SECONDS
from sides.messages import Lengths
from sides.process import fast_and_plain, floor_inputs, ours, take_turns, theirs
from sides.random_model import random_model
from sides.workloads import LEARNING, Workload
from transformers import AutoTokenizer

from backend.contract.grpo import GrpoConfig
from worker.policy.sources import TINY_ARITHMETIC, resolve

KEPT = MEASURED / "speed-gpu.json"
MODEL = "random-qwen2"
STEPS = 2


@dataclass(frozen=True)
class Bench:
    """Prompts, completions of each, and their tokens; where the model lies and logs are left. A toy runs on the CPU."""

    models: Path
    logs: Path
    toy: bool
    prompts: int = 16
    group_size: int = 16
    prompt_tokens: int = 256
    new_tokens: int = 512

    def against_trl(self) -> Comparison:
        """Whole steps in turns with TRL's."""
        native = self._work("native")
        with ours(native, self.models, self.logs / "groupscope.log") as own:
            with theirs(native, own, self.logs / "trl.log") as other:
                first, second = take_turns(("Groupscope", "TRL"), (own, other), STEPS)
            size, at_least = (4, 0.0) if self.toy else (2, SECONDS)
            floor = floor_inputs(native, own, value_bytes=size, at_least=at_least)
        return Comparison(about=native.about, where=self._where(), first=first, second=second, floor=floor)

    def against_batching(self, lengths: Lengths) -> Comparison:
        """The native engine in turns with transformers' continuous batching."""
        native, batching = (self._work(engine, lengths) for engine in ("native", "transformers"))
        with (
            ours(native, self.models, self.logs / f"groupscope-{lengths}.log") as own,
            ours(batching, self.models, self.logs / f"continuous-batching-{lengths}.log") as other,
        ):
            first, second = take_turns(("Groupscope", "continuous batching"), (own, other), STEPS)
        return Comparison(about=native.about, where=self._where(), first=first, second=second)

    def check(self) -> Pair:
        """The first step of the quickstart, which warms up, with fast paths and without."""
        model = LEARNING.config.model.model_copy(update={"dtype": "float32"})
        tiny = replace(LEARNING, steps=0, config=LEARNING.config.model_copy(update={"model": model}))
        return fast_and_plain(self._here(tiny), self.models, self.logs)

    def _work(self, engine: str, lengths: Lengths = "fixed") -> Workload:
        """Random weights say random things: the reward grows with the few characters that come out, so that groups differ."""
        batch = 8  # with more, TRL's tokens and our slots do not fit into 80 GiB side by side
        score = {"kind": "length", "name": "length", "unit": "characters", "minimum": 8, "ramp": 8}
        sampling = {"prompts_per_step": self.prompts, "group_size": self.group_size, "max_new_tokens": self.new_tokens}
        at_once = batch * (self.prompt_tokens + self.new_tokens)  # as many tokens as TRL's batch
        config = GrpoConfig.model_validate(
            {
                "model": {"source": f"local:{MODEL}"},
                "task": {"kind": "dataset", "source": "upload:1", "prompt_format": "raw", "held_out": 0},
                "rewards": {"functions": [score]},
                "sampling": sampling | {"engine": engine},
                "optimizer": {"learning_rate": 1e-6, "micro_batch_tokens": at_once},
                "budget": {"eval_every": 0},
            }
        )
        about = (
            f"a model of Qwen2.5-0.5B's shape, random weights, {self.prompts} × {self.group_size} completions, "
            f"{self.prompt_tokens} prompt tokens, {'exactly' if lengths == 'fixed' else 'at most'} {self.new_tokens} new"
        )
        # Prompts of digits, each of which is a token, for more steps than there will be.
        draw = random.Random(0)
        prompts = ("".join(draw.choices("0123456789", k=self.prompt_tokens)) for _ in range(8 * self.prompts))
        rows = "\n".join(json.dumps({"prompt": prompt, "answer": "0"}) for prompt in prompts)
        return self._here(Workload("gpu", about, config, STEPS, batch=batch, lengths=lengths, rows=rows))

    def _here(self, work: Workload) -> Workload:
        return replace(work, accelerator=not self.toy, threads=None)

    def _where(self) -> dict[str, str]:
        return where() if self.toy else where() | {"machine": gpu() or "?"}


SECTIONS: dict[str, Callable[[Bench], Comparison | Pair]] = {
    "trl": Bench.against_trl,
    "batching": partial(Bench.against_batching, lengths="fixed"),
    "mixed": partial(Bench.against_batching, lengths="mixed"),
    "check": Bench.check,
}


def tables(measured: OnGpu) -> str:
    sampled = {
        "trl": ("Groupscope", "TRL, transformers' generate"),
        "batching": ("Groupscope, beside continuous batching", "transformers' continuous batching"),
        "mixed": ("Groupscope, completions of varying length", "transformers' continuous batching, the same"),
    }
    rows = []
    for section, names in sampled.items():
        compared: Comparison | None = getattr(measured, section)
        for name, side in zip(names, (compared.first, compared.second), strict=True) if compared else ():
            seconds = median([one.get("time/rollout") or one["time/generate"] or 0.0 for one in side.metrics])
            apart = [value for one in side.metrics if (value := one.get("sampling_logprob_diff")) is not None]
            nats = f"{median(apart):.4f}" if apart else ""
            rows.append((name, f"{seconds:.2f} s", f"{side.tokens / seconds:,.0f}", nats, side.attention))
    header = ("", "seconds", "tokens per second", "nats per token apart from the training pass", "computed by")
    parts = [side_by_side({"whole steps": measured.trl})] if measured.trl else []
    parts.append("### Sampling\n\n" + table(header, rows))
    if measured.trl and measured.trl.floor:
        parts.append(where_the_time_goes("on a GPU", measured.trl.first, measured.trl.floor))
    if measured.check:
        found, drew = measured.check.agreement, "other tokens than without."
        if found.same_tokens:
            drew = f"the same tokens as without; log-probs differ by at most {found.sampling:.1e} in sampling and {found.training:.1e} in the training pass."
        said = "With fast paths the tiny model's first step (float32) drew"
        parts.append(f"### The check on this device\n\n{said} {drew}")
    return "\n\n".join(parts)


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--toy", action="store_true", help="a toy model on the CPU; its figures mean nothing")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    arguments = parser.parse_args()
    if not arguments.toy and gpu() is None:
        parser.error("there is no NVIDIA GPU here (nvidia-smi names none); --toy tries the benchmark itself on the CPU")
    began = time.monotonic()
    sizes = {"prompts": 2, "group_size": 4, "prompt_tokens": 16, "new_tokens": 16} if arguments.toy else {}
    with tempfile.TemporaryDirectory(prefix="groupscope-models-") as folder:
        random_model(toy=arguments.toy).save_pretrained(Path(folder) / MODEL)
        tiny = resolve(TINY_ARITHMETIC, converted=Path(folder), root=None, checkpoint=None)
        AutoTokenizer.from_pretrained(tiny.location).save_pretrained(Path(folder) / MODEL)  # its texts do not matter
        logs = Path(tempfile.mkdtemp(prefix="groupscope-bench-"))
        bench, measured = Bench(Path(folder), logs, arguments.toy, **sizes), OnGpu.read(arguments.out)
        for name in arguments.only:
            measured = measured.model_copy(update={name: SECTIONS[name](bench)})
            measured.write(arguments.out)
    show_tables(tables(measured), arguments, began, "measured on a GPU")


if __name__ == "__main__":
    main()
