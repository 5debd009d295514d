"""How property tests draw: from a fixed seed in `make test`, from a fresh one in `make fuzz`; and what they change in a body."""

from typing import Any

from hypothesis import settings

FIXED, FREE = "fixed", "free"  # the names of the profiles; `make fuzz` asks for the second
USUAL = 100

# A failure in the free profile is kept in .hypothesis and tried first the next time.
settings.register_profile(FIXED, max_examples=USUAL, deadline=None, derandomize=True)
settings.register_profile(FREE, max_examples=10 * USUAL, deadline=None, print_blob=True)
settings.load_profile(FIXED)


def examples(usual: int) -> int:
    """This many in `make test`, and as many times more in `make fuzz` as for a test that names no number."""
    return usual * settings.default.max_examples // USUAL


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a configuration or a body at which a value can be replaced."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in entries for place in places(child, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], other)
    return copy
