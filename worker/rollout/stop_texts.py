"""Texts that end a completion, looked for in what is new of it."""

from collections.abc import Sequence
from functools import cache
from typing import cast

from worker.policy.policy import Policy


class StopTexts:
    """Finds where a completion has one of these texts."""

    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        self._policy, self._texts = policy, texts
        # Some vocabularies have tokens of one byte. Where those in a row are not valid UTF-8, the tokenizer writes “�” for each, also for
        # those that were readable before.
        names = [f"<0x{byte:02X}>" for byte in range(256)] if texts else []
        tokens = cast(list[int | None], policy.tokenizer.convert_tokens_to_ids(names))
        self._bytes = set(tokens) - {None, policy.tokenizer.unk_token_id}
        within = self._bytes.intersection(tokens[0x80:0xC0])  # a character begins with another byte
        # Each token that begins something writes a byte at least; some, as a space, only behind another. Special ones and those that
        # only the model has write nothing.
        letter = policy.tokenizer.encode("a", add_special_tokens=False)
        alone = policy.decode(letter)
        self._begins = cache(lambda token: token not in within and policy.decode([*letter, token]) != alone)
        self._window = max((len(text.encode()) for text in texts), default=0)

    def end_of(self, ids: Sequence[int], looked: int) -> int | None:
        """After how many tokens the completion first has one of the texts; None if it has none.

        `ids` are all its tokens so far, of which the first `looked` are known to have none.
        """
        if not self._texts:
            return None
        begin, begun = looked, 0
        while begin and begun <= self._window:
            begin -= 1
            begun += self._begins(ids[begin])
        # A text that was there before the last token is still there, unless a byte token came behind it.
        ends = [end for end in range(looked + 1, len(ids)) if ids[end] in self._bytes]
        if not any(self._in(ids[begin:end]) for end in (*ends, len(ids))):
            return None
        return next((length for length in range(looked + 1, len(ids) + 1) if self._in(ids[:length])), None)

    def _in(self, ids: Sequence[int]) -> bool:
        decoded = self._policy.decode(list(ids))
        return any(text in decoded for text in self._texts)
