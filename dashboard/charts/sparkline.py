"""The course of a metric as a small picture without axes."""

from collections.abc import Sequence

WIDTH, HEIGHT = 96, 20
_INK = "#3a86d6"


def sparkline(values: Sequence[float | None], within: tuple[float, float] | None = None) -> str:
    """An SVG with a line from the first value to the last; a value that was not finite leaves a gap. Empty below two values.

    `within` are the values at its bottom and its top, where several are to be compared; else its own lowest and highest.
    """
    known = [(x, value) for x, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    low, high = within or (min(value for _, value in known), max(value for _, value in known))
    across, up = (WIDTH - 4) / (len(values) - 1), (HEIGHT - 4) / (high - low) if high > low else 0.0
    points = {x: (2 + x * across, HEIGHT - 2 - (value - low) * up) for x, value in known}
    path = "".join(f"{'L' if x - 1 in points else 'M'}{left:.1f} {top:.1f}" for x, (left, top) in points.items())
    left, top = points[known[-1][0]]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f'<path d="{path}" fill="none" stroke="{_INK}" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round"/>'
        f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2" fill="{_INK}"/></svg>'
    )
