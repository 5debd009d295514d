"""The panels of a run: which metrics share a chart, and how each is drawn, for runs on tasks and on pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.contract.records import PHASES, Run, Series
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_figure, stacked_figure
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import CATEGORICAL, INK, reward_colours
from dashboard.charts.series import long_table, on_common_steps
from dashboard.stored import reward_names

OF_SOME_ALGORITHMS = ("loss/value_avg", "explained_variance", "rewards/margins", "rewards/accuracies")
LOSS_HELP = (
    "−log σ(margin), the mean over the step's pairs. It begins near log 2 = 0.69, the loss of a coin toss. Healthy: it falls, and the loss of "
    "held-out pairs with it; if that one rises again, the pairs are being memorised."
)


@dataclass(frozen=True)
class Panel:
    """One chart of the page: a title and a help in words, and the metrics it draws, each with its legend label."""

    key: str
    title: str
    help: str
    labels: Mapping[str, str]
    colours: Mapping[str, str] = field(default_factory=dict)  # of its labels; by default the categorical ones in order
    axis: str = "~g"
    from_zero: bool = False
    dots: bool = False
    stacked: bool = False
    opens_groups: bool = True  # a click on a step
    unit: str = ""
    exact: bool = False  # settings are not measured and so not smoothed


def panels(names: Sequence[str], rewards: Sequence[str]) -> list[Panel]:
    """The charts of a run that logs the metrics `names` and has the reward functions `rewards`."""
    dead = {"frac_reward_zero_std": "dead groups", "frac_unscored": "unscored"}
    dead |= {"frac_filtered": "sampled again"} if "frac_filtered" in names else {}
    clipped = {"clip_ratio/low_mean": "below 1 − ε", "clip_ratio/high_mean": "above 1 + ε"}
    return [
        single("reward"),
        Panel(
            "components",
            "Reward components",
            "The mean of each reward function before its weight. Healthy: they rise together; if one rises while another falls, "
            "the policy trades one for the other.",
            {f"rewards/{name}/mean": name for name in rewards},
            reward_colours(rewards),
            from_zero=True,
        ),
        held_out_success(names),
        single("group_reward_std", from_zero=True),
        _together("dead", "Dead groups and unscored completions", dead),
        single("kl", from_zero=True),
        single("entropy", from_zero=True),
        single("completions/mean_length"),
        single("completions/clipped_ratio", from_zero=True),
        _together("clip", "Clipped tokens", clipped),
        single("loss"),
        *(single(name) for name in OF_SOME_ALGORITHMS if name in names),
        single("grad_norm", from_zero=True),
        single("learning_rate", from_zero=True),
        Panel(
            "phases",
            "Time per phase",
            "The time of each step, divided into its phases. Sampling usually takes the most.",
            {name: word for phase, word in PHASES.items() if (name := f"time/{phase}") in names},
            stacked=True,
            unit="seconds",
        ),
        single("tokens_per_second", from_zero=True),
        *([single("peak_memory", from_zero=True)] if "peak_memory" in names else []),  # earlier runs did not log it
    ]


def panels_of(run: Run, names: Sequence[str]) -> list[Panel]:
    """The charts of a run that logs the metrics `names`, as its kind has them."""
    if run.kind in ("reward_model", "dpo"):
        return pair_panels(run.kind, names)
    return panels(names, reward_names(run.config))


def training_figure(
    panel: Panel,
    series: Mapping[str, Series],
    *,
    steps: int,
    weight: float,
    mark: int | None = None,
    zoom: tuple[int, int] | None = None,
) -> Figure:
    """One chart over the steps of the run, 0 to `steps`, or over the range `zoom`.

    `weight` smooths metrics that are logged at every step.
    """
    first, last = zoom or (0, max(steps, 1))
    table = long_table(series, panel.labels, 0.0 if panel.dots or panel.stacked or panel.exact else weight)
    look = Look(
        colours=tuple(panel.colours.items()) or tuple(zip(panel.labels.values(), CATEGORICAL, strict=False)),
        axis=panel.axis,
        x_domain=(first, last),
        from_zero=panel.from_zero,
        dots=panel.dots,
        pickable=panel.opens_groups and not panel.dots,  # an evaluation has no groups to open
        zoomable=True,
        mark=mark if mark is not None and first <= mark <= last else None,
    )
    if panel.stacked:
        order = {name: place for place, name in enumerate(panel.labels)}
        table = on_common_steps(table)
        return stacked_figure(look, table.assign(order=table["metric"].map(order).astype("float64")))
    return line_figure(look, table)


def single(name: str, *, from_zero: bool = False, dots: bool = False) -> Panel:
    """A chart of one metric."""
    about = meaning(name)
    return Panel(
        name,
        about.title,
        about.help,
        {name: about.title},
        {about.title: INK},
        about.axis,
        from_zero or about.axis == "~%",
        dots,
        unit=about.unit,
        exact=name == "learning_rate",
    )


def _together(key: str, title: str, labels: Mapping[str, str]) -> Panel:
    help = " ".join(f"{label.capitalize()}: {meaning(name).help}" for name, label in labels.items())
    return Panel(key, title, help, labels, axis="~%", from_zero=True)


def held_out_success(names: Sequence[str]) -> Panel:
    """The shares of held-out prompts with right answers."""
    passes = sorted((name for name in names if name.startswith("eval/") and "pass@" in name), key=_evaluation_order)
    return Panel(
        "held-out",
        "Held-out success",
        f"{meaning('eval/pass@1').help} pass@k needs one right answer among k samples: it shows how much sampling could still find. "
        "Greedy always takes the likeliest token.",
        {name: name.removeprefix("eval/").replace("greedy_pass", "greedy pass") for name in passes},
        axis="~%",
        dots=True,
    )


def _evaluation_order(name: str) -> tuple[bool, int]:
    """Sampled before greedy, pass@1 before pass@8."""
    return "greedy" in name, int(name.rpartition("@")[2]) if name.rpartition("@")[2].isdigit() else 0


def pair_panels(kind: str, names: Sequence[str]) -> list[Panel]:
    """The charts of a run of the kind `reward_model` or `dpo` that logs the metrics `names`."""
    loss = replace(single("loss"), help=LOSS_HELP)
    held_out = [single(f"eval/{name}", dots=True) for name in ("accuracy", "margin", "loss")]
    if kind == "dpo":
        margins = [single("rewards/accuracies"), single("rewards/margins", from_zero=True)]
        moved = _both("rewards", "Moved from the reference", from_zero=True)
        own = [held_out_success(names), *margins, moved, _both("logps", "Log-probs of both completions"), *held_out]
    else:
        own = [single("accuracy"), single("margin", from_zero=True), *held_out, single("mean_reward")]
    rest = [single(name, from_zero=True) for name in ("grad_norm", "learning_rate", "step_time")]
    rest += [single("peak_memory", from_zero=True)] if "peak_memory" in names else []  # earlier runs did not log it
    return [replace(panel, opens_groups=False) for panel in (loss, *own, *rest)]


def _both(metric: str, title: str, *, from_zero: bool = False) -> Panel:
    """Chosen and rejected in one chart."""
    about, labels = meaning(f"{metric}/chosen"), {f"{metric}/{side}": side for side in ("chosen", "rejected")}
    return Panel(metric, title, about.help, labels, from_zero=from_zero, unit=about.unit)
