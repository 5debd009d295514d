"""The array type that the pure functions share: a numpy array or a torch tensor."""

from typing import Any, TypeAlias

# The array API standard has no static type yet: numpy and torch only share behaviour.
Array: TypeAlias = Any
