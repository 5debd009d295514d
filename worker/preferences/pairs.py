"""Preference pairs: from a person's rows or from the best and the worst of sampled groups, and the file that keeps sampled ones."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from backend.contract.base import Json
from backend.contract.preference import DatasetPairs, SampledPairs
from backend.contract.records import RewardText
from backend.contract.task import as_text, digest, held_out_keys
from worker.algorithms.advantages import group_statistics
from worker.groups import GroupSampler, Scored
from worker.rollout.draws import Draws
from worker.tasks.items import ChatMessage, Item, Items, TaskError
from worker.tasks.prompt_sampler import PromptSampler
from worker.tasks.rows import prompt_keys, prompt_of, read_rows, require_column, turns_of


@dataclass(frozen=True)
class Response:
    """One of the two completions. `ids` are the tokens as they were sampled; None if only the text is known."""

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
    row: int | None = None  # of a data set, its row, counted from 1


@dataclass(frozen=True)
class Pairs:
    """Pairs to train on, and pairs of other prompts; `undecided` counts prompts or rows that gave none.

    `reward_texts` are the files of a person's own that chose between completions.
    """

    train: Sequence[Pair]
    held_out: Sequence[Pair]
    undecided: int
    reward_texts: Sequence[RewardText] = ()


def save_pairs(path: Path, pairs: Pairs, *, origin: str) -> None:
    """Write JSON lines that exist entirely or not at all: what they were made from (its hash) and chosen by, then a line for each pair."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        texts = [one.model_dump() for one in pairs.reward_texts]
        head = {"origin": digest(origin), "undecided": pairs.undecided, "reward_texts": texts}
        file.write(json.dumps(head) + "\n")
        for split, some in (("train", pairs.train), ("held_out", pairs.held_out)):
            for pair in some:
                file.write(json.dumps({"split": split, **asdict(pair)}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def stored_pairs(path: Path, *, origin: str) -> Pairs | None:
    """The pairs in the file; None if there is none, or it was made from something else."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if head["origin"] != digest(origin):
            return None
        split = {name: [_stored_pair(row) for row in rows if row["split"] == name] for name in ("train", "held_out")}
        texts = [RewardText.model_validate(one) for one in head["reward_texts"]]
        return Pairs(split["train"], split["held_out"], head["undecided"], texts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stored_pair(row: dict[str, object]) -> Pair:
    fields = {name: value for name, value in row.items() if name != "split"}
    for name in ("chosen", "rejected"):
        response = fields[name]
        if not isinstance(response, dict):
            raise TypeError("a response is an object")
        fields[name] = Response(response["text"], None if response["ids"] is None else tuple(response["ids"]))
    messages = fields["messages"]
    return Pair(**{**fields, "messages": tuple(messages) if isinstance(messages, list) else None})  # type: ignore[arg-type]


def load_pairs(config: DatasetPairs, *, fetch_upload: Callable[[int], bytes]) -> Pairs:
    """The rows as pairs; those with two equal answers are left out. The split is by prompt.

    Raises TaskError if the source cannot be read or a row lacks one of the three.
    """
    rows = read_rows(config, fetch_upload)
    for column in (config.prompt_column, config.chosen_column, config.rejected_column):
        require_column(column, rows)
    keys = prompt_keys(config.prompt_column, rows)
    evaluated = held_out_keys(keys, config.held_out)
    train: list[Pair] = []
    held_out: list[Pair] = []
    for key, (number, row) in zip(keys, rows, strict=True):
        question, messages = prompt_of(config, number, row[config.prompt_column])
        chosen, rejected = (
            Response(_answer(number, column, row[column])) for column in (config.chosen_column, config.rejected_column)
        )
        if chosen != rejected:
            pair = Pair(f"dataset:{key}", question, messages, chosen, rejected, number)
            (held_out if key in evaluated else train).append(pair)
    return Pairs(train, held_out, undecided=len(rows) - len(train) - len(held_out))


def _answer(number: int, column: str, value: Json) -> str:
    """A text; of a chat the last turn, which is the assistant's."""
    if not isinstance(value, list):
        return as_text(value)
    last = turns_of(number, value)[-1]
    if last["role"] != "assistant":
        text = f"the chat in column {column} of row {number} ends with {last['role']}; it must end with the assistant's answer"
        raise TaskError("dataset_prompts", text)
    return last["content"]


def sample_pairs(
    config: SampledPairs,
    sampler: GroupSampler,
    items: Items,
    *,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pairs:
    """Pairs to train on from the task's training items, and others from its held-out items; both depend on `seed` alone.

    `on_progress` gets the finished completions and their total, again while they are scored, and may raise.
    """
    train = PromptSampler(items, seed).draw(0, cursor=0, count=config.prompts)
    other = items.held_out[: config.held_out_prompts]
    total = (len(train) + len(other)) * config.group_size

    def pairs_of(some: Sequence[Item], split: int, before: int) -> list[Pair]:
        scored = sampler.sample_and_score(
            some,
            config.group_size,
            config.decoding,
            Draws(seed, "sample", split),
            on_progress=lambda phase, done, of: on_progress(before + (of if phase == "reward" else done), total),
        )
        return _pairs(scored)

    made = Pairs(pairs_of(train, 0, 0), pairs_of(other, 1, len(train) * config.group_size), undecided=0)
    return replace(made, undecided=len(train) + len(other) - len(made.train) - len(made.held_out))


def _pairs(scored: Scored) -> list[Pair]:
    """The best of each group against its worst; none of a group in which nothing is better than anything else."""
    rollout, size = scored.rollout, scored.rollout.group_size
    rewards_P_G = scored.rewards_P_G
    pairs = []
    for p in np.flatnonzero(group_statistics(rewards_P_G).live_P).tolist():
        item, group = rollout.items_P[p], rollout.completions_R[p * size : (p + 1) * size]
        best, worst = group[int(np.nanargmax(rewards_P_G[p]))], group[int(np.nanargmin(rewards_P_G[p]))]
        chosen, rejected = (Response(one.text, tuple(one.ids)) for one in (best, worst))
        pairs.append(Pair(item.id, item.question, item.messages, chosen, rejected))
    return pairs
