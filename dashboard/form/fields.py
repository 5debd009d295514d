"""Fields as they stand on the page: side by side, nested, in lists, each with what is wrong with it beneath."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

from backend.contract.base import Json
from backend.contract.records import Message
from dashboard.form.defaults import changed_kind, present
from dashboard.form.draft import Draft
from dashboard.form.schema import Constant, Field, Flag, Lines, Many, Record, Settings, Text, Union, title
from dashboard.form.widgets import in_words, show_raw, show_widget
from dashboard.form.written import fits, show_number
from dashboard.format import plain

COLUMNS = 3


@dataclass
class Form:
    """What every field needs to know: the draft, what the backend says about each path, and values to suggest."""

    draft: Draft
    problems: Mapping[str, Sequence[Message]]
    suggestions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()  # paths that stand in another part of the page

    def problems_in(self, path: str) -> int:
        """How many errors stand at the path or below it."""
        below = [found for place, found in self.problems.items() if place == path or place.startswith(f"{path}.")]
        return sum(message.level == "error" for messages in below for message in messages)


def show(form: Form, field: Field, path: str, label: str | None = None) -> None:
    """The field's widget, and beneath it what is wrong with its value."""
    label = label or title(field.name)
    value = form.draft.get(path)
    if isinstance(field, Record | Union | Many):
        show_nested(form, field, path, label)
        return
    if not fits(field, value):
        show_raw(form.draft, field, path, label)
    elif not isinstance(field, Constant):
        show_widget(form.draft, field, path, label, form.suggestions.get(path))
    show_problems(form, path)


def show_problems(form: Form, path: str) -> None:
    """What the backend says about exactly this path, with its fix."""
    for index, message in enumerate(form.problems.get(path, [])):
        colour = {"error": "red", "warning": "orange", "info": "gray"}[message.level]
        st.caption(f":{colour}[{plain(message.text)}]")
        show_fix(form.draft, message, f"fix-{path}-{index}")


def show_fix(draft: Draft, message: Message, key: str) -> None:
    """A button that settles the message, where the backend knows how."""
    if message.fix:
        values = ", ".join(
            f"{title(path.split('.')[-1]).lower()} {_brief(value)}" for path, value in message.fix.items()
        )
        label = plain(f"Set {values}")
        st.button(label, key=draft.key(key), icon=":material/build:", on_click=draft.change, args=(message.fix,))


def show_fields(form: Form, fields: Sequence[Field], path: str) -> None:
    """Short fields side by side, then switches, then what needs the whole width."""
    chosen = [inner for inner in fields if not isinstance(inner, Constant) and _at(path, inner) not in form.elsewhere]
    switches = [inner for inner in chosen if isinstance(inner, Flag)]
    wide = [inner for inner in chosen if _is_wide(inner)]
    short = [inner for inner in chosen if inner not in switches and inner not in wide]
    for start in range(0, len(short), COLUMNS):
        for column, inner in zip(st.columns(COLUMNS), short[start : start + COLUMNS], strict=False):
            with column:
                show(form, inner, _at(path, inner))
    for inner in [*switches, *wide]:
        show(form, inner, _at(path, inner))


def show_nested(form: Form, field: Field, path: str, label: str) -> None:
    """A record, a union or a list of them."""
    value = form.draft.get(path)
    if field.optional:
        _show_switch(form, field, path, label, value)
        if value is None:
            return
    if not fits(field, value):
        show_raw(form.draft, field, path, label)
    elif isinstance(field, Many):
        _show_list(form, field, path, label)
    elif isinstance(field, Union):
        show_kind(form, field, path, label)
        show_kind_fields(form, field, path)
    elif isinstance(field, Record):
        if not field.optional:
            st.markdown(f"**{plain(label)}**", help=plain(field.help) or None)
        show_fields(form, field.fields, path)
    show_problems(form, path)


def show_kind(form: Form, union: Union, path: str, label: str) -> None:
    """The choice of a union's kind."""
    draft, key = form.draft, form.draft.key(f"{path}.kind")
    kinds = list(union.kinds)
    kind = draft.get(f"{path}.kind")

    def take() -> None:
        draft.change({path: changed_kind(union, draft.get(path), st.session_state[key])})

    st.selectbox(
        plain(label),
        kinds,
        index=kinds.index(kind) if isinstance(kind, str) and kind in kinds else 0,
        key=key,
        format_func=in_words,
        help=plain(union.help) or None,
        on_change=take,
    )


def show_kind_fields(form: Form, union: Union, path: str) -> None:
    """What the chosen kind means, and its own fields."""
    record = union.kinds.get(str(form.draft.get(f"{path}.kind")))
    if record is not None:
        if record.help:
            st.caption(plain(record.help))
        show_fields(form, record.fields, path)


def _show_switch(form: Form, field: Field, path: str, label: str, value: Json) -> None:
    draft, key = form.draft, form.draft.key(path)

    def take() -> None:
        draft.change({path: present(field) if st.session_state[key] else None})

    st.toggle(plain(label), value=value is not None, key=key, help=plain(field.help) or None, on_change=take)


def _show_list(form: Form, many: Many, path: str, label: str) -> None:
    draft = form.draft
    value = draft.get(path)
    items = value if isinstance(value, list) else []
    st.markdown(f"**{plain(label)}**", help=plain(many.help) or None)
    for index in range(len(items)):
        with st.container(border=True):
            fields, button = st.columns([14, 1])
            with fields:
                show(form, many.item, f"{path}.{index}", label="Kind")
            button.button(
                "",
                key=draft.key(f"{path}.{index}.remove"),
                icon=":material/close:",
                type="tertiary",
                help="Remove",
                disabled=len(items) <= many.minimum,
                on_click=draft.change,
                args=({path: [*items[:index], *items[index + 1 :]]},),
            )
    full = many.maximum is not None and len(items) >= many.maximum
    offers = many.item.kinds if isinstance(many.item, Union) else {label.lower().removesuffix("s"): many.item}
    with st.container(horizontal=True):
        for name, record in offers.items():
            st.button(
                plain(in_words(name)),
                key=draft.key(f"{path}.add.{name}"),
                icon=":material/add:",
                help=plain(record.help) or None,
                disabled=full,
                on_click=draft.change,
                args=({path: [*items, _unique(present(record), items)]},),
            )


def _unique(item: Json, items: Sequence[Json]) -> Json:
    """The item with a name that no other item has."""
    names = {other.get("name") for other in items if isinstance(other, dict)}
    if isinstance(item, dict) and "name" in item:
        base = item["name"]
        number = next(n for n in range(1, len(names) + 2) if (f"{base}-{n}" if n > 1 else base) not in names)
        return {**item, "name": f"{base}-{number}" if number > 1 else base}
    return item


def _at(path: str, field: Field) -> str:
    return f"{path}.{field.name}" if path else field.name


def _is_wide(field: Field) -> bool:
    if isinstance(field, Text):
        return field.long
    return isinstance(field, Lines | Settings | Record | Union | Many)


def _brief(value: Json) -> str:
    text = show_number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
