"""Text that people did not write, or not for this page: shown as it is, never as markup."""

import html
import re
import unicodedata

import streamlit as st

_BIDI = {
    "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO",
    "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\u200e": "LRM", "\u200f": "RLM",
}  # fmt: skip
_NOT_INK = re.compile("[^!-~]")  # most letters of most texts are ASCII, and those need no second look
_NOT_PLAIN = re.compile("[^ -~\n\t\u00a0]")
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SPACES = {" ": "·", "\u00a0": "⍽", "\t": "⇥\t", "\n": "⏎\n", "\r": "␍", "\u2028": "⟦LS⟧", "\u2029": "⟦PS⟧"}


def show_text(text: str, *, visible: bool = False, height: int | None = None) -> None:
    """A prompt, a completion, an error: monospace and wrapped; `visible` gives whitespace and control characters signs."""
    shown = (marked if visible else unturned)(text)
    st.code(shown, language=None, wrap_lines=True, height=height or "content")


def in_html(text: str, *, visible: bool = False) -> str:
    """The text for the inside of an element of ours, which keeps white space and is isolated in its direction.

    Line breaks are written as references: st.html takes the spaces off lines that hold nothing else.
    """
    shown = html.escape((marked if visible else unturned)(text))
    return shown.replace("\n", "&#10;").replace("\t", "&#9;")


def marked(text: str) -> str:
    """The text with a sign for each space, line break and control character."""
    return _NOT_INK.sub(lambda found: _SPACES.get(found[0]) or _sign(found[0]), text)


def unturned(text: str) -> str:
    """The text without the power to reorder or to command: a sign for each control character that is not plain space."""
    return _NOT_PLAIN.sub(lambda found: _sign(found[0]), text)


def one_line(text: str) -> str:
    """The text for a table cell: line breaks and control characters become signs."""
    return unturned(text.replace("\r\n", "\n")).replace("\n", "⏎").replace("\t", "⇥")


def _sign(character: str) -> str:
    code = ord(character)
    if character in _BIDI:
        return f"⟦{_BIDI[character]}⟧"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    not_a_character = code & 0xFFFE == 0xFFFE  # the last two of each plane, which XML does not take
    if not_a_character or (unicodedata.category(character) in _INVISIBLE and character != "\u200d"):
        return f"⟦U+{code:04X}⟧"
    return character
