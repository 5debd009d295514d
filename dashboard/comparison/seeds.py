"""How many more seeds it would take to tell settings apart, beside what the seeds that are there can do."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from dashboard.charts.power import MOST, WANTED, Plan, plan
from dashboard.comparison.judgement import draw_table
from dashboard.format import MISSING, counted, number, percent

MORE = f"more of each for {percent(WANTED)}"
_FEW = 5  # seeds: how far seeds differ is hardly known from these


def draw_plan(finals: Mapping[str, Mapping[int, float]], against: str) -> None:
    """The table; `finals` is setting -> seed -> result, and `against` the setting that the others are compared with."""
    st.markdown(
        "**How many more seeds it takes**",
        help="Simulated comparisons, judged as above\\. Seeds are taken to be normal, with the spread that was seen, and that spread is "
        "known only as well as these seeds show it: hence the ranges\\.",
    )
    effect = st.number_input(
        "Difference to tell",
        value=None,
        min_value=0.0,
        step=0.01,
        format="%.4g",
        placeholder="the one seen",
        key="effect",
        bind="query-params",
        width=180,
        help="The smallest that would matter to you\\. The one seen may be luck, too: of two settings that do not differ it is small, and "
        "would take any number of seeds\\.",
    )
    plans = {name: plan(values, finals[against], effect or None) for name, values in finals.items() if name != against}
    draw_table(
        pd.DataFrame([_row(f"{name} − {against}", one, finals[name], finals[against]) for name, one in plans.items()]),
        key="seeds-needed",
        words=("settings", MORE),
    )
    known = [min(one.seeds) for one in plans.values() if isinstance(one, Plan)]
    roughly = (
        f" From {counted(min(known), 'seed')} the spread is hardly known, so the range is wide: take its upper end for a firm plan."
        if known and min(known) <= _FEW
        else ""
    )
    st.caption(
        "Power now: of comparisons with as many seeds, if the difference is real, the share that ends in the right verdict. More of each: how many more seeds of each setting "
        f"it takes for {percent(WANTED)}. In brackets, what follows from the 95 % interval of the spread.{roughly} Choose the number before "
        "you run them: to add seeds until a verdict appears is to wait for luck."
    )


def _row(names: str, found: Plan | str, values: Mapping[int, float], against: Mapping[int, float]) -> dict[str, str]:
    if isinstance(found, str):
        seeds = _seeds((len(values), len(against)))
        return {"settings": names, "difference": MISSING, "seeds": seeds, "power now": MISSING, MORE: found}
    return {
        "settings": names,
        "difference": number(found.effect),
        "seeds": _seeds(found.seeds),
        "power now": in_brackets([percent(one or 0.0) for one in found.power]),
        MORE: more_seeds(found),
    }


def _seeds(counts: Sequence[int]) -> str:
    return " and ".join(str(one) for one in dict.fromkeys(counts))


def more_seeds(found: Plan) -> str:
    """Beside those that the setting with fewer has: "9 (2 to more than 197)"."""
    have = min(found.seeds)
    return in_brackets(
        [f"more than {MOST - have}" if one is None else f"{max(0, int(one) - have)}" for one in found.needed]
    )


def in_brackets(found: Sequence[str]) -> str:
    """A range in words: what is likely, and both ends unless they are the same."""
    least, likely, most = found
    return likely if least == likely == most else f"{likely} ({least} to {most})"
