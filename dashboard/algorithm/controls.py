"""The choice of an estimator or a surrogate with its own settings, and how settings are read from texts and stored runs."""

from collections.abc import Mapping, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from streamlit.delta_generator import DeltaGenerator

from backend.contract.advantage import ESTIMATORS, Advantage
from backend.contract.algorithm import Kl
from backend.contract.surrogate import Surrogate
from dashboard.algorithm.estimators import ADVANTAGE
from dashboard.algorithm.surrogates import SURROGATE, WORDS
from dashboard.components.synced import chosen, last_good, typed
from dashboard.format import plain
from dashboard.wording import in_words, read_number, show_number

KL = TypeAdapter(Kl)
FROM_REWARDS = tuple(kind for kind, one in ESTIMATORS.items() if one.reads != "tokens")
"""The estimators that work on rewards alone; the others need the value of each token."""
M = TypeVar("M", bound=BaseModel)


def read_settings(model: TypeAdapter[M], settings: Mapping[str, str]) -> M:
    """The settings of a model from typed texts. Raises ValueError with the field and what is wrong with it."""
    values = {name: read_number(text) for name, text in settings.items()}
    try:
        return model.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][-1]) if first["loc"] else ""
        wrong = first["msg"].removeprefix("Value error, ")
        if first["type"] == "float_parsing":
            wrong = "type a number, such as 0.2"
        raise ValueError(f"{in_words(field)}: {wrong}" if field in values else wrong) from None


def choose_estimator(own: Advantage, *, prefix: str = "", options: Sequence[str] = FROM_REWARDS, help: str) -> str:
    """The estimator's kind; `prefix` stands before the names in the address."""
    return chosen("Estimator", f"{prefix}estimator", own.kind, options, words=in_words, help=help)


def estimator_settings(
    kind: str, own: Advantage, *free: DeltaGenerator, prefix: str = ""
) -> tuple[Advantage, str | None]:
    """The estimator with its own settings, in the first of three free places each, and what is wrong with a typed one.

    If the kind is that of `own`, the settings start as they are there.
    """
    defaults = own if kind == own.kind else ADVANTAGE.validate_python({"kind": kind})
    fields, values, places = type(defaults).model_fields, defaults.model_dump(), list(free)
    settings = {"kind": kind}
    if "std" in fields:
        with places.pop(0):
            options, about = get_args(fields["std"].annotation), fields["std"].description
            settings["std"] = chosen("Std", f"{prefix}std", values["std"], options, words=str, help=about)
    if "eps" in fields:
        with places.pop(0):
            settings["eps"] = typed(
                "ε", f"{prefix}eps", show_number(values["eps"]), help="Added to the std, which may be 0."
            )
    if "std_floor" in fields:
        with places.pop(0):
            about = fields["std_floor"].description
            settings["std_floor"] = typed("Floor", f"{prefix}floor", show_number(values["std_floor"]), help=about)
    return last_good(f"{prefix}advantage-{kind}", lambda: read_settings(ADVANTAGE, settings), lambda: defaults)


def surrogate_settings(
    defaults: Surrogate, names: Sequence[str], places: Sequence[DeltaGenerator], *, prefix: str = ""
) -> tuple[Surrogate, str | None]:
    """The surrogate with the settings of these names as they are typed, one in each place, and what is wrong with a typed one."""
    settings = {name: show_number(value) for name, value in defaults.model_dump().items()}
    for name, place in zip(names, places, strict=False):
        with place:
            label, about = WORDS[defaults.kind].labels[name], plain(type(defaults).model_fields[name].description or "")
            settings[name] = typed(label, f"{prefix}{name}", settings[name], help=about, placeholder="none")
    return last_good(f"{prefix}surrogate-{defaults.kind}", lambda: read_settings(SURROGATE, settings), lambda: defaults)
