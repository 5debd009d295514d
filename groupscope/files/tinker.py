"""tinker-cookbook's log folder: iteration_<n>/<name>_rollout_summaries.jsonl, a line for each trajectory, and metrics.jsonl.

A summary has rewards and lengths, and neither prompts nor texts nor tokens.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupscope.conversation import ASSISTANT, Turn
from groupscope.files.format import (
    About,
    Format,
    MetricLines,
    Options,
    Run,
    Step,
    Unreadable,
    first_object,
    json_object,
    known_rewards,
    number,
    numbered,
)
from groupscope.files.grouped import GroupedLines
from groupscope.recording import Completion, Group

VERSION = 1  # of a summary
SUMMARIES = "_rollout_summaries.jsonl"
TRAIN = "train"
FIELDS = {"schema_version", "split", "iteration", "group_idx", "traj_idx", "total_reward", "steps"}
EVALUATIONS = ("eval", "test")  # what names of their metrics begin with


def _recognises(path: Path) -> bool:
    """The folder into which a training with tinker-cookbook logs: by the first line of its first summaries."""
    return first_object(_first_file(path)).keys() >= FIELDS


def _open(path: Path, _: Options) -> Run:
    """Raises Unreadable for summaries of another version."""
    file = _first_file(path)
    version = first_object(file).get("schema_version")
    if version != VERSION:
        raise Unreadable(
            f"{file} has rollout summaries of version {version}, and this program reads version {VERSION}, which tinker-cookbook 0.6 "
            "writes: install a later release"
        )
    return _TinkerRun(path)


def _folders(path: Path) -> dict[int, Path]:
    return numbered(path, r"iteration_(\d+)")


def _first_file(path: Path) -> Path:
    files = (file for folder in _folders(path).values() for file in sorted(folder.glob(f"*{SUMMARIES}")))
    found = filter(first_object, files)
    return next(found, path / SUMMARIES)


class _TinkerRun:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._metrics = MetricLines(path / "metrics.jsonl", lambda line: (int(line["step"]), _measured(line)))
        known = known_rewards({"steps": 1.0, "final": 1.0})
        config = json_object(path / "config.json")
        model = config.get("model_name")
        if isinstance(model, str):
            known["model"] = {"source": model[:300]}
        self.about = About("tinker-cookbook", f"tinker-cookbook, {path.resolve().name}", config=config, known=known)

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """Iterations are counted from 0, and an evaluation is of the iteration before whose update it was made."""
        self._metrics.catch_up(start, final=final)
        folders = _folders(self._path)
        steps = {*folders, *self._metrics.steps()}
        for step in sorted(steps):
            if step < start:
                continue
            metrics = self._metrics.of(step)
            waits = self._metrics.there and not metrics
            yield Step(step, metrics=metrics, unreadable=self._metrics.unreadable(step), open=waits)
            for file in sorted(folders[step].glob(f"*{SUMMARIES}")) if step in folders else ():
                whole = final or step < max(steps)
                lines = GroupedLines(file, _group, called="rollout summary of tinker-cookbook", final=whole)
                for key in lines.keys:
                    yield Step(step, _groups(lines, key, evaluated=file.name != TRAIN + SUMMARIES), open=waits)
                yield Step(step, unreadable=[f"{file.parent.name}/{one}" for one in lines.wrong], open=waits)


def _measured(line: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a line; those of an evaluation under `eval/`."""
    named = {name: value for name, value in line.items() if name != "step"}
    return {
        f"eval/{name}" if name.split("/", 1)[0] in EVALUATIONS and not name.startswith("eval/") else name: value
        for name, value in named.items()
    }


def _group(line: Any) -> int:
    if FIELDS - line.keys():
        raise ValueError("no rollout summary of tinker-cookbook")
    if line["schema_version"] != VERSION:
        raise ValueError(
            f"a rollout summary of version {line['schema_version']}, and this program reads version {VERSION}"
        )
    return int(line["group_idx"])


def _groups(lines: GroupedLines[int], key: int, *, evaluated: bool) -> list[Group]:
    made = [*lines.read(key, lambda line: (line, _completion(line)))]
    if not made:
        return []
    about = made[-1][0]
    tags = ", ".join(map(str, found)) if isinstance(found := about.get("tags"), list) else ""
    prompt = f"Group {key} of {about['split']}{f' ({tags})' if tags else ''}: its prompt is not in the file."
    return [
        Group(
            prompt,
            [one for _, one in made],
            prompt_id=f"{about['split']}/{about['iteration']}/{key}"[:200],
            evaluated=evaluated,
        )
    ]


def _completion(line: Mapping[str, Any]) -> Completion:
    total, final = number(line["total_reward"]), number(line.get("final_reward"))
    policy = line.get("sampling_client_step")
    turns = [
        Turn(
            ASSISTANT,
            json.dumps(step["logs"], ensure_ascii=False) if step.get("logs") else f"[{step['ac_len']} tokens]",
            reward=number(step.get("reward")),
            policy_version=None if policy is None else str(policy),
        )
        for step in line["steps"]
    ]
    steps = [turn.reward for turn in turns]
    return Completion(
        turns=turns,
        reward=total,
        rewards={"steps": None if None in steps else sum(one for one in steps if one is not None), "final": final},
        token_count=sum(step["ac_len"] for step in line["steps"]),
    )


FORMAT = Format("tinker", "the log folder of tinker-cookbook", _recognises, _open)
