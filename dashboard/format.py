"""Numbers, times and names as people read them. NaN, missing and zero are three different texts."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from backend.contract.records import REWARD_STEPS, Run
from dashboard.text import unturned

MISSING = "–"
NOT_FINITE = "NaN"
REWARD = f"Reward, last {REWARD_STEPS}"
REWARD_HELP = f"The mean of the last {REWARD_STEPS} steps that logged it."
# Within words and after them punctuation stays as it is, since nothing reads it as markup: Streamlit makes
# names for screen readers from labels as they are written.
_MARKUP = re.compile(r"((?<![A-Za-z])[-.,')]|(?<![A-Za-z ])\(|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[!-&*+/:-@\[-^`{-~])")
# Escaping does not stop Streamlit from linking bare addresses and from turning -> into an arrow; an invisible joiner does.
_REWRITTEN = re.compile(
    r"(?<=http:)(?=/)|(?<=https:)(?=/)|(?<=www)(?=\.)|(?<=@)|(?<=-)(?=[->])|(?<=<)(?=-)|(?<=[<>~])(?==)", re.IGNORECASE
)
_JOINER = "\u2060"


def plain(text: str) -> str:
    """The text with all that could be markup escaped, on one line, control characters as signs: for Streamlit's labels, which interpret Markdown."""
    return _MARKUP.sub(r"\\\1", _REWRITTEN.sub(_JOINER, unturned(" ".join(text.split()))))


def number(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.832, 12,800, 2e-4; None is missing."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return NOT_FINITE if math.isnan(value) else ("−∞" if value < 0 else "∞")
    if value == 0:
        return "0"
    size = float(f"{float(f'{abs(value):.12g}'):.3g}")  # sums of the same numbers differ in the last digits
    sign = "−" if value < 0 else ""
    if size < 1e-3 or size >= 1e9:
        return sign + scientific(abs(value))
    decimals = max(0, 2 - math.floor(math.log10(size)))
    return f"{sign}{size:,.{decimals}f}"


def scientific(value: float) -> str:
    """Mantissa and exponent without padding, as people write learning rates: 2e-4, 1.5e-5."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def signed(value: float | None) -> str:
    """A number that always shows its sign: +0.77, −1.29; zero has none."""
    text = number(value)
    return f"+{text}" if value is not None and value > 0 else text


def reading(values: Mapping[str, float | None], name: str) -> str:
    """A metric of a summary: missing where nothing was reported, NaN where what was reported was not finite."""
    return number(math.nan if name in values and values[name] is None else values.get(name))


def recent_reward(run: Run) -> str:
    """The mean reward of the last steps; NaN if it was not finite in any of them."""
    return reading(run.summary, "reward") if run.recent_reward is None else number(run.recent_reward)


def improvement(values: Mapping[str, float | None], name: str) -> str:
    """A share in a summary, from the first evaluation to the latest: 52 % → 98 %; 52 % while there is one."""
    latest, first = percent(values.get(name)), f"{name}:first"
    return f"{percent(values[first])} → {latest}" if first in values else latest


def count(value: int | None) -> str:
    """A whole number, exact, thousands separated."""
    return MISSING if value is None else f"{value:,}".replace("-", "−")


def counted(value: int, noun: str, plural: str = "") -> str:
    """A count with its noun: 1 worker, 2 workers, 2 processes."""
    return f"{count(value)} {noun}" if value == 1 else f"{count(value)} {plural or f'{noun}s'}"


def percent(share: float | None) -> str:
    """A share as a percentage without decimals, except that a little is never shown as nothing or as everything."""
    if share is None or not math.isfinite(share):
        return number(share)
    if 0 < share < 0.01:
        return "< 1 %"
    if -0.01 < share < 0:
        return "> −1 %"
    if 0.99 < share < 1:
        return "> 99 %"
    return f"{'−' if share < 0 else ''}{abs(share) * 100:.0f} %"


def size(value: float | None) -> str:
    """Bytes in the binary unit that fits: 14 MiB, 1.3 GiB."""
    if value is None:
        return MISSING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000 or unit == "GiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """A span of time in its two largest units: 0.4 s, 41 s, 2 m 14 s, 1 h 05 m, 3 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 1:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit: just now, 2 m ago, 3 h ago, 5 d ago."""
    if moment is None:
        return MISSING
    seconds = ((now or datetime.now(UTC)) - aware(moment)).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now" if seconds < 10 else f"{int(seconds)} s ago"


def absolute(moment: datetime | None, zone: tzinfo = UTC) -> str:
    """The moment in a zone, to the second, with the zone's name."""
    return MISSING if moment is None else f"{aware(moment).astimezone(zone):%Y-%m-%d %H:%M:%S} {zone}"


def aware(moment: datetime) -> datetime:
    """The moment with a zone; the backend's times are UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def model_name(source: str) -> str:
    """A model's source, short enough for a list: tiny-arithmetic, Qwen2.5-0.5B-Instruct, run 3 @ 40."""
    if source.startswith("run:"):
        run, _, step = source.removeprefix("run:").partition("@")
        return f"run {run} @ {step}"
    return source.partition(":")[2].split("/")[-1] or source.split("/")[-1]
