"""What every sampling engine does: a group of completions for each prompt, which together are a rollout."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from backend.contract.algorithm import Logprobs
from backend.contract.groups import FinishReason
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.tasks.items import Item

OnProgress = Callable[[int], None]


@dataclass
class Completion:
    """One sampled completion: token ids with the ending one, and the log-probability of each when it was drawn."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "length"
    text: str = ""
    supports: list[list[int]] = field(default_factory=list)  # of each token: those that could be drawn, where kept


@dataclass(frozen=True)
class Request:
    """What is to be drawn: G completions for each of P prompts."""

    prompts_P: Sequence[Sequence[int]]
    group_size: int
    decoding: Decoding
    draws: Draws | None  # None: the likeliest token is taken (greedy)
    logprobs: Logprobs = "tempered"
    """Tempered and plain are over all tokens, at the sampling temperature or at 1; renormalized is over those that top-k and
    top-p left, which are kept with the completion."""
    first_group: int = 0
    """The number of the first group among the step's, which the draws depend on."""

    @property
    def rows(self) -> int:
        """P × G."""
        return len(self.prompts_P) * self.group_size

    @property
    def longest_row(self) -> int:
        """Tokens of the longest prompt, and as many as may follow it."""
        return max(map(len, self.prompts_P)) + self.decoding.max_new_tokens


@dataclass(frozen=True)
class Rollout:
    """What one step sampled: R = P × G completions; those of prompt p begin at p × G."""

    items_P: Sequence[Item]
    prompt_texts_P: Sequence[str]  # rendered: what the model read
    prompt_ids_P: Sequence[list[int]]
    group_size: int
    completions_R: Sequence[Completion]

    @property
    def rows(self) -> int:
        """R."""
        return len(self.completions_R)

    def prompt_of(self, row: int) -> list[int]:
        """The prompt's token ids of a completion."""
        return self.prompt_ids_P[row // self.group_size]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts, each counted once."""
        return sum(map(len, self.prompt_ids_P))

    @property
    def token_count(self) -> int:
        """Sampled tokens in all."""
        return sum(len(completion.ids) for completion in self.completions_R)


OnGroup = Callable[[int, list[Completion]], None]


def quiet(*_: object) -> None:
    """A callback for nobody: the default wherever somebody may listen, or may end what goes on."""


class Engine(Protocol):
    """Draws completions from the policy as its weights are at the call."""

    def sample(
        self, request: Request, *, on_progress: OnProgress = quiet, on_group: OnGroup = quiet
    ) -> list[Completion]:
        """The completions in order: those of prompt p begin at p × G.

        `on_progress` gets the number of finished completions after every token, and may raise to end the rollout; `on_group`
        gets a prompt's place among the P and its completions, with their texts, as soon as all of them have ended. Raises
        RunFailure `prompt_too_long`.
        """

    def make_room(self) -> bool:
        """Give back what is held between rollouts and can be made again; False where nothing was."""


def check_lengths(policy: Policy, request: Request) -> None:
    """Raises RunFailure `empty_prompt` or `prompt_too_long` before anything is sampled."""
    longest, more = max(map(len, request.prompts_P)), request.decoding.max_new_tokens
    if not all(map(len, request.prompts_P)):
        raise RunFailure("empty_prompt", "A prompt has no tokens. Give it some text, or a chat template.")
    if policy.context is not None and longest + more > policy.context:
        raise RunFailure(
            "prompt_too_long",
            f"A prompt of {longest} tokens and {more} new ones exceed the model's context of "
            f"{policy.context}. Lower sampling.max_new_tokens to at most {max(0, policy.context - longest)}, or shorten the prompt.",
        )


@dataclass
class Row:
    """Which completion is written, of which of the P prompts, and by which numbers it is drawn."""

    completion: Completion
    prompt: int
    group: int  # among the step's
    index: int  # within the group


def rows_of(request: Request) -> list[Row]:
    """A row for each completion, those of a prompt one after the other."""
    return [
        Row(Completion(), p, request.first_group + p, g)
        for p in range(len(request.prompts_P))
        for g in range(request.group_size)
    ]


def row_keys(draws: Draws, rows: Sequence[Row]) -> Tensor:
    """The key of each row's random numbers, (R,)."""
    groups, indices = ([getattr(row, name) for row in rows] for name in ("group", "index"))
    return draws.keys(torch.tensor(groups), torch.tensor(indices))


def seed_of(draws: Draws, group: int) -> int:
    """A seed in [0, 2**31) for a group of the rollout, another one in each step and stream."""
    key = f"{draws.seed} {draws.stream} {draws.step} {group}"
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest()) >> 1


def check_measures_what_it_draws(decoding: Decoding, logprobs: Logprobs) -> None:
    """Raises ValueError where other log-probs are wanted. Configurations that ask for them with such an engine are refused."""
    truncates = decoding.top_k or decoding.top_p < 1
    if truncates or logprobs == "renormalized" or (logprobs == "plain" and decoding.temperature != 1):
        raise ValueError(f"{logprobs} log-probs are not of the distribution that {decoding} draws from")
