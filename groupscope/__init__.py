"""Groupscope for scripts: it records the groups that another program trains on. It needs neither torch nor a server here.

What it offers is imported when it is first used: to import the package takes a script no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupscope.conversation import Turn, turns_of
    from groupscope.recording import Completion, Group, Recording, start_run
    from groupscope.tokens import Tokens

__all__ = ["Completion", "Group", "Recording", "Tokens", "Turn", "start_run", "turns_of", "watch"]
_MODULES = {"Turn": "conversation", "turns_of": "conversation", "Tokens": "tokens"}  # the others are of `recording`


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'recording')}"), name)


def __dir__() -> list[str]:
    return __all__


def watch(trainer: Any, **options: Any) -> None:
    """Record every group that TRL's or Unsloth's GRPOTrainer trains on, from its `train()` on; call it before that.

    The options are those of `start_run`: name, tags, notes, backend, home. Raises CannotStart without a token to show.
    """
    from groupscope.trl_attach import attach

    attach(trainer, **options)
