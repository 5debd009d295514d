"""A difference as HTML: both texts side by side, what only one of them says in the colour of its advantage."""

from collections.abc import Sequence

from dashboard.components.model_text import in_html
from dashboard.difference.words import Difference, Run
from dashboard.format import count, counted

LONG = 80  # pieces; a longer stretch that both share is folded
KEPT = 30  # pieces that stay in sight on the side of a difference


def side_html(runs: Sequence[Run], *, colour: str, visible: bool, full: bool) -> str:
    """One side: its whole text, in a box of its own direction."""
    last = len(runs) - 1
    parts = [
        _shared(run, first=place == 0, last=place == last, visible=visible, full=full)
        if run.shared
        else _differing(run, visible=visible)
        for place, run in enumerate(runs)
    ]
    return f'<div class="model-text difference" style="--tint:{colour}">{"".join(parts)}</div>'


def in_words(found: Difference, unit: str) -> str:
    """How much the two share, in a sentence; and what was not looked into."""
    if all(run.shared for run in (*found.left, *found.right)):
        return "Both say exactly the same."
    share = int(found.shared * 100)  # not rounded up: 100 % is said of equal texts alone
    sentence = f"They share {share} % of their {unit}s. What only one of them says is marked."
    if found.unaligned:
        sentence += f" {counted(found.unaligned, unit)} in stretches too unlike to align are marked as a whole."
    return sentence


def _differing(run: Run, *, visible: bool) -> str:
    """Marked; where it is nothing but white space, that gets signs, or nobody would see it."""
    return f"<mark>{in_html(run.text, visible=visible or run.text.isspace())}</mark>"


def _shared(run: Run, *, first: bool, last: bool, visible: bool, full: bool) -> str:
    if full or len(run.pieces) <= LONG:
        return in_html(run.text, visible=visible)
    start, end = 0 if first else KEPT, len(run.pieces) - (0 if last else KEPT)
    begins, middle, ends = (
        in_html("".join(part), visible=visible)
        for part in (run.pieces[:start], run.pieces[start:end], run.pieces[end:])
    )
    letters = count(sum(len(piece) for piece in run.pieces[start:end]))
    summary = (
        f'<summary><span class="more">⋯ {letters} equal characters ⋯</span><span class="less">fold</span></summary>'
    )
    return f"{begins}<details>{summary}{middle}</details>{ends}"
