"""The choice of an estimator with its own settings, as the Playground and the what-if offer it."""

from collections.abc import Sequence

from streamlit.delta_generator import DeltaGenerator

from backend.contract.advantage import Advantage, BatchStd, GroupZscore, NormalizeThenSum
from dashboard.components.address_controls import chosen, last_good, typed
from dashboard.components.algorithm_parts import ADVANTAGE, read_settings
from dashboard.form.widgets import in_words
from dashboard.form.written import show_number

# What works on rewards alone; gae needs the value of each token.
ESTIMATORS = (
    *("group_zscore", "group_center", "softmax", "leave_one_out", "batch_std", "batch_baseline", "none"),
    *("normalize_then_sum", "best_worst"),
)
STD = "population divides by G (as numpy.std), sample by G − 1 (as torch.std, and in TRL)."


def choose_estimator(own: Advantage, *, prefix: str = "", options: Sequence[str] = ESTIMATORS, help: str) -> str:
    """The estimator's kind; `prefix` stands before the names in the address."""
    return chosen("Estimator", f"{prefix}estimator", own.kind, options, words=in_words, help=help)


def settings_of(
    kind: str, own: Advantage, of_std: DeltaGenerator, of_eps: DeltaGenerator, *, prefix: str = ""
) -> tuple[Advantage, str | None]:
    """The estimator with its own settings, in the first place that is free, and what is wrong with what was typed.

    Where the kind is that of `own`, the settings start as there.
    """
    defaults = own if kind == own.kind else ADVANTAGE.validate_python({"kind": kind})
    settings = {"kind": kind}
    if isinstance(defaults, GroupZscore):
        with of_std:
            settings["std"] = chosen("Std", f"{prefix}std", defaults.std, ("population", "sample"), words=str, help=STD)
    if isinstance(defaults, GroupZscore | BatchStd | NormalizeThenSum):
        with of_eps if isinstance(defaults, GroupZscore) else of_std:
            written = show_number(defaults.eps)
            settings["eps"] = typed("ε", f"{prefix}eps", written, help="Added to the std: never divides by 0.")
    return last_good(f"{prefix}advantage-{kind}", lambda: read_settings(ADVANTAGE, settings), lambda: defaults)
