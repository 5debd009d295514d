"""What one step sampled: P prompts, and G completions of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.rollout.engine import Completion
from worker.tasks.items import Item


@dataclass(frozen=True)
class Rollout:
    """R = P × G completions; those of prompt p begin at p × G."""

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
