"""Format: tags in their order, each once, and nothing outside them."""

from collections.abc import Sequence

from worker.rewards.completion import Completion


def format_score(completion: Completion, *, tags: Sequence[str]) -> float:
    """1 if the text is <a>…</a><b>…</b> for the tags a, b, … in order, with only white space outside them; else 0."""
    text = completion.text
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    if any(text.count(mark) != 1 for mark in marks):
        return 0.0
    end = 0
    for place, mark in enumerate(marks):
        start = text.find(mark, end)
        is_opening = place % 2 == 0
        if start < 0 or (is_opening and text[end:start].strip()):
            return 0.0
        end = start + len(mark)
    return 0.0 if text[end:].strip() else 1.0
