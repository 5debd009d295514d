"""What a completion says: its text in its frame, folded or whole, and a conversation turn by turn. Every letter from elsewhere is escaped."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import streamlit as st

from backend.contract.conversation import Turn, stretches
from backend.contract.groups import CompletionData
from dashboard.format import count, counted, plain, signed
from dashboard.text import in_html, unturned

FOLDED_LINES = 16  # a text that needs more of them is folded in the middle: how it ends is what was scored
TURN_LINES = 6  # the same of one turn
FIRST_TURNS, LAST_TURNS = 2, 4  # of a longer conversation those between are folded
UNTRAINED = "not trained on"


@dataclass(frozen=True)
class TextLook:
    """How texts are shown: with signs for white space, in full, how many letters fit into a line, and rendered as Markdown."""

    visible: bool = False
    full: bool = False
    columns: int = 44
    markdown: bool = False


def text_html(completion: CompletionData, shown: TextLook) -> str:
    """A completion's text in its frame."""
    if completion.turns:
        return f'<div class="model-text turns">{_turns(completion, shown)}</div>'
    return f'<div class="model-text">{folded_text(completion.text, shown)}</div>'


def _turns(completion: CompletionData, shown: TextLook) -> str:
    each = [_turn(turn, text, shown) for turn, text in stretches(completion.text, completion.turns)]
    if shown.full or len(each) <= FIRST_TURNS + LAST_TURNS + 1:
        return "".join(each)
    between = each[FIRST_TURNS:-LAST_TURNS]
    middle = _fold(f"⋯ {counted(len(between), 'more turn')} ⋯", "".join(between))
    return "".join((*each[:FIRST_TURNS], middle, *each[-LAST_TURNS:]))


def _turn(turn: Turn, text: str, shown: TextLook) -> str:
    look = "".join(f" {name}" for name, there in (("untrained", not turn.trained), ("failed", turn.failed)) if there)
    said = folded_text(text, shown, TURN_LINES)
    return f'<div class="turn{look}"><div class="who">{in_html(" · ".join(_who(turn)))}</div>{said}</div>'


def _speaker(turn: Turn) -> str:
    says = turn.role
    if turn.tool is not None:
        says += f" calls {turn.tool}" if turn.role == "assistant" else f" {turn.tool}"
    return f"{says} · error" if turn.failed else says


def _who(turn: Turn) -> Iterator[str]:
    """Who speaks, and what is known of it."""
    yield _speaker(turn)
    if turn.reward is not None:
        yield f"reward {signed(turn.reward)}"
    if turn.policy_version is not None:
        yield f"policy version {turn.policy_version}"
    if not turn.trained:
        yield UNTRAINED


def as_text(completion: CompletionData) -> str:
    """All that is said, and no number; in a conversation with a line above each turn that says who speaks."""
    if not completion.turns:
        return completion.text
    return "\n".join(f"── {_speaker(turn)}\n{text}" for turn, text in stretches(completion.text, completion.turns))


def folded_text(text: str, shown: TextLook, most: int = FOLDED_LINES) -> str:
    """The text; one of more lines than `most` with its middle folded away, to be opened by a click."""
    lines = sum(max(1, ceil(len(line) / shown.columns)) for line in text.split("\n"))
    if shown.full or lines <= most:
        return in_html(text, visible=shown.visible)
    half = most // 2
    start, end = _cut(text, half, shown.columns), len(text) - _cut(text[::-1], half, shown.columns)
    begins, middle, ends = (
        in_html(part, visible=shown.visible) for part in (text[:start], text[start:end], text[end:])
    )
    return f"{begins}{_fold(f'⋯ {count(end - start)} more characters ⋯', middle)}{ends}"


def _fold(label: str, html: str) -> str:
    summary = f'<summary><span class="more">{label}</span><span class="less">fold</span></summary>'
    return f"<details>{summary}{html}</details>"


def _cut(text: str, lines: int, columns: int) -> int:
    """How many letters fill the given number of lines, up to a space or a line's end if one is near."""
    place = 0
    for line in text.split("\n"):
        taken = max(1, ceil(len(line) / columns))
        if taken > lines:
            place += lines * columns
            break
        lines -= taken
        place += len(line) + 1
    place = min(place, len(text))
    near = max(text.rfind(" ", max(0, place - 20), place), text.rfind("\n", max(0, place - 20), place))
    return near + 1 if near >= 0 else place


# Where an invisible joiner takes its meaning from what would load, lead elsewhere, be HTML, or be a sign of Streamlit's own. In
# code, too: what is code to this program and none to the browser's would be a way in.
_HARM = re.compile(
    r"(?<=\])(?=[(\[:])"
    r"|(?<=!)(?=\[)|(?<=<)(?=[a-z/!?-])|(?<=&)(?=#?\w+;)|(?<=ht)(?=tp)|(?<=w)(?=ww)|(?<=@)|(?<=:)(?=[\w/+-]+[:\[])"
    r"|(?<=\\)(?=html|href|url|includegraphics)|(?<=-)(?=>|-\w)|(?<=[<>~])(?==)",
    re.IGNORECASE,
)
# As most models write mathematics.
_INLINE = re.compile(r"(?<!\\)\\\(((?:(?!\\[()]).)+)\\\)")
_BLOCK = re.compile(r"(?<!\\)\\\[((?:(?!(?<!\\)\\[\[\]]).)+)(?<!\\)\\\]", re.DOTALL)
RENDERED = 20_000  # characters of a text; more of them would keep a browser busy


def draw_rendered(completion: CompletionData, key: str, *, full: bool) -> None:
    """A completion's text with its Markdown and mathematics rendered, without images, links and HTML."""
    with st.container(key=f"rendered-{'full' if full else 'short'}-{key}"):
        for turn, text in (
            stretches(completion.text, completion.turns) if completion.turns else [(None, completion.text)]
        ):
            if turn is not None:
                st.caption(plain(" · ".join(_who(turn))))
            calm = _HARM.sub("\u2060", unturned(text[:RENDERED]))
            st.markdown(_BLOCK.sub(r"\n$$\n\1\n$$\n", _INLINE.sub(r"$\1$", calm)))
            if len(text) > RENDERED:
                st.caption(
                    f"{count(len(text) - RENDERED)} more characters are not rendered: switch Markdown off to read them."
                )
