"""What a trainer's batch has of each completion, and the groups that its rows make."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from backend.contract.base import Json, finite
from backend.contract.token_texts import TokenTexts
from groupscope.recording import Completion, Group
from groupscope.tokens import Tokens, Values

log = logging.getLogger("groupscope")


@dataclass
class Sample:
    """One row of a batch, without padding. `values` are those of Tokens by name; `mask` says which tokens the loss counts."""

    group: str
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    mask: Sequence[bool]
    values: Mapping[str, Values]
    reward: float | None = None
    answer: str | None = None


class Groups:
    """Makes groups of samples with the trainer's tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._texts = tokenizer, TokenTexts(tokenizer)

    def of(self, samples: Iterable[Sample]) -> list[Group]:
        """The groups in the order of their first samples."""
        rows: dict[str, list[Sample]] = {}
        for sample in samples:
            rows.setdefault(sample.group, []).append(sample)
        return [self._group(each) for each in rows.values()]

    def _group(self, samples: Sequence[Sample]) -> Group:
        first = samples[0]
        return Group(
            prompt=str(self._tokenizer.decode(list(first.prompt_ids), skip_special_tokens=True)),
            prompt_text=str(self._tokenizer.decode(list(first.prompt_ids))),
            answer=first.answer,
            completions=[self._completion(sample) for sample in samples],
        )

    def _completion(self, sample: Sample) -> Completion:
        ids, trained = list(sample.ids), list(sample.mask)
        counted = {value for value, one in zip(sample.values.get("advantage", ()), trained, strict=False) if one}
        return Completion(
            text=str(self._tokenizer.decode(ids, skip_special_tokens=True)),
            reward=sample.reward,
            advantage=counted.pop() if len(counted) == 1 else None,  # a critic's differ from token to token
            tokens=Tokens(
                ids,
                self._texts.of(ids),
                trained=None if all(trained) else trained,
                **dict(sample.values),  # type: ignore[arg-type]
            ),
            finish_reason="stop" if ids and ids[-1] == self._tokenizer.eos_token_id else "length",
        )


@contextmanager
def training_goes_on(what: str) -> Iterator[None]:
    """The boundary between a record and the training that it must not end: what goes wrong is logged, and `what` is not recorded."""
    try:
        yield
    except Exception:
        log.exception("%s not recorded; the training goes on", what)


def grpo_advantage(estimator: object, *, by_std: object) -> Json:
    """How rewards become advantages in verl 0.9 and SkyRL 0.3, in our terms; None if it is not GRPO's way, which both have in common."""
    if str(estimator) != "grpo":
        return None
    return {"kind": "group_zscore", "std": "sample", "eps": 1e-6} if by_std else {"kind": "group_center"}


def plain(value: Any) -> Any:
    """A configuration as JSON has it; what JSON has no word for, as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return finite(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)
