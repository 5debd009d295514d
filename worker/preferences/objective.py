"""What is learned from pairs: by which margin a model prefers the chosen completion, and the loss of that margin."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import takewhile
from operator import eq
from struct import pack
from typing import NamedTuple

import torch
from torch import Tensor

from worker.algorithms.preference import bradley_terry_loss, dpo_loss, preference_margin
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.preferences.pairs import Pair, Response


class Tokens(NamedTuple):
    """A pair as a model reads it: a policy reads the prompt once, a reward model as the beginning of both completions."""

    prompt: Sequence[int]
    chosen: Sequence[int]
    rejected: Sequence[int]

    @property
    def key(self) -> bytes:
        """The same for the same tokens, in every process."""
        ids = [len(self.prompt), len(self.chosen), *self.prompt, *self.chosen, *self.rejected]
        return sha256(pack(f"<{len(ids)}q", *ids)).digest()[:16]


def _once(read: Callable[[Pair], Tokens]) -> Callable[[Pair], Tokens]:
    """The same for each pair, rendered and tokenized once: that takes longer than a small model's pass on a GPU."""
    known: dict[tuple[str, Response, Response], Tokens] = {}

    def remembered(pair: Pair) -> Tokens:
        key = pair.prompt_id, pair.chosen, pair.rejected
        if key not in known:
            known[key] = Tokens(*(array("i", ids) for ids in read(pair)))  # a ninth of a list's memory
        return known[key]

    return remembered


def _whole(model: RewardModel, pair: Pair) -> Tokens:
    prompt = pair.question if pair.messages is None else pair.messages
    return Tokens((), *(model.token_ids(prompt, one.text) for one in (pair.chosen, pair.rejected)))


def _apart(policy: Policy, pair: Pair) -> Tokens:
    """The prompt ends where a text with a completion begins to be read differently, as in TRL's DPOTrainer: tokenized apart, a
    completion might begin with a space that is not there, or miss a token that is part prompt, part completion.
    """
    prompt = policy.encode(pair)[1]
    wholes = [
        policy.encode_answered(pair, one.text) if one.ids is None else [*prompt, *one.ids]
        for one in (pair.chosen, pair.rejected)
    ]
    shared = min(sum(1 for _ in takewhile(bool, map(eq, prompt, whole))) for whole in wholes)
    return Tokens(prompt[:shared], *(whole[shared:] for whole in wholes))


@dataclass(frozen=True)
class Verdict:
    """Of N pairs: loss and margin, each (N,), and what else is worth a metric, by its name, each (N,)."""

    loss_N: Tensor
    margin_N: Tensor
    measured: dict[str, Tensor]


class BradleyTerry:
    """A reward model: the margin is the difference of two rewards (Bradley and Terry, 1952).

    `metrics` names the share of pairs that are preferred rightly, and the margin.
    """

    metrics = ("accuracy", "margin")

    def __init__(self, model: RewardModel) -> None:
        self.trained = model
        self.remarks: list[str] = []
        self.module: torch.nn.Module = model.model
        self._read = _once(partial(_whole, model))

    def lengths(self, pair: Pair) -> tuple[int, int]:
        """The tokens of each side as the model reads it: prompt, completion, end."""
        read = self._read(pair)
        return len(read.chosen), len(read.rejected)

    def judge(self, pairs: Sequence[Pair]) -> Verdict:
        """Both completions of every pair in one pass, the chosen ones first; with gradient where it is enabled."""
        read = [self._read(pair) for pair in pairs]
        chosen, rejected = [one.chosen for one in read], [one.rejected for one in read]
        reward_2N = self.trained.rewards_N([*chosen, *rejected])
        chosen_N, rejected_N = reward_2N[: len(pairs)], reward_2N[len(pairs) :]
        measured = {"mean_reward": (chosen_N + rejected_N) / 2}
        return Verdict(bradley_terry_loss(chosen_N, rejected_N), chosen_N - rejected_N, measured)


class DirectPreference:
    """A policy: the margin is that of its log-ratios to the reference, times β (DPO, arXiv:2305.18290). Read as `BradleyTerry` is.

    The reference does not change: what it says of a pair is computed once, when the pair is first judged, and kept in checkpoints:
    computed again among other pairs it would be rounded differently. That is two numbers for each pair.
    """

    metrics = ("rewards/accuracies", "rewards/margins")

    def __init__(self, policy: Policy, *, beta: float) -> None:
        self.trained = policy
        self.remarks = policy.remarks
        self.module: torch.nn.Module = policy.model
        self._beta = beta
        self._read = _once(partial(_apart, policy))
        self._reference: dict[bytes, tuple[float, float]] = {}  # log-probs of the chosen and of the rejected completion

    def lengths(self, pair: Pair) -> tuple[int, int]:
        """The prompt's tokens and each completion's. Raises RunFailure `empty_pair` if one has none."""
        prompt, chosen, rejected = map(len, self._read(pair))
        if not (prompt and chosen and rejected):
            raise RunFailure(
                "empty_pair",
                f"Read as one text, a row has {prompt} tokens in its prompt, {chosen} in the chosen completion and {rejected} in the rejected one, "
                f"and each needs one at least: “{pair.question:.200}”, “{pair.chosen.text:.200}”, “{pair.rejected.text:.200}”. "
                "Fill in the empty one, or leave the row out.",
            )
        return prompt + chosen, prompt + rejected

    def state(self) -> dict[str, Tensor] | None:
        """What the reference said of the N pairs that were judged: `pairs` (N, 16), their keys in bytes, and `logprobs` (N, 2), nats."""
        if not self._reference:
            return None
        keys = torch.frombuffer(bytearray(b"".join(self._reference)), dtype=torch.uint8)
        return {"pairs": keys.view(-1, 16), "logprobs": torch.tensor(list(self._reference.values()))}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on with what `state` gave."""
        keys, logprobs = state["pairs"].tolist(), state["logprobs"].tolist()
        self._reference = {
            bytes(key): (chosen, rejected) for key, (chosen, rejected) in zip(keys, logprobs, strict=True)
        }

    def judge(self, pairs: Sequence[Pair]) -> Verdict:
        """Sums of log-probs over completion tokens, at temperature 1; with gradient where it is enabled."""
        read = [self._read(pair) for pair in pairs]
        logprob_2N = self.trained.logprobs(self._batch(read), temperature=1.0).logprob_R_T.sum(-1)
        reference_2N = self._reference_2N(read)
        n = len(pairs)
        margin_N = preference_margin(
            logprob_2N[:n], logprob_2N[n:], reference_2N[:n], reference_2N[n:], beta=self._beta
        )
        reward_2N = self._beta * (logprob_2N - reference_2N)
        measured = {
            "rewards/chosen": reward_2N[:n],
            "rewards/rejected": reward_2N[n:],
            "logps/chosen": logprob_2N[:n],
            "logps/rejected": logprob_2N[n:],
        }
        return Verdict(dpo_loss(margin_N), margin_N, measured)

    def _batch(self, read: Sequence[Tokens]) -> TokenBatch:
        prompts = [one.prompt for one in read]
        completions = [one.chosen for one in read] + [one.rejected for one in read]
        return TokenBatch.of([*prompts, *prompts], completions, self.trained.device)

    def _reference_2N(self, read: Sequence[Tokens]) -> Tensor:
        """Of the chosen completions, then of the rejected ones; those that are not known yet are computed together."""
        keys = [one.key for one in read]
        new = [place for place, key in enumerate(keys) if key not in self._reference]
        if new:
            batch = self._batch([read[place] for place in new])
            logprob_2N = self.trained.reference_logprobs(batch, temperature=1.0).logprob_R_T.sum(-1).tolist()
            for place, chosen, rejected in zip(new, logprob_2N[: len(new)], logprob_2N[len(new) :], strict=True):
                self._reference[keys[place]] = chosen, rejected
        known_N_2 = torch.tensor([self._reference[key] for key in keys], device=self.trained.device)
        return known_N_2.T.flatten()


Objective = BradleyTerry | DirectPreference
"""A model, and how it is to prefer."""
