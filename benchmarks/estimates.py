"""Preflight's estimates of memory, from a config.json alone, against runs that are really trained.

    python benchmarks/estimates.py [SHAPE …] [--write]       # models with random weights, by a real worker; ten minutes
    python benchmarks/estimates.py --models DIRECTORY [WORK …]    # works of side_by_side.py, each in a process of its own

A shape is written as a config.json with random weights. The form's estimate is asked for before a worker has seen it; then a worker that
has just been started trains it. Memory is the peak of what is resident, of the worker and all processes that it starts.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel
from results.page import MEASURED, ROOT, Kept, command_line, home_in, replace_tables, stack, table, where
from scale.site import site
from sides.process import environment, ours
from sides.workloads import LONG, QUICKSTART_WORK, REFERENCE, Workload

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.records import TERMINAL, Offers
from backend.preflight.facts import Facts
from backend.preflight.preflight import preflight

WORKS = {"quickstart": QUICKSTART_WORK, "reference": REFERENCE, "long": LONG}
DOCS = ROOT / "docs" / "inspector" / "before-launch.md"
MARK = "measured estimates"
STEPS, SHAPE_STEPS = 3, 3
MIB = 2**20
LOOK_SECONDS = 0.05
IMPORTED = "import sides.groupscope_side, sides.messages; print(sides.messages.peak_memory())"


@dataclass(frozen=True)
class Shape:
    """What is trained: an architecture with its sizes, and how the run differs from the usual one."""

    about: str
    family: str
    sizes: dict[str, int | bool]
    changes: dict[str, dict[str, Json]] = field(default_factory=dict)

    def config(self, source: str) -> dict[str, Any]:
        """The run. Random weights answer nothing right, so a completion is paid for its length: else nothing would be trained."""
        usual: dict[str, dict[str, Any]] = {
            "model": {"source": source},
            "sampling": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 64},
            "budget": {"steps": SHAPE_STEPS, "eval_every": 0},
            "telemetry": {"probe_prompts": 0},
            "rewards": {
                "functions": [{"kind": "length", "name": "short", "unit": "characters", "maximum": 0, "ramp": 200}]
            },
        }
        return {"kind": "grpo"} | {
            part: usual.get(part, {}) | self.changes.get(part, {}) for part in usual.keys() | self.changes.keys()
        }


SHAPES = {
    "deep": Shape(
        "Qwen 2, deep and narrow: 16 layers of 256",
        "qwen2",
        {"vocab_size": 6000, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True},
    ),
    "wide": Shape(
        "Llama, wide and shallow: 2 layers of 768, a vocabulary of 30,000, an output layer of its own",
        "llama",
        {"vocab_size": 30_000, "hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 2, "num_attention_heads": 12, "num_key_value_heads": 12, "tie_word_embeddings": False},
    ),
    "adapters": Shape(
        "Qwen 3, 12 query heads on 3 of keys, a vocabulary of 40,000, LoRA of rank 16",
        "qwen3",
        {"vocab_size": 40_000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 12, "num_key_value_heads": 3, "head_dim": 64, "tie_word_embeddings": True},
        {"model": {"lora": {"rank": 16}}},
    ),
    "two-processes": Shape(
        "Llama, 8 query heads on 2, by 2 processes with the weights in 2 shards, 24 new tokens",
        "llama",
        {"vocab_size": 8000, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": True},
        {"compute": {"processes": 2}, "sampling": {"max_new_tokens": 24}},
    ),
}  # fmt: skip


class Trained(BaseModel):
    """What was said of a shape, in bytes, and what came of it."""

    parameters: int
    parts: dict[str, int]
    peak: int

    @property
    def estimated(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())


class Measured(Kept):
    """By the name of the shape."""

    conditions: dict[str, str] = {}
    trained: dict[str, Trained] = {}


class Peaks:
    """The most that a process and all that it starts have held, looked at while it is entered."""

    def __init__(self, pid: int) -> None:
        self._pid, self._ended, self._thread = pid, threading.Event(), threading.Thread(target=self._watch)
        self.of: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for pid in _family(self._pid):
                try:
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue
                self.of[pid] = next(
                    (1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), self.of.get(pid, 0)
                )


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        below.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += below.get(one, [])
    return found


def random_weights(shape: Shape, folder: Path) -> dict[str, Json]:
    """Write a model of the shape, with the tiny model's tokenizer. Returns its config.json."""
    code = f"import estimates; estimates.write_weights({shape.family!r}, {shape.sizes!r}, {str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)  # whose memory goes when it ends
    content: dict[str, Json] = json.loads((folder / "config.json").read_text())
    return content


def write_weights(family: str, sizes: dict[str, Any], folder: str) -> None:
    """In a process of its own."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    import worker.models

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, **sizes, max_position_embeddings=1024, eos_token_id=257, pad_token_id=256, bos_token_id=None
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(worker.models.__file__).parent / "tiny_arithmetic" / name, folder)


def train(name: str, home: Path) -> Trained:
    """Estimate a shape from its config.json, then train it."""
    shape, root = SHAPES[name], home / "models"
    given = random_weights(shape, root / name)
    processes = int(str(shape.changes.get("compute", {}).get("processes", 1)))
    with site(home, workers=1, PROCESSES=str(processes), MODEL_ROOT=str(root)) as running:
        client = running.client
        while not any(worker.alive for worker in client.workers()):
            time.sleep(0.2)
        said = client.preflight(shape.config(f"nobody/{name}"), given)  # a name that no worker knows
        assert said.memory is not None
        with Peaks(running.processes["worker-1"].pid) as peaks:
            _train(client, shape.config(f"local:{name}"), name)
        shutil.rmtree(root / name)
        parameters = next(
            one.parameters
            for one in client.models(shape.config(f"nobody/{name}"), given).items
            if one.source == f"nobody/{name}"
        )
        assert parameters is not None
        return Trained(parameters=parameters, parts=said.memory.parts, peak=sum(peaks.of.values()))


def _train(client: Client, config: dict[str, Any], name: str) -> None:
    run = client.create_run(config, name=name)
    while run.status not in TERMINAL:
        time.sleep(0.5)
        run = client.run(run.id)
    if run.status != "finished":
        raise SystemExit(f"{name} {run.status}: {run.error}")
    norms = client.metrics(run.id, names=("grad_norm",)).series["grad_norm"].value
    assert all(norms), f"a step of {name} had no gradient, so the memory of one was not measured"


def summary(measured: Measured) -> str:
    rows = []
    for name, one in measured.trained.items():
        off = one.estimated / one.peak - 1
        rows.append(
            [
                SHAPES[name].about,
                f"{one.parameters / 1e6:.0f} million",
                f"{one.estimated / MIB:,.0f}",
                f"{one.peak / MIB:,.0f}",
                f"{off:+.0%}".replace("-", "−"),
            ]
        )
    head = ["model", "parameters", "estimated, MiB", "peak, MiB", "off by"]
    said = [value if name in ("machine", "date") else f"{name} {value}" for name, value in measured.conditions.items()]
    return f"{table(head, rows)}\n\n{', '.join(said)}."


def row(work: Workload, models: Path, log: Path) -> str:
    with ours(work, models, log) as side:
        peak = max(side.step().trained.peak_memory or 0 for _ in range(STEPS))
    command = [sys.executable, "-c", IMPORTED]
    before = int(subprocess.run(command, env=environment(), capture_output=True, check=True).stdout)
    memory = preflight(work.config, Facts(workers=[Offers(device="CPU, 2 threads", memory_bytes=None)])).memory
    assert memory is not None
    parts = ", ".join(f"{part} {value / MIB:,.0f}" for part, value in memory.parts.items())
    return f"| {work.about} | {memory.total_bytes / MIB:,.0f} ({parts}) | {peak / MIB:,.0f} | {before / MIB:,.0f} |"


def main() -> None:
    parser = command_line(__doc__, kept=MEASURED / "estimates.json", page=DOCS)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(SHAPES)}; with --models {', '.join(WORKS)}"
    )
    parser.add_argument("--models", type=Path, help="where models that were converted are kept")
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    if asked.models is not None:
        print("| work | estimated, MiB | peak | before a model is loaded |\n|---|---|---|---|", flush=True)
        with tempfile.TemporaryDirectory() as logs:
            for name in asked.names or WORKS:
                print(row(WORKS[name], asked.models, Path(logs) / f"{name}.log"), flush=True)
        return
    measured, home = (
        Measured(conditions=where() | stack("groupscope", "torch", "transformers")),
        home_in(asked.home, "estimates"),
    )
    for name in asked.names or SHAPES:
        measured.trained[name] = train(name, home)
        measured.write(asked.out)
        print(summary(measured), flush=True)
    if asked.write:
        replace_tables(DOCS, summary(measured), MARK)


if __name__ == "__main__":
    main()
