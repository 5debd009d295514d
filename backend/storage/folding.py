"""Texts as a search compares them: without capitals, and composed in one way, in every script.

NFKC and full case folding (Unicode 3.13, D146): é is e with an accent, ß is ss, ﬁ is fi, ① is 1, a wide space a space.
"""

from unicodedata import normalize


def folded(text: str) -> str:
    """The text in its compared form; two texts that people take for one are equal in it."""
    return text.lower() if text.isascii() else normalize("NFKC", normalize("NFKC", text).casefold())


def kept_fold(text: str) -> str | None:
    """What a row keeps beside its text; None where only A to Z would change, which SQLite's LIKE and index fold by themselves."""
    if text.isascii():
        return None
    found = folded(text)
    return None if found.encode() == text.encode().lower() else found
