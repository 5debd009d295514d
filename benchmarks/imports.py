"""How fast is a training of another trainer imported, and how large do the processes become? verl's rollouts, and our own format with values of tokens.

    python benchmarks/imports.py                               512,000 completions of verl's (make bench-imports): minutes
    python benchmarks/imports.py --write                       and put the table into docs/benchmarks.md
    python benchmarks/imports.py --trial --out /tmp/trial.json    a trial of the benchmark itself, with few steps

A real backend process and `groupscope import` in another, on this machine. Beside each stands what reading the same files alone takes, every
line parsed and made into groups: the ratio of the two is what recording costs. Memory is the largest resident size.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

import psutil
from pydantic import BaseModel
from results.page import MEASURED, PAGE, Kept, command_line, show_tables, stack, table, where
from scale.site import TOKEN, Site, site
from uploads import peaks

from backend.contract.client import Client
from groupscope.files.catalog import find
from groupscope.files.format import Options

KEPT = MEASURED / "imports.json"
STACK = ("groupscope", "fastapi", "sqlalchemy", "pyarrow")
BOUND_SECONDS = 900.0
BOUND_BYTES = 700 * 2**20
PROMPTS, SIZE, TOKENS = 64, 8, 60
STEPS = {"verl": 1000, "own": 20}
TRIAL = {"verl": 2, "own": 2}
EVERY = 50  # prompts come again after this number of steps


def text(random: Random, words: list[str]) -> str:
    """About 450 letters, as a short chain of thought has."""
    return f"<think>{' '.join(random.choices(words, k=60))}</think>\n<answer>{random.randint(0, 99)}</answer>"


def write_verl(folder: Path, steps: int) -> None:
    """What verl's V1 trainer leaves of a training, with its metrics."""
    random = Random(0)
    words = [f"word{number}" for number in range(5000)]
    (folder / "rollouts").mkdir(parents=True)
    with (folder / "log.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            data = {f"actor/metric_{name}": random.random() for name in range(40)}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
            with (folder / "rollouts" / f"{step}.jsonl").open("w") as file:
                for row in range(PROMPTS * SIZE):
                    prompt = (step % EVERY) * PROMPTS + row // SIZE
                    asked = f"user\nWhat is {prompt} + {prompt * 7}? Think, then answer.\nassistant\n"
                    line = {"input": asked, "output": text(random, words), "gts": str(prompt * 8)}
                    line |= {
                        "score": float(random.random() < 0.5),
                        "step": step,
                        "uid": f"{step}-{row // SIZE}_{row % SIZE}_0",
                    }
                    file.write(json.dumps(line) + "\n")


def write_own(folder: Path, steps: int) -> None:
    """Our own format, each completion with four values for each of its tokens."""
    random = Random(0)
    words = [f"word{number}" for number in range(5000)]
    folder.mkdir(parents=True)
    with (folder / "run.jsonl").open("w") as file:
        file.write(json.dumps({"groupscope": 1, "trainer": "a benchmark", "name": "own"}) + "\n")
        for step in range(steps):
            for prompt in range(PROMPTS):
                completions = []
                for _ in range(SIZE):
                    said = random.choices(words, k=TOKENS)
                    values = {
                        name: [-random.random() for _ in said]
                        for name in ("old_logprob", "logprob", "entropy", "advantage")
                    }
                    tokens = {
                        "ids": random.choices(range(150_000), k=TOKENS),
                        "texts": [f"{word} " for word in said],
                        **values,
                    }
                    completions.append(
                        {"text": " ".join(said), "reward": float(random.random() < 0.5), "tokens": tokens}
                    )
                file.write(
                    json.dumps({"step": step, "prompt": f"What is {prompt}?", "completions": completions}) + "\n"
                )


WRITERS = {"verl": write_verl, "own": write_own}


class Imported(BaseModel):
    """One import: its completions, seconds, and the seconds that reading alone takes; the largest sizes in bytes."""

    name: str
    completions: int
    bytes: int
    seconds: float
    reading: float
    backend: int
    importer: int


class Imports(Kept):
    """What is kept of a call. `followed` are the seconds from a step's last line in its file to its last group on the page."""

    where: dict[str, str] = {}
    imported: list[Imported] = []
    followed: list[float] = []


def read_alone(folder: Path) -> float:
    """The seconds that the format takes for all steps."""
    began = time.monotonic()
    for path, format_ in find(folder):
        for _ in format_.open(path, Options()).steps(0, final=True):
            pass
    return time.monotonic() - began


def take(running: Site, name: str, folder: Path, steps: int) -> Imported:
    """Make the files, import them, and see that all arrived."""
    print(f"{name}: {steps * PROMPTS * SIZE:,} completions", flush=True)
    WRITERS[name](folder, steps)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    reading = read_alone(folder)
    environment = os.environ | {"GROUPSCOPE_TOKEN": TOKEN, "GROUPSCOPE_BACKEND_URL": running.backend_url}
    command = [sys.executable, "-m", "backend.cli", "import", str(folder)]
    began, importer = time.monotonic(), 0
    with (
        peaks(running.processes["backend"].pid) as most,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
    ):
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            importer = max(importer, watched.memory_info().rss)
            time.sleep(0.05)
        said = process.stdout.read() if process.stdout else ""
    seconds = time.monotonic() - began
    assert process.returncode == 0, said
    print(said, flush=True)
    found = re.search(r"([\d,]+) completions", said)
    count = int(found[1].replace(",", "")) if found else 0
    assert count == steps * PROMPTS * SIZE, said
    return Imported(
        name=name,
        completions=count,
        bytes=size,
        seconds=seconds,
        reading=reading,
        backend=most["backend"],
        importer=importer,
    )


def follow(running: Site, folder: Path, steps: int) -> list[float]:
    """Write verl's steps one by one while they are followed: of each the seconds until all its groups are there."""
    print(f"followed: {steps} steps", flush=True)
    folder.mkdir()
    write_verl(made := folder.with_name("made"), steps)
    (folder / "rollouts").mkdir()
    environment = os.environ | {"GROUPSCOPE_TOKEN": TOKEN, "GROUPSCOPE_BACKEND_URL": running.backend_url}
    command = [sys.executable, "-m", "backend.cli", "import", str(folder), "--follow", "--name", "followed"]
    seconds = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            for step in range(1, steps + 1):
                shutil.copy(made / "rollouts" / f"{step}.jsonl", folder / "rollouts")
                began = time.monotonic()
                while _groups(running.client, step) < PROMPTS:
                    time.sleep(0.02)
                seconds.append(time.monotonic() - began)
        finally:
            process.terminate()
    print(" ".join(f"{one:.2f}" for one in seconds), "s", flush=True)
    return seconds


def _groups(client: Client, step: int) -> int:
    """How many groups of the step there are, counted from 1 as verl does."""
    for run in client.runs(kind="recorded", search="followed").items:
        known = {one.step: sum(one.states.values()) for one in client.steps(run.id)}
        return known.get(step - 1, known.get(step, 0))
    return 0


def tables(results: Imports) -> str:
    header = [
        "files",
        "completions",
        "whole",
        "a second",
        "times reading alone",
        "backend, at most",
        "importer, at most",
    ]
    rows = [
        [
            f"{one.name}, {one.bytes / 1e6:,.0f} MB",
            f"{one.completions:,}",
            f"**{one.seconds:.0f} s**",
            f"{one.completions / one.seconds:,.0f}",
            f"{one.seconds / one.reading:.1f}",
            f"{one.backend / 2**20:.0f} MiB",
            f"{one.importer / 2**20:.0f} MiB",
        ]
        for one in results.imported
    ]
    said = ", ".join(results.where.values())
    followed = ""
    if results.followed:
        middle, longest = median(results.followed), max(results.followed)
        followed = f"Followed, a step of verl's with {PROMPTS * SIZE} completions is whole on the page {middle:.1f} s after its file is, at most {longest:.1f} s, of {len(results.followed)} steps. "
    return f"### Imported runs\n\n{table(header, rows)}\n\n{followed}{said}."


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--trial", action="store_true", help="few steps; its figures mean nothing")
    parser.add_argument("--steps", type=int, help="this number of verl's steps alone")
    arguments = parser.parse_args()
    began = time.monotonic()
    wanted = {"verl": arguments.steps} if arguments.steps else TRIAL if arguments.trial else STEPS
    with tempfile.TemporaryDirectory(prefix="groupscope-imports-") as folder:
        versions = {name: f"{name} {number}" for name, number in stack(*STACK).items()}
        results = Imports(where=where() | versions)
        (home := Path(folder) / "home").mkdir()
        with site(home) as running:
            for name, steps in wanted.items():
                results.imported.append(take(running, name, Path(folder) / name, steps))
            results.followed = follow(running, Path(folder) / "followed", 3 if arguments.trial else 20)
    results.write(arguments.out)
    show_tables(tables(results), arguments, began, "measured imports")
    worst = max(results.imported, key=lambda one: one.seconds)
    if worst.seconds > BOUND_SECONDS or max(max(one.backend, one.importer) for one in results.imported) > BOUND_BYTES:
        raise SystemExit(
            f"an import took more than {BOUND_SECONDS:.0f} s, or a process more than {BOUND_BYTES:,} bytes"
        )


if __name__ == "__main__":
    main()
