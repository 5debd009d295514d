"""The model of the form: chosen from all that a run can begin with, each weighed with the form's settings; and settings to start it with."""

import json
from functools import partial
from hashlib import sha256

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.model_choice import ModelChoice, Models, StartingSettings
from backend.contract.yaml_text import Unreadable
from dashboard.form.draft import Draft, on_change
from dashboard.form.fields import Form, path_in_words, show, show_problems
from dashboard.form.schema import Field
from dashboard.format import counted, number, plain, size
from dashboard.session import client
from dashboard.text import one_line
from dashboard.wording import in_words, show_number

SOURCE = "model.source"
_LONGEST = 100_000  # characters of a config.json: most have a thousand
PLACES = {"builtin": "comes along", "local": "model root", "checkpoint": "checkpoint", "hub": "Hub"}


def models_for(draft: Draft) -> Models | None:
    """The models to choose from; None while the backend is away."""
    try:
        return client().models(draft.config, draft.config_json)
    except (Unreachable, ApiError):
        return None


def show_model(form: Form, field: Field, models: Models | None) -> None:
    """One list of all models, what there is to know of the chosen one, and settings to start it with."""
    draft, source = form.draft, form.draft.get(SOURCE)
    if models is None or not isinstance(source, str):
        show(form, field, SOURCE, label="Model")
        return
    choices = {one.source: one for one in models.items}
    labels = {one.source: _label(one) for one in models.items}
    # A list with other labels is another widget: to Streamlit, an old label would be a text that somebody typed.
    key = f"{draft.key(SOURCE)}-{sha256(repr(labels).encode()).hexdigest()[:8]}"

    known = source if source in labels else None
    take = on_change(key, known, lambda held: draft.write(SOURCE, str(held or "").strip()))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Model",
            list(labels),
            index=list(labels).index(known) if known is not None else None,
            format_func=lambda one: labels.get(one, one),
            key=key,
            help=plain(field.help),
            placeholder="choose, or type a Hub id",
            accept_new_options=True,
            on_change=take,
        )
        if models.starting:
            with st.popover("Starting settings", icon=":material/tune:", key="starting-settings"):
                st.caption("Values to begin with for a model of this size. The rest of the form stays as it is.")
                for column, way in zip(st.columns(len(models.starting)), models.starting, strict=True):
                    with column:
                        _show_way(draft, way)
        _show_config_json(draft, source)
    if draft.config_json is not None:
        st.markdown(
            ":small[:gray[:material/calculate: Size, memory and time are those of the config\\.json that you gave\\.]]"
        )
    if source in choices:
        _show_chosen(choices[source])
    show_problems(form, SOURCE)


def _label(one: ModelChoice) -> str:
    """A line of the list: name, where it lies, how large it is, and whether it fits."""
    parts = [one_line(one.title), PLACES[one.place]]
    parts += [f"{_parameters(one.parameters)} parameters"] if one.parameters else []
    if one.memory_bytes is not None:
        parts.append(f"{size(one.memory_bytes)}{_fit(one)}")
    elif not one.usable:
        parts.append("cannot be trained")
    elif not one.parameters:
        parts.append("size unknown")
    shown = " · ".join(parts)
    return shown if one.title == one.source else f"{shown} · {one.source}"


def _fit(one: ModelChoice) -> str:
    """Whether it fits, as the end of a line; nothing if nobody knows."""
    if one.fits and one.too_small:
        return f", fits {one.fits} of {counted(one.fits + one.too_small, 'worker')}"
    return ", fits" if one.fits else ", does not fit" if one.too_small else ""


def _show_chosen(one: ModelChoice) -> None:
    """What the line in the list has no room for."""
    if one.note:
        look = ":gray[:material/info:]" if one.usable else ":orange[:material/warning:]"
        st.markdown(f":small[{look} :gray[{plain(one.note[0].upper() + one.note[1:])}\\.]]")
    elif one.too_small and not one.fits:
        settings = "see **Starting settings** for ones that may"
        st.markdown(
            f":small[:orange[:material/warning: With these settings it fits no worker that is up; {settings}\\.]]"
        )


def _show_config_json(draft: Draft, source: str) -> None:
    """A file or a text to take the model's dimensions from, and the way to be rid of it."""
    given = draft.config_json is not None
    with st.popover(
        "config.json", icon=":material/check:" if given else ":material/calculate:", key="config-json", width="content"
    ):
        st.caption(
            "Memory and time of a model that no worker has yet, from the config.json that lies beside its weights (on the Hub under Files). "
            "They follow the form: LoRA, processes and everything else. Nothing is downloaded, and the run still trains the model that is chosen."
        )
        file = st.file_uploader("config.json", type=["json"], key="config-json-file")
        pasted = st.text_area("or paste its content here", height=200, key="config-json-text")
        content, found = file.getvalue() if file else pasted.encode(), None
        if content.strip():
            try:
                found = config_in(content)
            except Unreadable as reason:
                st.error(plain(str(reason)), icon=":material/error:")
        with st.container(horizontal=True):
            st.button(
                "Estimate with it",
                type="primary",
                disabled=found is None,
                on_click=partial(setattr, draft, "given", (source, found)),
            )
            if given:
                st.button("Estimate without it", on_click=partial(setattr, draft, "given", None))


def config_in(content: bytes) -> dict[str, Json]:
    """What a config.json holds. Raises Unreadable."""
    try:
        # JSON knows no infinity, and Python writes some all the same
        found = json.loads(content.decode(), parse_constant=lambda _: None) if len(content) <= _LONGEST else None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"This is not JSON ({error}): copy the whole config.json, with its outer braces.") from error
    if not isinstance(found, dict):
        raise Unreadable(
            'A config.json is an object such as {"model_type": "llama", …}, of at most 100,000 characters.'
        )
    return found


def _show_way(draft: Draft, way: StartingSettings) -> None:
    """The values, each with its reason, and the button that sets them all."""
    advice = " :green-badge[advised]" if way.advised else ""
    fits = {True: "fits", False: "does not fit", None: ""}[way.fits]
    st.markdown(
        f"**{plain(way.title)}**{advice}  \n:small[about {size(way.memory_bytes)}{', ' + fits if fits else ''}]"
    )
    values = {one.field: one.value for one in way.values}
    st.button(
        "Use these",
        key=draft.key(f"starting-{'whole' if values['model.lora'] is None else 'adapters'}"),
        icon=":material/check:" if all(draft.get(field) == value for field, value in values.items()) else None,
        type="primary" if way.advised else "secondary",
        width="stretch",
        on_click=draft.change,
        args=(values,),
    )
    for one in way.values:
        st.markdown(
            f":small[**{plain(path_in_words(one.field))}** {plain(_value(one.value))}  \n:gray[{plain(one.reason)}]]"
        )


def _value(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int() | float():
            return show_number(value)
        case dict():
            return f"rank {value['rank']}"
        case None:
            return "off"
        case _:
            return in_words(str(value))


def _parameters(count: int) -> str:
    return f"{number(count / 1e9)} billion" if count >= 1e9 else f"{number(count / 1e6)} million"
