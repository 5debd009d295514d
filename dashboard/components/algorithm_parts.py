"""The parts of an algorithm, as a run was stored with them and as a person types them."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Kl
from backend.contract.base import Json
from backend.contract.surrogate import Surrogate
from dashboard.form.paths import get
from dashboard.form.widgets import in_words
from dashboard.form.written import read_number

ADVANTAGE: TypeAdapter[Advantage] = TypeAdapter(Advantage)
SURROGATE: TypeAdapter[Surrogate] = TypeAdapter(Surrogate)
KL = TypeAdapter(Kl)
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def stored_part(model: TypeAdapter[T], config: Mapping[str, Json], path: str, otherwise: T) -> T:
    """A stored part of the configuration; `otherwise` where it has none, or this version does not know it."""
    try:
        return model.validate_python(get(dict(config), path))
    except ValidationError:
        return otherwise


def read_settings(model: TypeAdapter[M], settings: Mapping[str, str]) -> M:
    """The settings of a model from what was typed. Raises ValueError with the field and what is wrong with it."""
    values = {name: text if name == "kind" else read_number(text) for name, text in settings.items()}
    try:
        return model.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][-1]) if first["loc"] else ""
        said = (
            "type a number, such as 0.2"
            if first["type"] == "float_parsing"
            else first["msg"].removeprefix("Value error, ")
        )
        raise ValueError(f"{in_words(field)}: {said}" if field in values else said) from None
