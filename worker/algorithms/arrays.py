"""The array type that the pure functions share: a numpy array or a torch tensor."""

from typing import Any, TypeAlias

from array_api_compat import is_torch_array

# The array API standard has no static type yet: numpy and torch only share behaviour.
Array: TypeAlias = Any


def stop_gradient(array: Array) -> Array:
    """The same values as constants. numpy has no gradients to stop, and the array API no word for it."""
    return array.detach() if is_torch_array(array) else array
