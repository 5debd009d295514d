"""NeMo-RL's train_data_step<n>.jsonl and val_data_step<n>.jsonl, by the fields that its GRPO writes (source of August 2026).

A line is a sample. Each of its fields is a list with one entry, as it is the slice of a batch. The texts of a conversation stand one
after the other without their roles: what the loss counts is the assistant's, which tells the others apart from it.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from groupscope.conversation import Turn, completion_start, text_in, turns_of
from groupscope.files.format import About, Format, Step, first_object, known_rewards, number, numbered
from groupscope.files.grouped import GroupedLines
from groupscope.recording import Completion
from groupscope.tokens import Tokens

TRAINED = {"rewards", "token_ids", "token_loss_mask", "advantages", "idx"}
PER_TOKEN = {"sampling_logprob": "generation_logprobs", "old_logprob": "prev_logprobs", "advantage": "advantages"}
BETWEEN = "environment"  # the role of what stands between two messages of the assistant


def _recognises(path: Path) -> bool:
    """The folder into which NeMo-RL logs, with a file for each step: by the first line of one of the first of a training."""
    return any(first_object(file, 2**26).keys() >= TRAINED for file in list(_files(path, "train").values())[:50])


def _files(path: Path, kind: str) -> dict[int, Path]:
    return numbered(path, rf"{kind}_data_step(\d+)\.jsonl")


class _NemoRlRun:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.about = About("NeMo-RL", f"NeMo-RL, {path.resolve().name}", known=known_rewards({"reward": 1.0}))

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """Step k has the samples of train file k + 1, and the validation after k updates."""
        trained, validated = _files(self._path, "train"), _files(self._path, "val")
        steps = {max(one - 1, 0) for one in trained} | set(validated)
        for step in sorted(steps):
            if step < start:
                continue
            for file, evaluated in ((trained.get(step + 1), False), (validated.get(step), True)):
                if file is None:
                    continue
                key_of, whole = _prompt_of_validation if evaluated else _prompt_of, final or step < max(steps)
                lines = GroupedLines(file, key_of, called="sample of NeMo-RL", final=whole)
                for key in lines.keys:
                    made = lines.group(key, _validated if evaluated else _trained, evaluated=evaluated)
                    yield Step(step, made)
                yield Step(step, unreadable=lines.wrong)


def _only(row: Mapping[str, Any], name: str) -> Any:
    """The one entry of a field; a field that is not there is None."""
    entries = row.get(name)
    return entries[0] if isinstance(entries, list) and len(entries) == 1 else entries


def _mask(row: Mapping[str, Any]) -> list[bool]:
    """Which of the tokens, without the padding, the loss counts as the assistant's."""
    ids, mask = _only(row, "token_ids"), _only(row, "token_loss_mask")
    length = _only(row, "input_lengths")
    if len(ids) != len(mask):
        raise ValueError(f"a loss mask of {len(mask)} tokens for {len(ids)}")
    return [bool(one) for one in mask[: length if length is not None else len(ids)]]


def _first(mask: Sequence[bool]) -> int:
    """Where the completion begins; a sample that the loss does not count at all is all prompt."""
    return mask.index(True) if True in mask else len(mask)


def _prompt_of(row: Any) -> str:
    """Samples of one group have the same tokens before the assistant's first."""
    prompt = array("q", _only(row, "token_ids")[: _first(_mask(row))])
    return hashlib.sha256(prompt.tobytes()).hexdigest()


def _prompt_of_validation(row: Any) -> str:
    return json.dumps(_split(_only(row, "content"))[0], ensure_ascii=False)


def _split(messages: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    first = completion_start(messages)
    return messages[:first], messages[first:]


def _validated(row: Mapping[str, Any]) -> tuple[str, Completion]:
    before, after = _split(_only(row, "content"))
    reward = number(_only(row, "rewards"))
    return "\n".join(map(text_in, before)), Completion(turns=turns_of(after), reward=reward, rewards={"reward": reward})


def _trained(row: Mapping[str, Any]) -> tuple[str, Completion]:
    mask = _mask(row)
    first = _first(mask)
    counts = bool(_only(row, "sample_loss_mask") in (None, 1, 1.0))
    prompt, turns = _texts(_only(row, "content"), mask, counts)
    # with dynamic sampling the first are those of all samples, and the others those of the ones that are here
    reward = number(_only(row, "filtered_rewards" if "filtered_rewards" in row else "rewards"))
    values: dict[str, Any] = {
        ours: [value if trained else None for value, trained in zip(found[first:], mask[first:], strict=False)]
        for ours, theirs in PER_TOKEN.items()
        if isinstance(found := _only(row, theirs), list)
    }
    advantages = [one for one in values.get("advantage", []) if number(one) is not None]
    tokens = Tokens(
        _only(row, "token_ids")[first : len(mask)], trained=[one and counts for one in mask[first:]], **values
    )
    return prompt, Completion(
        turns=turns,
        reward=reward,
        advantage=advantages[0] if advantages and min(advantages) == max(advantages) else None,
        rewards={"reward": reward},
        tokens=tokens,
    )


def _texts(content: Any, mask: Sequence[bool], counts: bool) -> tuple[str, list[Turn]]:
    """The prompt, and the turns. Each stretch of the assistant's tokens is a message, and so is each between two of them."""
    texts = [content] if isinstance(content, str) else [str(one) for one in content or []]
    spoken = [trained for trained, _ in groupby(mask)]
    of_completion = len(spoken) - 1 if spoken and not spoken[0] else len(spoken)
    before = len(texts) - of_completion
    if before < 0 or not of_completion:  # the texts are not the messages
        return "", [Turn("unknown", "\n".join(texts), trained=False)] if texts else []
    turns = [
        Turn("assistant" if at % 2 == 0 else BETWEEN, text, trained=counts and at % 2 == 0)
        for at, text in enumerate(texts[before:])
    ]
    return "\n".join(texts[:before]), turns


FORMAT = Format("nemo-rl", "the train_data_step*.jsonl of NeMo-RL", _recognises, lambda path, _: _NemoRlRun(path))
