"""Reading a large body outside FastAPI's event loop, with the same errors."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from backend.errors import BadRequest, Invalid
from backend.field_errors import field_errors

M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], body: bytes) -> M:
    """The validated body. Raises BadRequest for what is no JSON, and Invalid for wrong fields.

    Python's parser lets lone surrogates through, which the contract's texts then replace.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is no JSON that can be read: {type(error).__name__}.") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), data)) from None
