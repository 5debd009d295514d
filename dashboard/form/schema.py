"""Reads the JSON Schema of a configuration into a tree of fields, the few kinds that a form has widgets for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from backend.contract.base import Json

Schema: TypeAlias = Mapping[str, Json]
LONG_TEXT = 1000  # a text that may be longer is written in a box of several lines


class UnreadableSchema(Exception):
    """The schema holds a construct that the form has no widget for."""


@dataclass(frozen=True)
class Field:
    """What all fields share. `default` is None also where there is none: `required` tells."""

    name: str
    help: str = ""
    default: Json = None
    required: bool = False
    optional: bool = False  # null is a value


@dataclass(frozen=True)
class Constant(Field):
    """A value that cannot be chosen, such as `kind`."""


@dataclass(frozen=True)
class Flag(Field):
    """True or false."""


@dataclass(frozen=True)
class Whole(Field):
    """A whole number between two bounds."""

    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True)
class Real(Field):
    """A number with a fraction, typed as people write it: 2e-4."""


@dataclass(frozen=True)
class Text(Field):
    """A text; `long` ones may have several lines."""

    long: bool = False


@dataclass(frozen=True)
class Choice(Field):
    """One of a few words."""

    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choices(Field):
    """Some of a few words."""

    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lines(Field):
    """A list of texts, or the one word that stands for a list of its own."""

    word: str | None = None


@dataclass(frozen=True)
class Settings(Field):
    """Free names and their values."""


@dataclass(frozen=True)
class Record(Field):
    """Named fields."""

    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Union(Field):
    """One of several records, told apart by `kind`."""

    kinds: Mapping[str, Record] = field(default_factory=dict)


@dataclass(frozen=True)
class Many(Field):
    """A list of records or unions."""

    item: Record | Union = field(default_factory=lambda: Record(""))
    minimum: int = 0
    maximum: int | None = None


def read_schema(schema: Schema) -> Record:
    """The configuration's fields. Raises UnreadableSchema."""
    defs = _mapping(schema.get("$defs", {}))
    root = _read("", schema, defs)
    if not isinstance(root, Record):
        raise UnreadableSchema("the schema's root is no object")
    return root


def _read(name: str, schema: Schema, defs: Schema) -> Field:
    options = [_mapping(option) for option in _list(schema.get("anyOf", []))]
    if options:
        return _read_options(name, schema, options, defs)
    if "$ref" in schema:
        schema = {**_mapping(defs[str(schema["$ref"]).removeprefix("#/$defs/")]), **schema}
        del schema["$ref"]
        return _read(name, schema, defs)
    shared = Field(name, help=str(schema.get("description", "")), default=schema.get("default"))
    if "discriminator" in schema:
        return _read_union(shared, schema, defs)
    if "const" in schema:
        return _as(Constant, shared, default=schema["const"])
    if "enum" in schema:
        return _as(Choice, shared, options=_words(schema["enum"]))
    match schema.get("type"):
        case "object":
            return _read_object(shared, schema, defs)
        case "array":
            return _read_list(shared, schema, defs)
        case "boolean":
            return _as(Flag, shared)
        case "integer":
            return _as(Whole, shared, minimum=schema.get("minimum"), maximum=schema.get("maximum"))
        case "number":
            return _as(Real, shared)
        case "string":
            return _as(Text, shared, long=_whole(schema.get("maxLength"), 0) > LONG_TEXT)
    raise UnreadableSchema(f"{name}: no widget for {sorted(schema)}")


def _read_options(name: str, schema: Schema, options: Sequence[Schema], defs: Schema) -> Field:
    """`X or null`, or `a list or one word`."""
    rest = [option for option in options if option.get("type") != "null"]
    outer: dict[str, Json] = {key: value for key, value in schema.items() if key in ("default", "description")}
    if len(rest) == 1:
        read = _read(name, {**rest[0], **outer}, defs)
        return replace(read, optional=len(options) > 1, default=schema.get("default"))
    words = [option["const"] for option in rest if "const" in option]
    lists = [option for option in rest if option.get("type") == "array"]
    if len(rest) == 2 and len(words) == 1 and len(lists) == 1:
        read = _read(name, {**lists[0], **outer}, defs)
        if isinstance(read, Lines):
            return replace(read, word=str(words[0]))
    raise UnreadableSchema(f"{name}: no widget for a choice of {len(rest)} types")


def _read_object(shared: Field, schema: Schema, defs: Schema) -> Field:
    if "properties" not in schema:
        return _as(Settings, shared)
    required = _list(schema.get("required", []))
    fields = [_read(name, _mapping(inner), defs) for name, inner in _mapping(schema["properties"]).items()]
    return _as(Record, shared, fields=tuple(replace(inner, required=inner.name in required) for inner in fields))


def _read_union(shared: Field, schema: Schema, defs: Schema) -> Union:
    mapping = _mapping(_mapping(schema["discriminator"])["mapping"])
    kinds: dict[str, Record] = {}
    for kind in [str(_mapping(option)["$ref"]) for option in _list(schema["oneOf"])]:
        name = next(word for word, ref in mapping.items() if ref == kind)
        record = _read(name, {"$ref": kind}, defs)
        if not isinstance(record, Record):
            raise UnreadableSchema(f"{shared.name}: {name} is no object")
        kinds[name] = record
    return Union(shared.name, help=shared.help, default=shared.default, kinds=kinds)


def _read_list(shared: Field, schema: Schema, defs: Schema) -> Field:
    items = _mapping(schema.get("items", {}))
    if "enum" in items:
        return _as(Choices, shared, options=_words(items["enum"]))
    if items.get("type") == "string":
        return _as(Lines, shared)
    item = _read("", items, defs)
    if not isinstance(item, Record | Union):
        raise UnreadableSchema(f"{shared.name}: no widget for a list of {type(item).__name__}")
    return Many(
        shared.name,
        help=shared.help,
        item=item,
        minimum=_whole(schema.get("minItems"), 0),
        maximum=_whole(schema.get("maxItems"), 0) or None,
    )


def _as(kind: type[Field], shared: Field, **own: object) -> Field:
    return kind(**{**vars(shared), **own})


def _mapping(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise UnreadableSchema(f"an object was expected, not {value!r}")
    return value


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _words(value: Json) -> tuple[str, ...]:
    return tuple(str(word) for word in _list(value))


def _whole(value: Json, default: int) -> int:
    return value if isinstance(value, int) else default


_WORDS = {"lora": "LoRA", "kl": "KL", "std": "std", "eps": "ε", "dtype": "precision", "eval": "evaluation"}
_WORDS |= {"logprob": "log-prob", "logprobs": "log-probs", "lam": "lambda", "grad": "gradient", "gib": "GiB"}


def title(name: str) -> str:
    """A field's name in words: `top_k` is Top k, `kl` is KL, `eps` is ε."""
    words = " ".join(_WORDS.get(word, word) for word in name.split("_"))
    return words[:1].upper() + words[1:] if words.isascii() else words
