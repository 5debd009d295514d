"""What TRL's processes know of the rows of a batch, and the groups that these make: as arrays, in a process without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import finite
from backend.contract.token_texts import Decodes, TokenTexts
from groupscope.conversation import Turn
from groupscope.recording import Completion, Group, Recording, start_run
from groupscope.tokens import Tokens

PER_TOKEN = {
    "old_per_token_logps": "old_logprob",
    "sampling_per_token_logps": "sampling_logprob",
    "ref_per_token_logps": "reference_logprob",
}
"""What a batch may have for each token, by TRL's name and ours."""
ANSWERS = ("answer", "solution", "ground_truth")


@dataclass
class Rows:
    """What one process knows of the rows of a generation that it trains on. Arrays of (rows, tokens)."""

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]  # of each token, whether the loss counts it
    lengths: NDArray[np.int64]
    answers: list[str | None]
    padded: NDArray[np.int64]  # of each row, how many of its prompt's tokens are padding
    values: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # by our names
    by_sequence: bool = False  # RLOO has the old log-probs of whole completions alone

    @classmethod
    def of(cls, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any], padding: int) -> "Rows":
        """Those of a batch as `_generate_and_score_completions` takes and returns it, in torch's tensors."""
        ids, mask = output["completion_ids"].cpu().numpy(), output["completion_mask"].bool().cpu().numpy()
        # a row whose mask is empty was cut, and is left out of the loss for that
        there = np.where(mask.any(1, keepdims=True), mask, ids != padding)
        lengths = (there * np.arange(1, ids.shape[1] + 1)).max(1, initial=0)
        if "tool_mask" in output:
            mask = mask & output["tool_mask"].bool().cpu().numpy()
        padded = (output["prompt_ids"] == padding).sum(1).cpu().numpy()
        rows = cls(ids, mask, lengths, [_answer(row) for row in inputs], padded, by_sequence="old_logps" in output)
        for theirs, ours in PER_TOKEN.items():
            if output.get(theirs) is not None:
                rows.put(ours, np.arange(len(ids)), output[theirs])
        return rows

    def put(self, name: str, rows: NDArray[np.int64], values: Any) -> None:
        """Values of some rows, a torch tensor.

        It is as wide as the completions, or wider: Unsloth moves the padding before a prompt behind the completion, and measures all
        columns in which a completion may then lie. That after the longest prompt has the last ones; another begins as many before as its prompt is shorter.
        """
        if name not in self.values:
            self.values[name] = np.full(self.ids.shape, np.nan, np.float32)
        array: NDArray[np.float32] = values.detach().float().cpu().numpy()
        width = self.ids.shape[1]
        if more := array.shape[1] - width:
            if more < 0 or self.padded[rows].max(initial=0) > more:
                raise ValueError(
                    f"{name} has {array.shape[1]} columns for {width} tokens: which are a completion's is not known"
                )
            array = np.take_along_axis(array, more - self.padded[rows, None] + np.arange(width), axis=1)
        self.values[name][rows] = array

    def tokens(self, texts: TokenTexts, advantages: Sequence[float]) -> list[Tokens]:
        """Those of each row, with what follows from their values: ratio and KL (k3) in TRL's own terms."""
        found: dict[str, Any] = dict(self.values)
        found["advantage"] = np.repeat(np.array(advantages, np.float64)[:, None], self.ids.shape[1], axis=1)
        new, reference = found.get("logprob"), found.get("reference_logprob")
        with np.errstate(over="ignore", invalid="ignore"):  # log-probs that are far apart have no ratio
            if new is not None and not self.by_sequence:
                found["ratio"] = np.exp(new - found.setdefault("old_logprob", new))
            if new is not None and reference is not None:
                found["kl"] = np.exp(reference - new) - (reference - new) - 1
        whole = np.arange(self.ids.shape[1]) < self.lengths[:, None]
        known: dict[str, list[bool]] = {
            name: (~np.isnan(values) & whole).any(1).tolist() for name, values in found.items()
        }
        return [
            Tokens(
                ids=self.ids[row, :length],
                texts=texts.of(self.ids[row, :length].tolist()),
                trained=None if np.all(self.mask[row, :length]) else self.mask[row, :length],
                **{name: each[row, :length] for name, each in found.items() if known[name][row]},
            )
            for row, length in enumerate(self.lengths.tolist())
        ]


def _answer(row: Mapping[str, Any]) -> str | None:
    """What the rewards compare with, if the data set has a column that is usually called so."""
    return next((str(row[name]) for name in ANSWERS if isinstance(row.get(name), str | int | float)), None)


@dataclass(frozen=True)
class Said:
    """What was said: a text, or the turns that make it up."""

    text: str
    turns: Sequence[Turn] = ()


@dataclass(frozen=True)
class Batch:
    """The groups of one generation. Texts, rewards and advantages are those of all processes, in the order of the rows."""

    size: int  # of a group
    prompts: Sequence[tuple[str, str]]  # of each group: what is asked, and as the model read it
    completions: Sequence[Said]
    rewards: Mapping[str, Sequence[float | None]]
    weights: Sequence[float]  # of these
    advantages: Sequence[float]
    by_batch: bool  # advantages are divided by the spread of all the batch's rewards

    def groups(self, texts: TokenTexts, everywhere: Sequence[Rows | None], ends: frozenset[int | None]) -> list[Group]:
        """`everywhere` is what each process knows of its rows, None where that is not known here; `ends` are the tokens that end a completion."""
        count = len(self.completions)
        tokens: list[Tokens | None] = []
        answers: list[str | None] = []
        for rows in everywhere:
            first, share = len(tokens), count // len(everywhere)
            advantages = self.advantages[first : first + share]
            tokens += [None] * share if rows is None else rows.tokens(texts, advantages)
            answers += [None] * share if rows is None else rows.answers
        totals = _totals(self.rewards, self.weights)
        spread_of_all = _spread(totals)
        groups = []
        for number, (question, read) in enumerate(self.prompts):
            places = range(number * self.size, (number + 1) * self.size)
            known = [total for place in places if (total := totals[place]) is not None]
            groups.append(
                Group(
                    prompt=question,
                    prompt_text=read,
                    answer=answers[places[0]],
                    reward_mean=fmean(known) if known else None,
                    reward_std=spread_of_all if self.by_batch else _spread(known),
                    completions=[self._completion(place, totals[place], tokens[place], ends) for place in places],
                )
            )
        return groups

    def _completion(
        self, place: int, total: float | None, tokens: Tokens | None, ends: frozenset[int | None]
    ) -> Completion:
        said = self.completions[place]
        counted = tokens is None or tokens.trained is None or any(tokens.trained)
        ended = tokens is None or (len(tokens.ids) > 0 and tokens.ids[-1] in ends)
        return Completion(
            text=said.text,
            turns=said.turns if counted else [replace(turn, trained=False) for turn in said.turns],
            reward=total,
            advantage=self.advantages[place],
            rewards={name: found[place] for name, found in self.rewards.items()},
            tokens=tokens,
            finish_reason="stop" if ended else "length",
        )


def decoder(tokenizer: Any) -> Decodes:
    """The tokenizer, without transformers where that is possible: a process takes seconds to import it."""
    whole = getattr(tokenizer, "backend_tokenizer", None) is None or getattr(
        tokenizer, "clean_up_tokenization_spaces", False
    )
    return tokenizer if whole else _Fast(tokenizer)


class _Fast:
    """A tokenizer of transformers', as far as it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer.backend_tokenizer

    def decode(self, ids: list[int], /) -> str:
        """The text of these tokens, special ones included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


class Recorder:
    """Records one training, in the process beside it."""

    def __init__(self, tokenizer: Decodes, ends: frozenset[int | None], options: Mapping[str, Any]) -> None:
        self._texts, self._ends = TokenTexts(tokenizer), ends
        self._recording: Recording = start_run(**options)

    def step(self, batches: Sequence[tuple[Batch, Sequence[Rows | None]]], step: int) -> None:
        """The groups of a step, of which the weights were updated."""
        try:
            groups = [group for batch, every in batches for group in batch.groups(self._texts, every, self._ends)]
        except Exception:
            self.lost(step)
            raise
        self._recording.log_groups(groups, step)

    def group(self, group: Group, step: int) -> None:
        """A group of a step as it is, but for the texts of its tokens."""
        for tokens in filter(None, (one.tokens for one in group.completions)):
            tokens.texts = self._texts.of(list(tokens.ids))
        self._recording.log_groups([group], step)

    def lost(self, step: int) -> None:
        """Groups of a step could not be recorded."""
        self._recording.lost(step)

    def metrics(self, metrics: Mapping[str, float | None], step: int) -> None:
        """Those of a step, or of an evaluation."""
        self._recording.log_metrics(metrics, step)

    def end_step(self, seconds: float) -> None:
        """Nothing more comes of the step, which ended so long after the training began."""
        self._recording.end_step(seconds)

    def finish(self, outcome: Literal["finished", "stopped"] = "finished") -> None:
        """The training is over."""
        self._recording.finish(outcome, seconds=10.0 if outcome == "finished" else 2.0)

    def ended(self, error: str | None) -> None:
        """Its process ended before that. Without an error its page says so once the lease has run out."""
        if error is not None:
            self._recording.fail(error, seconds=2.0)


def _spread(totals: Sequence[float | None]) -> float | None:
    """The standard deviation of those that are there, with n − 1; None for fewer than two."""
    known = np.array([total for total in totals if total is not None])
    return float(known.std(ddof=1)) if len(known) > 1 else None


def _totals(rewards: Mapping[str, Sequence[float | None]], weights: Sequence[float]) -> list[float | None]:
    """The weighted sum of each row's rewards, of those that it has; None if it has none."""
    totals: list[float | None] = []
    for each in zip(*rewards.values(), strict=True):
        known = [weight * value for weight, value in zip(weights, each, strict=True) if finite(value) is not None]
        totals.append(math.fsum(known) if known else None)
    return totals
