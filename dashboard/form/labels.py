"""The backend's sentences with the form's labels: it names fields and choices as a configuration file writes them."""

import re
from collections.abc import Iterator
from functools import lru_cache

from backend.contract.base import Json
from backend.contract.config import MODELS
from dashboard.form.schema import title
from dashboard.form.widgets import in_words

_PATH = re.compile(
    rf"\b(?:{'|'.join(sorted({name for model in MODELS.values() for name in model.model_fields}))})(?:\.\w+)+"
)
_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def in_labels(text: str) -> str:
    """`optimizer.micro_batch_tokens` is Optimizer › Micro batch tokens, group_zscore is group z-score; other names stay."""
    known = _names()
    text = _PATH.sub(lambda found: place(found[0]), text)
    return _NAME.sub(lambda found: in_words(found[0]) if found[0] in known else found[0], text)


def place(path: str) -> str:
    """A field with the parts of the form that it stands in: Sampling › Top k."""
    return " › ".join(title(part) for part in path.split(".") if not part.isdecimal())


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """Every field and every choice of a configuration."""
    return frozenset(name for model in MODELS.values() for name in _named(model.model_json_schema()))


def _named(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        properties, choices = schema.get("properties"), schema.get("enum")
        for names in (properties if isinstance(properties, dict) else (), choices if isinstance(choices, list) else ()):
            yield from (name for name in names if isinstance(name, str))
        if isinstance(schema.get("const"), str):
            yield str(schema["const"])
        for value in schema.values():
            yield from _named(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _named(value)
