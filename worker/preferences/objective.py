"""What is learned from pairs: by which margin a model prefers the chosen completion, and the loss of that margin."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.algorithms.preference import bradley_terry_loss, dpo_loss, preference_margin
from worker.errors import RunFailure
from worker.policy.classifier import RewardModel
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.preferences.pairs import Pair, Response


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

    def lengths(self, pair: Pair) -> tuple[int, int]:
        """As the model reads them: prompt, completion, end."""
        return len(self._ids(pair, pair.chosen)), len(self._ids(pair, pair.rejected))

    def judge(self, pairs: Sequence[Pair]) -> Verdict:
        """Both completions of every pair in one pass, the chosen ones first; with gradient where it is enabled."""
        chosen, rejected = ([self._ids(p, r) for p, r in side] for side in _sides(pairs))
        reward_2N = self.trained.rewards_N([*chosen, *rejected])
        chosen_N, rejected_N = reward_2N[: len(pairs)], reward_2N[len(pairs) :]
        measured = {"mean_reward": (chosen_N + rejected_N) / 2}
        return Verdict(bradley_terry_loss(chosen_N, rejected_N), chosen_N - rejected_N, measured)

    def _ids(self, pair: Pair, response: Response) -> list[int]:
        return self.trained.token_ids(pair.question if pair.messages is None else pair.messages, response.text)


class DirectPreference:
    """A policy: the margin is that of its log-ratios to the reference, times β (DPO, arXiv:2305.18290). Read as `BradleyTerry` is."""

    metrics = ("rewards/accuracies", "rewards/margins")

    def __init__(self, policy: Policy, *, beta: float) -> None:
        self.trained = policy
        self.remarks = policy.remarks
        self.module: torch.nn.Module = policy.model
        self._beta = beta

    def lengths(self, pair: Pair) -> tuple[int, int]:
        """The prompt's tokens and each completion's. Raises RunFailure `empty_pair` if one has none."""
        read = self.trained.encode(pair)[1], self._ids(pair.chosen), self._ids(pair.rejected)
        prompt, chosen, rejected = map(len, read)
        if not (prompt and chosen and rejected):
            raise RunFailure(
                "empty_pair",
                f"A row has {prompt} tokens in its prompt, {chosen} in the chosen completion and {rejected} in the rejected one, "
                f"and each needs one at least: “{pair.question:.200}”, “{pair.chosen.text:.200}”, “{pair.rejected.text:.200}”. "
                "Fill in the empty one, or leave the row out.",
            )
        return prompt + chosen, prompt + rejected

    def judge(self, pairs: Sequence[Pair]) -> Verdict:
        """Sums of log-probs over completion tokens, at temperature 1; with gradient where it is enabled."""
        prompts = [self.trained.encode(pair)[1] for pair in pairs]
        completions = [self._ids(response) for side in _sides(pairs) for _, response in side]
        batch = TokenBatch.of([*prompts, *prompts], completions, self.trained.device)
        logprob_2N = self.trained.logprobs(batch, temperature=1.0).logprob_R_T.sum(-1)
        reference_2N = self.trained.reference_logprobs(batch, temperature=1.0).logprob_R_T.sum(-1)
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

    def _ids(self, response: Response) -> list[int]:
        if response.ids is not None:
            return list(response.ids)
        end = self.trained.tokenizer.eos_token_id
        ids = list(self.trained.tokenizer(response.text, add_special_tokens=False)["input_ids"])
        return ids if end is None else [*ids, int(end)]


Objective = BradleyTerry | DirectPreference
"""A model, and how it is to prefer."""


def _sides(pairs: Sequence[Pair]) -> tuple[list[tuple[Pair, Response]], list[tuple[Pair, Response]]]:
    return [(pair, pair.chosen) for pair in pairs], [(pair, pair.rejected) for pair in pairs]
