"""Values that a field starts with, and configurations that lack some of them."""

from collections.abc import Iterator
from copy import deepcopy

from backend.contract.base import Json
from dashboard.form.schema import Constant, Field, Flag, Lines, Many, Real, Record, Settings, Text, Union, Whole


def blank(field: Field) -> Json:
    """The default; where there is none, the emptiest value of the field's type, which the backend then asks to fill."""
    if field.optional or field.default is not None:
        return deepcopy(field.default)
    match field:
        case Record():
            return _blank_record(field)
        case Union():
            return blank(next(iter(field.kinds.values())))
        case Many():
            return [blank(field.item) for _ in range(field.minimum)]
        case Whole():
            return field.minimum or 0
        case Real():
            return 0.0
        case Flag():
            return False
        case Text():
            return ""
        case Settings():
            return {}
    return []


def present(field: Field) -> Json:
    """What an optional field holds once it is switched on."""
    return _blank_record(field) if isinstance(field, Record) else blank(field)


def _blank_record(record: Record) -> dict[str, Json]:
    value = {inner.name: blank(inner) for inner in record.fields}
    if value.get("name") == "" and "kind" in value:
        value["name"] = value["kind"]
    return value


def changed_kind(union: Union, old: Json, kind: str) -> Json:
    """The union's value after another kind was chosen: fields that mean the same in both keep theirs."""
    new = _blank_record(union.kinds[kind])
    if not isinstance(old, dict) or old.get("kind") not in union.kinds:
        return new
    before = {inner.name: inner for inner in union.kinds[str(old["kind"])].fields}
    for inner in union.kinds[kind].fields:
        same = inner == before.get(inner.name) and not isinstance(inner, Constant)
        named_after_kind = inner.name == "name" and old.get("name") == old["kind"]
        if same and inner.name in old and not named_after_kind:
            new[inner.name] = old[inner.name]
    return new


def complete(field: Field, value: Json) -> Json:
    """The value with defaults where something is missing, and without what the schema does not know."""
    match field:
        case Record() if isinstance(value, dict):
            return {
                inner.name: complete(inner, value[inner.name]) if inner.name in value else blank(inner)
                for inner in field.fields
            }
        case Union() if isinstance(value, dict):
            record = field.kinds.get(str(value.get("kind")))
            return complete(record, value) if record else value
        case Many() if isinstance(value, list):
            return [complete(field.item, item) for item in value]
        case Lines() if isinstance(value, str) and value != field.word:
            return [value]
    return value


def unknown(field: Field, value: Json, path: str = "") -> Iterator[str]:
    """The dotted paths in the value that the schema does not know, and `complete` leaves out."""
    if isinstance(field, Union) and isinstance(value, dict):
        field = field.kinds.get(str(value.get("kind")), Record("", fields=()))
        if not field.fields:
            return
    if isinstance(field, Record) and isinstance(value, dict):
        known = {inner.name: inner for inner in field.fields}
        for name, inner_value in value.items():
            inner_path = f"{path}.{name}" if path else name
            if name in known:
                yield from unknown(known[name], inner_value, inner_path)
            else:
                yield inner_path
    if isinstance(field, Many) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(field.item, item, f"{path}.{index}")
