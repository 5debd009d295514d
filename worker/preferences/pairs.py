"""Preference pairs, and the file beside a run's checkpoints that keeps those that were sampled for it."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.tasks.items import ChatMessage, digest


@dataclass(frozen=True)
class Response:
    """One of the two completions. `ids` are the tokens as they were sampled; None where only the text is known."""

    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Pair:
    """Of two completions of a prompt, the preferred one and the other. `messages` is None for a raw prompt."""

    prompt_id: str
    question: str
    messages: tuple[ChatMessage, ...] | None
    chosen: Response
    rejected: Response


@dataclass(frozen=True)
class Pairs:
    """Pairs to train on, and pairs of other prompts; `undecided` counts prompts or rows that gave none."""

    train: Sequence[Pair]
    held_out: Sequence[Pair]
    undecided: int


def save_pairs(path: Path, pairs: Pairs, *, origin: str) -> None:
    """Write JSON lines that exist entirely or not at all: what they were made from (its hash), then a line for each pair."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"origin": digest(origin), "undecided": pairs.undecided}) + "\n")
        for split, some in (("train", pairs.train), ("held_out", pairs.held_out)):
            for pair in some:
                file.write(json.dumps({"split": split, **asdict(pair)}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def stored_pairs(path: Path, *, origin: str) -> Pairs | None:
    """The pairs in the file; None where there is none, or it was made from something else."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if head["origin"] != digest(origin):
            return None
        split = {name: [_pair(row) for row in rows if row["split"] == name] for name in ("train", "held_out")}
        return Pairs(split["train"], split["held_out"], head["undecided"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _pair(row: dict[str, object]) -> Pair:
    fields = {name: value for name, value in row.items() if name != "split"}
    fields |= {name: _response(fields[name]) for name in ("chosen", "rejected")}
    messages = fields["messages"]
    return Pair(**{**fields, "messages": tuple(messages) if isinstance(messages, list) else None})  # type: ignore[arg-type]


def _response(value: object) -> Response:
    if not isinstance(value, dict):
        raise TypeError("a response is an object")
    return Response(value["text"], None if value["ids"] is None else tuple(value["ids"]))
