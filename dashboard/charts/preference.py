"""The charts of a run on preference pairs: of a reward model, or of DPO."""

from collections.abc import Sequence
from dataclasses import replace

from dashboard.charts.meaning import meaning
from dashboard.charts.palette import CATEGORICAL
from dashboard.charts.training import Panel, held_out_success, single

LOSS_HELP = (
    "−log σ(margin), the mean over the step's pairs. It begins near log 2 = 0.69, a coin's toss. Healthy: it falls, and the loss of "
    "held-out pairs with it; where that one rises again, the pairs are being learned by heart."
)


def pair_panels(kind: str, names: Sequence[str]) -> list[Panel]:
    """The charts of a run of the kind `reward_model` or `dpo` that logs the metrics `names`."""
    loss = replace(single("loss"), help=LOSS_HELP)
    own = _of_dpo(names) if kind == "dpo" else [single("accuracy"), single("margin", from_zero=True)]
    held_out = [single(f"eval/{name}", dots=True) for name in ("accuracy", "margin", "loss")]
    drift = [] if kind == "dpo" else [single("mean_reward")]
    rest = [single(name, from_zero=True) for name in ("grad_norm", "learning_rate", "step_time")]
    rest += [single("peak_memory", from_zero=True)] if "peak_memory" in names else []  # earlier runs did not log it
    return [replace(panel, opens_groups=False) for panel in (loss, *own, *held_out, *drift, *rest)]


def _of_dpo(names: Sequence[str]) -> list[Panel]:
    return [
        held_out_success(names),
        single("rewards/accuracies"),
        single("rewards/margins", from_zero=True),
        _both("rewards", "Moved from the reference", from_zero=True),
        _both("logps", "Log-probs of both completions"),
    ]


def _both(metric: str, title: str, *, from_zero: bool = False) -> Panel:
    """Chosen and rejected in one chart."""
    sides = ("chosen", "rejected")
    return Panel(
        metric,
        title,
        meaning(f"{metric}/chosen").help,
        {f"{metric}/{side}": side for side in sides},
        dict(zip(sides, CATEGORICAL, strict=False)),
        from_zero=from_zero,
        unit=meaning(f"{metric}/chosen").unit,
    )
