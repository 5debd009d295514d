"""The fields of a configuration, read from its pydantic model: the few kinds that a form has widgets for, and their defaults."""

import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import getdoc
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from backend.contract.base import Json
from backend.contract.config import LOOKS, MODELS
from backend.contract.reading import READING

LONG_TEXT = 1000  # a text that may be longer is written in a box of several lines


class NoWidget(Exception):
    """The model holds a type that the form has no widget for."""


@dataclass(frozen=True)
class Field:
    """What all fields share. A required one begins with the emptiest value of its type, which the backend then asks to fill."""

    name: str
    help: str = ""
    default: Json = None
    required: bool = False
    optional: bool = False  # null is a value


class Constant(Field):
    """A value that cannot be chosen, such as `kind`."""


class Flag(Field):
    """True or false."""


@dataclass(frozen=True)
class Whole(Field):
    """A whole number between two bounds."""

    minimum: int | None = None
    maximum: int | None = None


class Real(Field):
    """A number with a fraction, typed as people write it: 2e-4."""


@dataclass(frozen=True)
class Text(Field):
    """A text; `long` ones may have several lines."""

    long: bool = False


@dataclass(frozen=True)
class Choice(Field):
    """One of a few words, or `several` of them."""

    options: tuple[str, ...] = ()
    several: bool = False


@dataclass(frozen=True)
class Lines(Field):
    """A list of texts, or the one word that stands for a list of its own."""

    word: str | None = None


class Settings(Field):
    """Free names and their values."""


@dataclass(frozen=True)
class Record(Field):
    """Named fields."""

    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Union(Field):
    """One of several records, distinguished by `kind`."""

    kinds: Mapping[str, Record] = field(default_factory=dict)


@dataclass(frozen=True)
class Many(Field):
    """A list of records or unions."""

    item: Record | Union = field(default_factory=lambda: Record(""))
    minimum: int = 0
    maximum: int | None = None


@cache
def read_model(model: type[BaseModel], name: str = "") -> Record:
    """The model's fields, under the name of the field that holds it. Raises NoWidget."""
    fields: list[Field] = []
    for inner, info in model.model_fields.items():
        if inner == READING:
            continue
        read, default = _read_type(inner, info), info.get_default(call_default_factory=True)
        if info.is_required():
            default = [] if get_origin(info.annotation) is list or isinstance(read, Lines) else ""
        shown, start = info.description or read.help, to_jsonable_python(default)
        fields.append(replace(read, help=shown, default=start, required=info.is_required()))
    return Record(name, help=getdoc(model) or "", fields=tuple(fields))


def _read_type(name: str, info: FieldInfo) -> Field:
    """The field for values of this type, without its own help and default."""
    annotation, inner = info.annotation, get_args(info.annotation)
    if get_origin(annotation) is Literal:
        return Choice(name, options=inner) if len(inner) > 1 else Constant(name, default=inner[0])
    if get_origin(annotation) is list:
        match _read_type("", FieldInfo.from_annotation(inner[0])):
            case Choice(options=options):
                return Choice(name, options=options, several=True)
            case Text():
                return Lines(name)
            case Record() | Union() as item:
                least, most = _bound(info, MinLen, "min_length"), _bound(info, MaxLen, "max_length")
                return Many(name, item=item, minimum=least or 0, maximum=most)
    if get_origin(annotation) in (typing.Union, UnionType):
        return _read_union(name, inner)
    if get_origin(annotation) is dict:
        return Settings(name)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return read_model(annotation, name)
    if annotation is int:
        return Whole(name, minimum=_bound(info, Ge, "ge"), maximum=_bound(info, Le, "le"))
    if annotation is str:
        return Text(name, long=(_bound(info, MaxLen, "max_length") or 0) > LONG_TEXT)
    if annotation in (bool, float):
        return Flag(name) if annotation is bool else Real(name)
    raise NoWidget(f"{name}: no widget for {annotation}")


def _read_union(name: str, types: Sequence[type]) -> Field:
    """`X or None`, one of several kinds, or `a list or one word`."""
    read = [_read_type(name, FieldInfo.from_annotation(one)) for one in types if one is not NoneType]
    kinds = {
        str(inner.default): one
        for one in read
        if isinstance(one, Record)
        for inner in one.fields
        if inner.name == "kind"
    }
    match read:
        case [one]:
            return replace(one, optional=True)
        case _ if len(kinds) == len(read):
            return Union(name, kinds=kinds)
        case [Lines() as lines, Constant(default=word)]:
            return replace(lines, word=str(word))
    raise NoWidget(f"{name}: no widget for a choice of {len(read)} types")


def _bound(info: FieldInfo, kind: type, name: str) -> int | None:
    """The bound of this kind on the value or on its length, if there is one."""
    return next((getattr(bound, name) for bound in info.metadata if isinstance(bound, kind)), None)


FIELDS: Mapping[str, Record] = {kind: read_model(model) for kind, model in MODELS.items() if kind not in LOOKS}
"""The fields of the configurations that a form is for, by kind."""


def fields_of(config: Json) -> Record:
    """The fields of a configuration, by its kind; an unknown kind has those of `grpo`."""
    return FIELDS.get(str(config.get("kind")), FIELDS["grpo"]) if isinstance(config, dict) else FIELDS["grpo"]


def inside(field: Field) -> Iterator[Field]:
    """The field, and every field within it."""
    yield field
    children: Iterable[Field] = ()
    match field:
        case Record():
            children = field.fields
        case Union():
            children = field.kinds.values()
        case Many():
            children = (field.item,)
    for child in children:
        yield from inside(child)


def fresh(record: Record) -> dict[str, Json]:
    """A value of the record in which every field has its default; a name is then the kind."""
    value = {inner.name: inner.default for inner in record.fields}
    return value | {"name": value["kind"]} if value.get("name") == "" and "kind" in value else value


def changed_kind(union: Union, old: Json, kind: str) -> Json:
    """The union's value after another kind was chosen: fields that mean the same in both keep theirs."""
    new = fresh(union.kinds[kind])
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
    """The value with defaults for what is missing, and without what the model does not know."""
    match field:
        case Record() if isinstance(value, dict):
            return {
                inner.name: complete(inner, value[inner.name]) if inner.name in value else inner.default
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


def unknown(value: Json, completed: Json, path: str = "") -> Iterator[str]:
    """The dotted paths in the value that the model does not know, so that `complete` left them out."""
    if isinstance(value, dict) and isinstance(completed, dict):
        for name, inner in value.items():
            place = f"{path}.{name}" if path else name
            if name in completed:
                yield from unknown(inner, completed[name], place)
            elif name != READING:  # written anew when the run is submitted
                yield place
    if isinstance(value, list) and isinstance(completed, list):
        for index, (inner, done) in enumerate(zip(value, completed, strict=True)):
            yield from unknown(inner, done, f"{path}.{index}")
