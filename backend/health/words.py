"""Numbers in sentences."""


def percent(share: float) -> str:
    """62 %; a little is never shown as nothing."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def figure(value: float) -> str:
    """Three significant digits: 0.0412, 1.62, 2,310."""
    size = abs(value)
    return f"{value:,.0f}" if 1000 <= size < 1e15 else f"{value:.3g}"


def rate(value: float) -> str:
    """A learning rate as people write it: 5e-5, 0.001."""
    return f"{value:.3g}".replace("e-0", "e-")


def seconds(value: float) -> str:
    """A span of time: 0.4 s, 41 s, 12 min, 3.2 h."""
    if value < 90:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def span(from_step: int, to_step: int) -> str:
    """Step 7; steps 31 to 40."""
    return f"step {from_step}" if from_step == to_step else f"steps {from_step} to {to_step}"
