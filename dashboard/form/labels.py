"""The backend's sentences with the form's labels: it names fields and choices as a configuration file writes them."""

import re
from functools import cache
from itertools import chain

from dashboard.form.schema import FIELDS, Choice, Choices, Union, inside, title
from dashboard.form.widgets import in_words

_PATH = re.compile(
    rf"\b(?:{'|'.join(sorted({field.name for record in FIELDS.values() for field in record.fields}))})(?:\.\w+)+"
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


@cache
def _names() -> frozenset[str]:
    """Every field and every choice of a configuration."""
    found = [field for fields in FIELDS.values() for field in inside(fields)]
    choices = [field.options for field in found if isinstance(field, Choice | Choices)]
    kinds = [tuple(field.kinds) for field in found if isinstance(field, Union)]
    return frozenset(chain((field.name for field in found), *choices, *kinds))
