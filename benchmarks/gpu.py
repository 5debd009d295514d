"""How fast is a step on a GPU? A model of Qwen2.5-0.5B's shape with random weights, against TRL and against the floor.

    python benchmarks/gpu.py            all of it (make bench-gpu): under 8 minutes on an H200
    python benchmarks/gpu.py --write    and put the tables into docs/benchmarks.md
    python benchmarks/gpu.py --toy --out /tmp/toy.json    a trial of the benchmark itself, on the CPU and in seconds

16 prompts × 16 completions, 256 prompt tokens, exactly 512 new ones or about one in 256 the last, bfloat16. Nothing is downloaded.
"""

import json
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from results.page import MEASURED, PAGE, command_line, gpu, show_tables, table, where
from results.records import Comparison, OnGpu
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

    def measure(self) -> OnGpu:
        """Against TRL, then against continuous batching; one of those at a time, since each takes what memory it finds."""
        native = self._work("native")
        with ours(native, self.models, self.logs / "groupscope.log") as own:
            with theirs(native, own, self.logs / "trl.log") as other:
                first, second = take_turns(("Groupscope", "TRL"), (own, other), STEPS)
            size, at_least = (4, 0.0) if self.toy else (2, SECONDS)
            floor = floor_inputs(native, own, value_bytes=size, at_least=at_least)
            against_trl = Comparison(about=native.about, where=self._where(), first=first, second=second, floor=floor)
        batching, mixed = (self._against_batching(lengths) for lengths in ("fixed", "mixed"))
        model = LEARNING.config.model.model_copy(update={"dtype": "float32"})
        tiny = replace(LEARNING, steps=0, config=LEARNING.config.model_copy(update={"model": model}))
        check = fast_and_plain(self._here(tiny), self.models, self.logs)  # the first step, which warms up
        return OnGpu(trl=against_trl, batching=batching, mixed=mixed, check=check)

    def _against_batching(self, lengths: Lengths) -> Comparison:
        native, batching = (self._work(engine, lengths) for engine in ("native", "transformers"))
        with (
            ours(native, self.models, self.logs / f"groupscope-{lengths}.log") as own,
            ours(batching, self.models, self.logs / f"continuous-batching-{lengths}.log") as other,
        ):
            first, second = take_turns(("Groupscope", "continuous batching"), (own, other), STEPS)
        return Comparison(about=native.about, where=self._where(), first=first, second=second)

    def _work(self, engine: str, lengths: Lengths = "fixed") -> Workload:
        """Random weights say random things: the reward grows with the few characters that come out, so that groups differ."""
        batch = 32
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


def tables(measured: OnGpu) -> str:
    """The measurements as Markdown."""
    sampled = {
        "Groupscope": (measured.trl.first, "time/rollout"),
        "TRL, transformers' generate": (measured.trl.second, "time/generate"),
        "Groupscope, beside continuous batching": (measured.batching.first, "time/rollout"),
        "transformers' continuous batching": (measured.batching.second, "time/rollout"),
        "Groupscope, completions of varying length": (measured.mixed.first, "time/rollout"),
        "transformers' continuous batching, the same": (measured.mixed.second, "time/rollout"),
    }
    rows = []
    for name, (side, metric) in sampled.items():
        seconds = median([one[metric] or 0.0 for one in side.metrics])
        apart = [value for one in side.metrics if (value := one.get("sampling_logprob_diff")) is not None]
        nats = f"{median(apart):.4f}" if apart else ""
        rows.append([name, f"{seconds:.2f} s", f"{side.tokens / seconds:,.0f}", nats, side.attention])
    header = ("", "seconds", "tokens per second", "nats per token apart from the training pass", "computed by")
    parts = [side_by_side({"whole steps": measured.trl}), "### Sampling\n\n" + table(header, rows)]
    if measured.trl.floor is not None:
        parts.append(where_the_time_goes("on a GPU", measured.trl.first, measured.trl.floor))
    found = measured.check.agreement
    said = "### The check on this device\n\nWith fast paths the tiny model's first step (float32) drew "
    if found.same_tokens:
        said += f"the same tokens as without; log-probs differ by at most {found.sampling:.1e} in sampling and {found.training:.1e} in the training pass."
    else:
        said += "other tokens than without."
    return "\n\n".join([*parts, said])


def main() -> None:
    """Parse, measure, print."""
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--toy", action="store_true", help="a toy model on the CPU; its figures mean nothing")
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
        measured = Bench(Path(folder), logs, arguments.toy, **sizes).measure()
    measured.write(arguments.out)
    show_tables(tables(measured), arguments, began, "measured on a GPU")


if __name__ == "__main__":
    main()
