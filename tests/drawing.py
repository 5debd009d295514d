"""From which seed property tests draw, and how many examples: a fixed one in `make test`, a fresh one in `make fuzz`."""

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
