"""How fast is a step on a GPU? A model of Qwen2.5-0.5B's shape with random weights, against TRL and against the floor.

    python benchmarks/gpu.py            all of it (make bench-gpu): under 8 minutes on an H200
    python benchmarks/gpu.py --write    and put the tables into docs/benchmarks.md
    python benchmarks/gpu.py --toy --out /tmp/toy.json    a trial of the benchmark itself, on the CPU and in seconds

16 prompts × 16 completions, 256 prompt tokens, exactly 512 new ones or about one in 256 the last, bfloat16. Nothing is downloaded.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from results.page import MEASURED, PAGE, command_line, gpu, show_tables, table, where
from results.records import Agreement, Comparison, Measured, OnGpu, Pair
from results.tables import side_by_side, where_the_time_goes
from sides.messages import Lengths, Trace
from sides.process import Side, environment, floor_inputs, ours, show, take_turns, theirs
from sides.workloads import LEARNING, Workload

from backend.contract.grpo import GrpoConfig

KEPT = MEASURED / "speed-gpu.json"
MODEL = "random-qwen2"
STEPS = 2


@dataclass(frozen=True)
class Sizes:
    """Prompts, completions of each, and their tokens."""

    prompts: int = 16
    group_size: int = 16
    prompt_tokens: int = 256
    new_tokens: int = 512


def workload(sizes: Sizes, engine: str, lengths: Lengths = "fixed") -> Workload:
    """Random weights say random things: the reward grows with the few characters that come out, so that groups differ."""
    batch = 32
    config = GrpoConfig.model_validate(
        {
            "model": {"source": f"local:{MODEL}"},
            "task": {"kind": "dataset", "source": "upload:1", "prompt_format": "raw", "held_out": 0},
            "rewards": {
                "functions": [{"kind": "length", "name": "length", "unit": "characters", "minimum": 8, "ramp": 8}]
            },
            "sampling": {
                "prompts_per_step": sizes.prompts,
                "group_size": sizes.group_size,
                "max_new_tokens": sizes.new_tokens,
                "engine": engine,
            },
            # as many tokens at once as TRL's batch
            "optimizer": {
                "learning_rate": 1e-6,
                "micro_batch_tokens": batch * (sizes.prompt_tokens + sizes.new_tokens),
            },
            "budget": {"eval_every": 0},
        }
    )
    about = (
        f"a model of Qwen2.5-0.5B's shape, random weights, {sizes.prompts} × {sizes.group_size} completions, "
        f"{sizes.prompt_tokens} prompt tokens, {'exactly' if lengths == 'fixed' else 'at most'} {sizes.new_tokens} new"
    )
    return Workload("gpu", about, config, STEPS, batch=batch, lengths=lengths, rows=_rows(sizes))


def _rows(sizes: Sizes) -> str:
    """Prompts of digits, each of which is a token, for more steps than there will be."""
    draw = random.Random(0)
    prompts = ("".join(draw.choices("0123456789", k=sizes.prompt_tokens)) for _ in range(8 * sizes.prompts))
    return "\n".join(json.dumps({"prompt": prompt, "answer": "0"}) for prompt in prompts)


@dataclass(frozen=True)
class Bench:
    """Where the model lies and logs are left; a toy runs on the CPU."""

    models: Path
    logs: Path
    toy: bool

    def ours(self, work: Workload, name: str, *, fast: bool = True) -> Side:
        """Groupscope's side."""
        log = self.logs / f"{name}.log"
        return ours(work, self.models, log, accelerator=not self.toy, threads=None, fast=fast)

    def measure(self, sizes: Sizes) -> OnGpu:
        """Against TRL, then against continuous batching; one of those at a time, since each takes what memory it finds."""
        native = workload(sizes, "native")
        with self.ours(native, "groupscope") as own:
            with theirs(native, own, self.logs / "trl.log", accelerator=not self.toy, threads=None) as other:
                first, second = take_turns(("Groupscope", "TRL"), (own, other), STEPS)
            floor = floor_inputs(native, own, value_bytes=4 if self.toy else 2)
            against_trl = Comparison(about=native.about, where=self._where(), first=first, second=second, floor=floor)
        batching, mixed = (self._against_batching(sizes, lengths) for lengths in ("fixed", "mixed"))
        return OnGpu(trl=against_trl, batching=batching, mixed=mixed, check=self._check())

    def _against_batching(self, sizes: Sizes, lengths: Lengths) -> Comparison:
        native, batching = (workload(sizes, engine, lengths) for engine in ("native", "transformers"))
        with (
            self.ours(native, f"groupscope-{lengths}") as own,
            self.ours(batching, f"continuous-batching-{lengths}") as other,
        ):
            first, second = take_turns(("Groupscope", "continuous batching"), (own, other), STEPS)
        return Comparison(about=native.about, where=self._where(), first=first, second=second)

    def _check(self) -> Pair:
        """The tiny model's first step in float32, with fast paths and without."""
        model = LEARNING.config.model.model_copy(update={"dtype": "float32"})
        work = replace(LEARNING, steps=1, config=LEARNING.config.model_copy(update={"model": model}))
        measured, traces = list[Measured](), list[Trace]()
        for name, fast in (("fast paths", True), ("plain", False)):
            with self.ours(work, f"check-{'fast' if fast else 'plain'}", fast=fast) as side:
                step = side.step()
                show(name, 0, step)
                measured.append(Measured.of(side.ready))
                measured[-1].add(step)
                assert step.trained.trace is not None
                traces.append(step.trained.trace)
        return Pair(seed=0, fast=measured[0], plain=measured[1], agreement=Agreement.of(*traces))

    def _where(self) -> dict[str, str]:
        return where() if self.toy else where() | {"machine": gpu() or "?"}


def tables(measured: OnGpu) -> str:
    """The measurements as Markdown."""
    sampled = {
        "Groupscope": (measured.trl.first, "time/rollout"),
        "TRL, transformers' generate": (measured.trl.second, "time/generate"),
        "Groupscope, beside continuous batching": (measured.batching.first, "time/rollout"),
        "transformers' continuous batching": (measured.batching.second, "time/rollout"),
        "Groupscope, completions of many lengths": (measured.mixed.first, "time/rollout"),
        "transformers' continuous batching, the same": (measured.mixed.second, "time/rollout"),
    }
    rows = []
    for name, (side, metric) in sampled.items():
        seconds = median([one[metric] or 0.0 for one in side.metrics])
        apart = [value for one in side.metrics if (value := one.get("sampling_logprob_diff")) is not None]
        nats = f"{median(apart):.4f}" if apart else ""
        rows.append([name, f"{seconds:.2f} s", f"{side.tokens / seconds:,.0f}", nats, side.attention])
    header = ("", "seconds", "tokens a second", "nats a token apart from the training pass", "computed by")
    parts = [side_by_side({"whole steps": measured.trl}), "### Sampling\n\n" + table(header, rows)]
    if measured.trl.floor is not None:
        parts.append(where_the_time_goes("on a GPU", measured.trl.first, measured.trl.floor))
    return "\n\n".join([*parts, _checked(measured.check)])


def _checked(pair: Pair) -> str:
    found = pair.agreement
    drew = "the same tokens as" if found.same_tokens else "other tokens than"
    differ = (
        f"; log-probs differ by at most {found.sampling:.1e} in sampling and {found.training:.1e} in the training pass"
        if found.same_tokens
        else ""
    )
    return (
        "### The check on this device\n\nWith fast paths the tiny model's first step (float32) drew "
        f"{drew} without{differ}."
    )


@contextmanager
def random_model(toy: bool) -> Iterator[Path]:
    """A folder of models that holds one, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="groupscope-models-") as folder:
        command = [sys.executable, "-m", "sides.random_model", str(Path(folder) / MODEL), *(["--toy"] if toy else [])]
        subprocess.run(command, check=True, env=environment())
        yield Path(folder)


def main() -> None:
    """Parse, measure, print."""
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--toy", action="store_true", help="a toy model on the CPU; its figures mean nothing")
    arguments = parser.parse_args()
    if not arguments.toy and gpu() is None:
        parser.error("there is no NVIDIA GPU here (nvidia-smi names none); --toy tries the benchmark itself on the CPU")
    began = time.monotonic()
    sizes = Sizes(prompts=2, group_size=4, prompt_tokens=16, new_tokens=16) if arguments.toy else Sizes()
    with random_model(arguments.toy) as models:
        bench = Bench(models, Path(tempfile.mkdtemp(prefix="groupscope-bench-")), arguments.toy)
        measured = bench.measure(sizes)
    measured.write(arguments.out)
    show_tables(tables(measured), arguments, began, "measured on a GPU")


if __name__ == "__main__":
    main()
