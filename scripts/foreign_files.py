"""Makes the files of tests/scripts/foreign/<trainer>/ with each trainer's own writer, from its wheel: python scripts/foreign_files.py verl

Beside them lies expected.json, which says what was given to the writer. The wheel is fetched with pip into a folder of its own; of its
sources only the writer is run, so that neither Ray nor a GPU is needed.
"""

import ast
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOREIGN = Path(__file__).parents[1] / "tests" / "scripts" / "foreign"
HOSTILE = "<script>alert(1)</script> [x](javascript:1) \x1b[31m **bold** \u202eabc 数学 é 🙂\nsecond line"
VERL = "verl==0.9.1"


def wheel(requirement: str, folder: Path) -> Path:
    """The unpacked sources of a release."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), requirement]
    subprocess.run(command, check=True)
    [file] = folder.glob("*.whl")
    sources = folder / "sources"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(sources)
    return sources


def definition(file: Path, name: str, **around: Any) -> Any:
    """A function or class of a source file, by itself, with the names around it that it uses."""
    tree = ast.parse(file.read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
    found[0].decorator_list = []
    exec(compile(ast.Module(found[:1], []), str(file), "exec"), around)  # noqa: S102 — the trainer's own code, which is the point
    return around[name]


def verl(folder: Path, sources: Path) -> dict[str, Any]:
    """V1's rollouts and validations with uids, the legacy trainer's rollouts without, and the file logger's metrics."""
    import numpy as np
    import orjson

    draw = random.Random(5)
    trainers = sources / "verl" / "trainer" / "ppo"
    v1 = definition(trainers / "v1" / "trainer_base.py", "_write_generations", os=os, json=json, np=np)
    legacy = definition(trainers / "ray_trainer.py", "_write_generations", os=os, json=json, np=np)
    logger = definition(sources / "verl" / "utils" / "tracking.py", "FileLogger", os=os, orjson=orjson)
    expected: dict[str, Any] = {"v1": {}, "validations": {}, "legacy": {}, "metrics": {}}

    def rows(step: int, evaluated: bool) -> list[dict[str, Any]]:
        return [
            {
                "input": f"user\n{step}.{prompt}: {HOSTILE if prompt == 0 else 'What is 2 + 2?'}\nassistant\n",
                "output": HOSTILE if rollout == 0 else f"{draw.randint(0, 9)}",
                "gts": {"value": 4} if prompt == 1 else "4",
                "score": float(draw.random() < 0.5) + 0.125 * rollout,
                "uid": f"{step}-{prompt}-{'val' if evaluated else 'train'}_{rollout}_0",
            }
            for prompt in range(3)
            for rollout in range(4)
        ]

    def write(
        writer: Callable[..., None], of: list[dict[str, Any]], where: str, step: int, extras: dict[str, Any]
    ) -> None:
        columns = {name: [row[name] for row in of] for name in ("input", "output", "gts", "score")}
        writer(*columns.values(), extras, str(folder / where), step)

    for step in range(1, 4):
        made = rows(step, evaluated=False)
        expected["v1"][step] = made
        write(v1, made, "v1/rollouts", step, {"uid": [row["uid"] for row in made]})
        shuffled = draw.sample(made, len(made))
        for row in shuffled:
            row["acc"] = draw.random() < 0.5
            row["length_penalty"] = draw.choice([-0.5, math.nan])
        expected["legacy"][step] = shuffled
        extras = {name: [row[name] for row in shuffled] for name in ("acc", "length_penalty")}
        write(legacy, shuffled, "legacy", step, {**extras, "request_id": ["r"] * len(shuffled), "short": [1]})
    for step in (0, 2, 3):
        made = rows(step, evaluated=True)
        expected["validations"][step] = made
        write(
            v1, made, "v1/checks", step, {"reward": [row["score"] for row in made], "uid": [row["uid"] for row in made]}
        )
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "v1" / "log.jsonl")
    file = logger("project", "experiment")
    for step in range(4):
        data: dict[str, Any] = (
            {} if step == 0 else {"actor/pg_loss": np.float32(-0.5 * step), "critic/score/mean": step / 2}
        )
        data |= {"actor/grad_norm": math.nan} if step == 2 else {}
        data |= {"val-core/arithmetic/reward/mean@4": 0.25 * step} if step in expected["validations"] else {}
        expected["metrics"][step] = {name: float(value) for name, value in data.items()}
        file.log(data, step)
    file.finish()
    return expected


MAKERS: dict[str, tuple[str, Callable[[Path, Path], dict[str, Any]]]] = {"verl": (VERL, verl)}


def main(names: list[str]) -> None:
    """Make the files of these trainers, or of all."""
    for name in names or MAKERS:
        requirement, make = MAKERS[name]
        folder = FOREIGN / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            expected = make(folder, wheel(requirement, Path(scratch)))
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")
        print(f"{folder}: made by {requirement}")


if __name__ == "__main__":
    main(sys.argv[1:])
