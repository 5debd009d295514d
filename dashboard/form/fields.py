"""Fields as they stand on the page: side by side, nested, in lists, each with what is wrong with it beneath, in the form's own words."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain

import streamlit as st

from backend.contract.base import Json
from backend.contract.preflight import Message
from dashboard.components.listing import across
from dashboard.form.draft import Draft, on_change
from dashboard.form.schema import (
    FIELDS,
    Choice,
    Constant,
    Field,
    Many,
    Real,
    Record,
    Text,
    Union,
    Whole,
    changed_kind,
    fresh,
    inside,
)
from dashboard.form.widgets import Consequences, fits, show_raw, show_widget
from dashboard.format import plain
from dashboard.wording import in_words, label_of, show_number

COLUMNS = 3


@dataclass
class Form:
    """What every field needs to know: the draft, what is said about each path, values to suggest, and own rewards."""

    draft: Draft
    problems: Mapping[str, Sequence[Message]]
    suggestions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()  # paths that stand in another part of the page
    records: Mapping[str, Record] = field(default_factory=dict)  # free settings of which the names and types are known
    consequences: Mapping[str, Consequences] = field(default_factory=dict)  # what a choice at a path sets at others

    def problems_in(self, path: str) -> int:
        """How many errors stand at the path or below it."""
        below = [found for place, found in self.problems.items() if place == path or place.startswith(f"{path}.")]
        return sum(message.level == "error" for messages in below for message in messages)


def show(form: Form, field: Field, path: str, label: str | None = None) -> None:
    """The field's widget, and beneath it what is wrong with its value."""
    label, field = label or label_of(field.name), form.records.get(path, field)
    value = form.draft.get(path)
    if isinstance(field, Record | Union | Many):
        show_nested(form, field, path, label)
        return
    if not fits(field, value):
        show_raw(form.draft, field, path, label)
    elif not isinstance(field, Constant):
        show_widget(form.draft, field, path, label, form.suggestions.get(path), form.consequences.get(path))
    show_problems(form, path)


def show_problems(form: Form, path: str) -> None:
    """What the backend says about exactly this path, with its fix."""
    for index, message in enumerate(form.problems.get(path, [])):
        if message.level == "info":
            continue  # it stands beside the form; here it would only push fields apart
        colour = "red" if message.level == "error" else "orange"
        st.markdown(f":small[:{colour}[{plain(in_labels(message.text))}]]")
        show_fix(form.draft, message, f"fix-{path}-{index}")


def show_fix(draft: Draft, message: Message, key: str) -> None:
    """A button that settles the message, where the backend knows how."""
    if message.fix:
        values = ", ".join(
            f"{label_of(path.split('.')[-1]).lower()} to {_brief(value)}" for path, value in message.fix.items()
        )
        label = plain(f"Set {values}")
        st.button(label, key=draft.key(key), icon=":material/build:", on_click=draft.change, args=(message.fix,))


def show_fields(form: Form, fields: Sequence[Field], path: str, lead: Callable[[], None] | None = None) -> None:
    """The fields in their order: short ones side by side (`lead` before them), the others across the whole width."""
    row: list[Callable[[], None]] = [lead] if lead else []
    for inner in fields:
        place = f"{path}.{inner.name}" if path else inner.name
        if isinstance(inner, Constant) or place in form.elsewhere:
            continue
        if isinstance(inner, Whole | Real | Choice) or (isinstance(inner, Text) and not inner.long):
            row.append(partial(show, form, inner, place))
        else:
            _show_row(row)
            row = []
            show(form, inner, place)
    _show_row(row)


def own_first(fields: Sequence[Field]) -> list[Field]:
    """A task's own fields, then those that every task has."""
    return sorted(fields, key=lambda inner: inner.name in ("system_prompt", "prompt_format"))


def _show_row(cells: Sequence[Callable[[], None]]) -> None:
    for column, draw in across(cells, COLUMNS):
        with column:
            draw()


def show_nested(form: Form, field: Record | Union | Many, path: str, label: str) -> None:
    """A record, a union or a list of them."""
    draft, value, help = form.draft, form.draft.get(path), plain(field.help) or None
    if isinstance(field, Record) and field.optional:
        key, record, given = draft.key(path), field, value is not None
        switch = on_change(key, given, lambda on: draft.change({path: fresh(record) if on else None}))
        st.toggle(plain(label), value=given, key=key, help=help, on_change=switch)
        if value is None:
            return
    if not fits(field, value):
        show_raw(draft, field, path, label)
    elif isinstance(field, Many):
        st.markdown(f"**{plain(label)}**", help=help)
        _show_list(form, field, path, label)
    elif isinstance(field, Union):
        chosen = field.kinds.get(str(draft.get(f"{path}.kind")), Record(""))
        if chosen.help:
            st.caption(f"**{plain(label)}** {plain(chosen.help)}")
        show_fields(form, chosen.fields, path, lead=partial(show_kind, form, field, path, "Kind"))
    else:
        whose = path in form.records  # a person's own function: its docstring is read as often as it is edited
        if not field.optional:
            st.markdown(f"**{plain(label)}**", help=None if whose else help)
        if whose and help:
            st.caption(help)
        show_fields(form, field.fields, path)
    show_problems(form, path)


def show_kind(form: Form, union: Union, path: str, label: str) -> None:
    """The choice of a union's kind."""
    draft, key = form.draft, form.draft.key(f"{path}.kind")
    kinds = list(union.kinds)
    kind = draft.get(f"{path}.kind")
    known = kind if isinstance(kind, str) and kind in kinds else None
    take = on_change(key, known, lambda chosen: draft.change({path: changed_kind(union, draft.get(path), chosen)}))
    st.selectbox(
        plain(label),
        kinds,
        index=kinds.index(known) if known is not None else None,
        key=key,
        format_func=in_words,
        help=plain(union.help) or None,
        on_change=take,
    )


def _show_list(form: Form, many: Many, path: str, label: str) -> None:
    draft = form.draft
    value = draft.get(path)
    items = value if isinstance(value, list) else []
    for index in range(len(items)):
        with st.container(border=True):
            fields, button = st.columns([20, 1])
            with fields:
                show(form, many.item, f"{path}.{index}", label=f"{index + 1}.")
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
                args=({path: [*items, _unique(fresh(record), items)]},),
            )


def _unique(item: Json, items: Sequence[Json]) -> Json:
    """The item with a name that no other item has."""
    names = {other.get("name") for other in items if isinstance(other, dict)}
    if isinstance(item, dict) and "name" in item:
        base = item["name"]
        number = next(n for n in range(1, len(names) + 2) if (f"{base}-{n}" if n > 1 else base) not in names)
        return {**item, "name": f"{base}-{number}" if number > 1 else base}
    return item


def _brief(value: Json) -> str:
    """A value on a button, as the form writes it; of a union its kind."""
    if isinstance(value, dict) and "kind" in value:
        value = value["kind"]
    if isinstance(value, str) and value.isidentifier():
        return in_words(value)
    text = show_number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


_PATH = re.compile(
    rf"\b(?:{'|'.join(sorted({field.name for record in FIELDS.values() for field in record.fields}))})(?:\.\w+)+"
)
_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def in_labels(text: str) -> str:
    """`optimizer.micro_batch_tokens` is Optimizer › Micro batch tokens, group_zscore is group z-score; other names stay."""
    text = _PATH.sub(lambda found: path_in_words(found[0]), text)
    return _NAME.sub(lambda found: in_words(found[0]) if found[0] in _names() else found[0], text)


def path_in_words(path: str) -> str:
    """A field with the parts of the form that it stands in: Sampling › Top k."""
    return " › ".join(label_of(part) for part in path.split(".") if not part.isdecimal())


@cache
def _names() -> frozenset[str]:
    """Every field and every choice of a configuration."""
    found = [field for fields in FIELDS.values() for field in inside(fields)]
    choices = [field.options for field in found if isinstance(field, Choice)]
    kinds = [tuple(field.kinds) for field in found if isinstance(field, Union)]
    return frozenset(chain((field.name for field in found), *choices, *kinds))
