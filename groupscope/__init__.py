"""Groupscope for scripts: tell it of the groups that another program trains on. It needs neither torch nor a server here."""

from typing import Any

from groupscope.conversation import Turn, turns_of
from groupscope.recording import Completion, Group, Recording, start_run
from groupscope.tokens import Tokens

__all__ = ["Completion", "Group", "Recording", "Tokens", "Turn", "start_run", "turns_of", "watch"]


def watch(trainer: Any, **options: Any) -> None:
    """Record every group that TRL's or Unsloth's GRPOTrainer trains on, from its `train()` on; call it before that.

    The options are those of `start_run`: name, tags, notes, backend, home. Raises CannotStart without a token to show.
    """
    from groupscope.trl import attach

    attach(trainer, **options)
