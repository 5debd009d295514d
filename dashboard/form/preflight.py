"""What the run would do, always in sight beside the form: counts, memory, time, dead groups, and what is wrong."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.contract.preflight import NOT_LOOKED, Preflight
from backend.contract.records import PHASES
from dashboard.charts.dead_forecast import in_percent
from dashboard.charts.palette import CATEGORICAL
from dashboard.components.live import draw_again
from dashboard.forecast import Forecast
from dashboard.form.draft import Draft
from dashboard.form.fields import in_labels, path_in_words, show_fix
from dashboard.format import count, counted, duration, number, percent, plain, size
from dashboard.session import client, explain
from dashboard.wording import show_number

TICK = 2.0  # seconds between two questions
_LOOKS = {
    "error": (":red[:material/error:]", "red"),
    "warning": (":orange[:material/warning:]", "orange"),
    "info": (":gray[:material/info:]", "gray"),
}
# without a success rate; whether the form has a button that samples
_UNKNOWN = {
    True: "unknown until the model's answers are sampled: **Sample before launch** does that",
    False: "unknown until the model's answers are sampled",
}
_FEWER_PAIRS = (
    "Estimated from the dead groups at the mean success rate\\. If some prompts are harder than others, more groups are dead, and "
    "there are fewer pairs\\."
)
_DEAD = (
    "A group is dead when all its rewards are equal: every advantage is then 0, and the rewards teach nothing. With success rate p "
    "a share p^G + (1 − p)^G of the groups is all right or all wrong, and more of them if some prompts are harder than others. They are dead if "
    "the rewards follow right and wrong alone, which no reward has to do: sample before launch to measure it."
)
_ORDER = {level: place for place, level in enumerate(_LOOKS)}


def check(draft: Draft) -> Preflight | None:
    """The backend's view of the draft; None where it cannot be asked, which is said on the page."""
    try:
        return _answer(draft)
    except Unreachable:
        st.warning("The backend does not answer. What you write stays here.", icon=":material/cloud_off:")
    except ApiError as refusal:
        st.error(explain(refusal), icon=":material/error:")
    return None


def follow(draft: Draft, drawn: Preflight | None) -> None:
    """Draw the form again once the backend answers, or a worker has looked at the prompts, if `drawn` still waits for it."""
    if drawn is None or any(message.text == NOT_LOOKED for message in drawn.messages):
        st.fragment(partial(_look, draft, drawn), run_every=TICK)()


def _look(draft: Draft, drawn: Preflight | None) -> None:
    with suppress(Unreachable, ApiError):
        if _answer(draft) != drawn:
            draw_again()


def _answer(draft: Draft) -> Preflight:
    return client().preflight(draft.config, draft.config_json, parent_id=draft.parent_id, fork_at=draft.fork_at)


def show_verdict(draft: Draft, preflight: Preflight) -> None:
    """Counts, and what is wrong or doubtful: what is read before Start is pressed."""
    if preflight.trained_pairs is not None:
        _show_pairs(draft, preflight, preflight.trained_pairs)
    if preflight.completions_per_step is not None:
        paths = ("sampling.prompts_per_step", "sampling.group_size", "budget.steps")
        prompts, group, steps = (show_number(draft.get(path)) for path in paths)
        own = f", of which {count(draft.fork_at)} are the trunk's" if draft.fork_at else ""
        noun = "prompt" if prompts == "1" else "prompts"
        st.markdown(
            f"{prompts} {noun} × {group} completions = **{count(preflight.completions_per_step)}** a step  \n"
            f"{steps} steps{own} · **{count(preflight.total_completions)}** completions in all"
        )
    _show_messages(draft, preflight, ("error", "warning"))


def show_estimates(draft: Draft, preflight: Preflight, measured: Forecast | None = None) -> None:
    """Memory, time, the dead groups to expect (as a sample `measured` them, where there is one), and what is good to know."""
    memory, time = preflight.memory, preflight.time
    if memory is not None:
        of = f" of {size(memory.available_bytes)}" if memory.available_bytes else ""
        if memory.each_bytes == memory.total_bytes:
            of += f" on each of {memory.processes} GPUs"
        elif memory.each_bytes is not None:
            of += f", {size(memory.each_bytes)} in each of {memory.processes} processes"
        st.markdown(f":gray[Memory] about **{size(memory.total_bytes)}**{of}")
        show_parts(memory.parts, size, in_labels(memory.advice))
    if time is not None:
        each, whole = duration(time.seconds_per_step), duration(time.total_seconds)
        span = ""
        if time.low_seconds is not None and time.high_seconds is not None:
            span = f" ({_seconds(time.low_seconds)} to {_seconds(time.high_seconds)})"
        of = "in all" if time.with_evaluations else f"for {show_number(draft.get('budget.steps'))} steps"
        st.markdown(f":gray[Time] about **{each}** a step{span}, {whole} {of}  \n:small[:gray[{plain(time.basis)}]]")
        show_parts(time.parts, _seconds, in_labels(time.advice))
    elif preflight.ok:
        st.markdown(f":gray[Time] not known yet  \n:small[:gray[{plain(preflight.time_unknown)}]]")
    _show_dead_groups(draft, preflight, measured)
    _show_messages(draft, preflight, ("info",))
    # in one line, which settings of the recipe are unusual; in its help, what each of them does
    intended = {
        plain(path_in_words(one.field or "")): plain(in_labels(one.text)) for one in preflight.messages if one.intended
    }
    if intended:
        said = "\n".join(f"- **{field}**: {text}" for field, text in intended.items())
        st.markdown(f":small[:gray[Unusual on purpose in this recipe: {', '.join(intended)}]]", help=said)


def _show_messages(draft: Draft, preflight: Preflight, levels: Sequence[str]) -> None:
    for index, message in enumerate(sorted(preflight.messages, key=lambda one: _ORDER[one.level])):
        if message.level in levels and not message.intended:
            icon, colour = _LOOKS[message.level]
            where = f"**{plain(path_in_words(message.field))}:** " if message.field else ""
            st.markdown(f":small[{icon} {where}:{colour}[{plain(in_labels(message.text))}]]")
            show_fix(draft, message, f"preflight-fix-{index}")


def _show_pairs(draft: Draft, preflight: Preflight, trained: int) -> None:
    """The pairs there will be, and how often each is seen."""
    each, steps = (show_number(draft.get(path)) for path in ("budget.pairs_per_step", "budget.steps"))
    shown = f"{each} pairs × {steps} steps = **{count(trained)}** pairs"
    prompts, group = (draft.get(f"pairs.{name}") for name in ("prompts", "group_size"))
    if preflight.training_pairs:
        times = trained / preflight.training_pairs
        where = f"of {show_number(prompts)} groups of {show_number(group)}" if prompts else ""
        about = "at most" if prompts and preflight.success_rate is None else "about"
        seen = f"each is used {number(times)} times" if times >= 1 else f"{percent(times)} of these are used"
        shown += f",  \ndrawn from {about} **{count(preflight.training_pairs)}** different ones{f' ({where})' if where else ''}: {seen}"
    st.markdown(shown, help=_FEWER_PAIRS if prompts and preflight.success_rate is not None else None)


def _show_dead_groups(draft: Draft, preflight: Preflight, measured: Forecast | None) -> None:
    """How many to expect of each size, the form's own size in bold: as a sample showed, or at the success rate that is known."""
    own = draft.get("sampling.group_size") or draft.get("pairs.group_size")  # None where the pairs are there already
    if measured is not None:
        basis = f"measured by the rewards on {counted(len(measured.rates_P), 'prompt')}, success rate {number(measured.rate)}"
        about = "Groups whose rewards are all equal\\. Before launch shows more\\."
        known = {one.group_size: one.dead for one in measured.shares}
        shares = {size: share for size, share in known.items() if size in (2, 4, 8, 16, own)}
    elif own is None or not (preflight.ok or preflight.dead_groups):
        return
    else:
        basis = _UNKNOWN[draft.get("kind") == "grpo"]
        if preflight.dead_groups:
            basis = f"if the rewards follow right and wrong alone and each prompt has success rate {number(preflight.success_rate)} ({plain(preflight.success_basis or '')})"
        about = _DEAD
        shares = {one.group_size: one.share for one in preflight.dead_groups}
    st.markdown(f":gray[Dead groups expected]  \n:small[:gray[{basis}]]", help=about)
    if shares:
        sizes = [_bold(f"G = {size}", size == own) for size in shares]
        values = [_bold(in_percent(share), size == own) for size, share in shares.items()]
        st.markdown("\n".join(f"| {' | '.join(row)} |" for row in (sizes, ["---:"] * len(sizes), values)))


def _seconds(value: float) -> str:
    """Short phases have digits: 0.04 s."""
    return f"{number(value)} s" if value < 1 else duration(value)


def _bold(text: str, chosen: bool) -> str:
    text = text.replace("<", "\\<").replace(">", "\\>")
    return f"**{text}**" if chosen else text


STYLE = Path(__file__).with_name("parts.css")
# Each part has its colour, whichever others are there.
NAMES = {
    "activations": "activations",
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "reference": "reference",
    "logits": "logits, in chunks",
    "cache": "keys and values (KV cache)",
    "copies": "copies of the weights",
    **{phase: word for phase, word in PHASES.items() if phase != "reference"},
    "rest": "rest",
    "gathered": "the layer that computes",
    "kept": "kept for the next step",
    "libraries": "Python and PyTorch",
}


def show_parts(parts: Mapping[str, float], show_value: Callable[[float], str], advice: str) -> None:
    """The bar, what `advice` says of it, and folded in it a line for each part."""
    html = parts_html(parts, show_value, advice)
    if html:  # Streamlit refuses an empty one
        st.html(STYLE)
        st.html(html)


def parts_html(parts: Mapping[str, float], show_value: Callable[[float], str], advice: str) -> str:
    """As HTML; every text is escaped."""
    total = sum(parts.values())
    if not total > 0:
        return ""
    order = [(name, value) for name, value in sorted(parts.items(), key=lambda part: -part[1]) if value > 0]
    bar = "".join(
        f'<i style="flex-grow:{value / total:.5f};background:{_colour(name)}" title="{escape(_name(name))}"></i>'
        for name, value in order
    )
    lines = "".join(
        f'<tr><td><i style="background:{_colour(name)}"></i>{escape(_name(name))}</td>'
        f"<td>{escape(show_value(value))}</td><td>{percent(value / total)}</td></tr>"
        for name, value in order
    )
    return (
        f'<details class="parts"><summary><div class="bar">{bar}</div>{escape(advice)} <u>All parts</u></summary>'
        f"<table>{lines}</table></details>"
    )


def _name(part: str) -> str:
    return NAMES.get(part, part.replace("_", " "))


def _colour(name: str) -> str:
    known = list(NAMES)
    return CATEGORICAL[known.index(name) % 10] if name in known else CATEGORICAL[9]
