"""The widget of one value: it shows what the draft holds and writes into the draft when the person changes it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from backend.contract.base import Json
from dashboard.form.draft import Draft, on_change
from dashboard.form.schema import Choice, Field, Flag, Lines, Many, Real, Record, Settings, Text, Union, Whole
from dashboard.format import plain
from dashboard.wording import in_words, read_lines, read_number, read_settings, show_lines, show_number, show_settings

SIDE_BY_SIDE = 20  # choices with so few letters in all stand side by side; longer ones fold into a list
_EXACT = 2**53 - 1  # beyond it a browser's numbers skip some
LINE = 24  # pixels of a line of text in a box


def fits(field: Field, value: Json) -> bool:
    """Whether the field's own widget can show the value; a wrong type or an impossible choice is shown as text."""
    if value is None:
        return field.optional or isinstance(field, Real)
    match field:
        case Flag():
            return isinstance(value, bool)
        case Whole():
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT
        case Choice(several=True):
            return isinstance(value, list) and all(entry in field.options for entry in value)
        case Choice():
            return value in field.options
        case Text():
            return isinstance(value, str)
        case Lines():
            return value == field.word or (isinstance(value, list) and all(isinstance(entry, str) for entry in value))
        case Record():
            return isinstance(value, dict)
        case Union():
            return isinstance(value, dict) and value.get("kind") in field.kinds
        case Many():
            return isinstance(value, list)
        case _:
            return True


Consequences = Callable[[str], Mapping[str, Json]]
"""What a choice sets at other paths."""


def show_widget(
    draft: Draft,
    field: Field,
    path: str,
    label: str,
    offers: Sequence[str] | None = None,
    consequences: Consequences | None = None,
) -> None:
    """The field's own widget; `offers` are values to suggest for a text, and `consequences` are what the choice of one brings."""
    value, key = draft.get(path), draft.key(path)
    label, help = plain(label), plain(field.help) or None
    taking = partial(draft.taking, path)
    match field:
        case Flag():
            on = value is True
            st.toggle(label, value=on, key=key, help=help, on_change=taking(on))
        case Choice(several=False):
            _show_choice(draft, field, path, label, help)
        case Choice():
            chosen = value if isinstance(value, list) else []
            st.pills(
                label,
                field.options,
                selection_mode="multi",
                default=chosen,
                format_func=plain,
                key=key,
                help=help,
                on_change=taking(chosen, list),
            )
        case Text():
            _show_text(draft, field, path, label, help, offers, consequences)
        case Lines():
            height = max(68, 34 + LINE * (len(value) if isinstance(value, list) else 1))
            text = show_lines(value)
            take = taking(text, lambda text: read_lines(text, field.word))
            help = f"{help or ''} One a line\\."
            st.text_area(label, text, key=key, help=help, height=height, on_change=take)
        case Settings():
            text = show_settings(value)
            help = f"{help or ''} One `name: value` a line\\."
            st.text_area(label, text, key=key, help=help, height=90, on_change=taking(text, read_settings))
        case Whole() if isinstance(value, int):
            # without bounds of its own: Streamlit would keep the last good number, and the form would start another run than it shows
            st.number_input(label, value=value, step=1, key=key, help=help, on_change=taking(value))
        case _:
            text = show_number(value)
            take = taking(text, read_number)
            st.text_input(label, text, key=key, help=help, placeholder="none", on_change=take)


def show_raw(draft: Draft, field: Field, path: str, label: str) -> None:
    """A value of a type that the field's own widget cannot show: as it stands, to be corrected, or the default instead."""
    key, help, text = draft.key(path), plain(field.help) or None, show_settings(draft.get(path))
    take = on_change(key, text, lambda held: draft.change({path: read_settings(held)}))
    st.text_input(plain(label), text, key=key, help=help, on_change=take)
    default, button = {path: field.default}, draft.key(f"{path}.default")
    st.button("Use the default", key=button, icon=":material/undo:", on_click=draft.change, args=(default,))


def _show_choice(draft: Draft, field: Choice, path: str, label: str, help: str | None) -> None:
    options, value, key = list(field.options), draft.get(path), draft.key(path)
    default = str(value) if value is not None else None
    take = draft.taking(path, default)
    if len(options) <= 3 and sum(map(len, options)) <= SIDE_BY_SIDE:
        st.segmented_control(
            label,
            options,
            default=default,
            required=not field.optional,
            format_func=lambda name: plain(in_words(name)),
            key=key,
            help=help,
            on_change=take,
        )
    else:
        index = options.index(default) if default is not None else None
        st.selectbox(label, options, index=index, format_func=in_words, key=key, help=help, on_change=take)


def _show_text(
    draft: Draft,
    field: Text,
    path: str,
    label: str,
    help: str | None,
    offers: Sequence[str] | None,
    consequences: Consequences | None,
) -> None:
    text, key = str(draft.get(path) or ""), draft.key(path)
    shown = text if offers is None else text or None  # a list of which nothing is chosen holds None
    empty = "required" if field.required else "none"
    if consequences is None:
        take = draft.taking(path, shown, lambda text: text or (None if field.optional else ""))
    else:
        take = on_change(key, shown, lambda held: draft.change({path: held or "", **consequences(held or "")}))
    if offers is not None:
        options = [*offers, *([text] if text and text not in offers else [])]
        st.selectbox(
            label,
            options,
            index=options.index(text) if text else None,
            key=key,
            help=help,
            placeholder="none" if field.optional else "choose or type",
            accept_new_options=True,
            on_change=take,
        )
    elif field.long:
        height = 68 + LINE * min(6, text.count("\n") + len(text) // 90)
        st.text_area(label, text, key=key, help=help, height=height, placeholder=empty, on_change=take)
    else:
        st.text_input(label, text, key=key, help=help, placeholder=empty, on_change=take)
