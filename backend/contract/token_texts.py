"""What each token adds to a text."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Protocol


class Decodes(Protocol):
    """A tokenizer, as far as it is needed here."""

    def decode(self, token_ids: list[int], /) -> object:
        """The text of these tokens, special ones included."""


_INCOMPLETE = "\ufffd"


class TokenTexts:
    """Tells the texts of tokens. Its tokenizer is a copy: it is asked in one thread while another one samples."""

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = deepcopy(tokenizer)
        self._alone: dict[int, str] = {}  # at most one for each token of the vocabulary

    def of(self, ids: Sequence[int]) -> list[bytes]:
        """The UTF-8 bytes that each token adds to the text, ending tokens included.

        A character that several tokens make up together belongs to the last of them.
        """
        whole = self._decode(ids)
        for token in ids:
            if token not in self._alone:
                self._alone[token] = self._decode([token])
        texts = [self._alone[token] for token in ids]
        if "".join(texts) != whole:
            texts = list(self._completed(ids, texts))
        if "".join(texts) != whole:
            texts = list(self._in_context(ids))
        return [text.encode(errors="replace") for text in texts]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def _completed(self, ids: Sequence[int], texts: Sequence[str]) -> Iterator[str]:
        """Tokens that are not a text by themselves, read together with those after them until they are."""
        pending: list[int] = []
        for place, (token, text) in enumerate(zip(ids, texts, strict=True), start=1):
            if not pending and _INCOMPLETE not in text:
                yield text
                continue
            pending.append(token)
            together = self._decode(pending)
            if together.endswith(_INCOMPLETE) and place < len(ids):
                yield ""
            else:
                yield together
                pending = []

    def _in_context(self, ids: Sequence[int]) -> Iterator[str]:
        """Where a token's text depends on what is before it: what the text of it and of the last one before it has more than that one's."""
        context = begin = 0
        for end in range(1, len(ids) + 1):
            text = self._decode(ids[context:end])
            if text.endswith(_INCOMPLETE) and end < len(ids):
                yield ""
            else:
                yield text[len(self._decode(ids[context:begin])) :]
                context, begin = begin, end
