"""Texts that end a completion, looked for in what is new of it."""

from collections.abc import Sequence

from worker.policy.policy import Policy


class StopTexts:
    """Finds where a completion has one of these texts."""

    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        self._policy, self._texts = policy, texts
        self._unseen = set(policy.tokenizer.all_special_ids)  # `decode` leaves them out
        # Every other token writes at least a byte, also where a character takes several.
        self._window = max((len(text.encode()) for text in texts), default=0)

    def end_of(self, ids: Sequence[int], looked: int) -> int | None:
        """After how many tokens the completion has one of the texts; None where it has none. The first `looked` have none."""
        if not self._texts:
            return None
        begin, visible = looked, 0
        while begin and visible <= self._window:
            begin -= 1
            visible += ids[begin] not in self._unseen
        if not self._in(ids[begin:]):
            return None
        return next((length for length in range(looked + 1, len(ids) + 1) if self._in(ids[:length])), None)

    def _in(self, ids: Sequence[int]) -> bool:
        decoded = self._policy.decode(list(ids))
        return any(text in decoded for text in self._texts)
