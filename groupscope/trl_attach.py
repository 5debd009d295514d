"""`groupscope.watch`: what it can follow, what it refuses, and which of the watchers follows."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from backend.contract.connection import Connection
from backend.contract.home import CannotStart, load
from backend.contract.protocol import Recording
from groupscope.recording import show_log
from groupscope.trl import Watcher, arguments_of, known
from groupscope.trl_async import AsyncWatcher

NEEDED = ("_generate_and_score_completions", "_get_per_token_logps_and_entropies", "num_generations")
OPTIONS = ("name", "tags", "notes", "run_id", "backend", "home")


def attach(trainer: Any, **options: Any) -> None:
    """Have the trainer tell of its groups. Raises CannotStart without a token, and for what cannot be watched."""
    asynchronous = hasattr(trainer, "rollout_queue")
    if not (asynchronous or all(hasattr(trainer, one) for one in NEEDED)):
        raise CannotStart(
            f"groupscope.watch cannot follow {type(trainer).__name__}: it follows TRL's GRPOTrainer, RLOOTrainer and "
            "AsyncGRPOTrainer, and Unsloth's; groupscope.start_run records what a script of yours logs"
        )
    _check(trainer, options)
    if trainer.accelerator.is_main_process:
        show_log()
        load(Connection, home=options.get("home"), backend_url=options.get("backend")).client().close()  # said now
    watches = [one for one in trainer.callback_handler.callbacks if isinstance(one, Watcher)]
    if watches:  # a notebook's cell that ran again
        watches[0].options = dict(options)
        return
    watcher: Watcher = (AsyncWatcher if asynchronous else Watcher)(trainer, options)
    trainer.train = partial(watcher.train, trainer.train)
    watcher.wrap(trainer)
    trainer.add_callback(watcher)


def _check(trainer: Any, options: Mapping[str, Any]) -> None:
    """Raises CannotStart for an unknown option, or a value that a run cannot have: later it would go into a log."""
    if wrong := [name for name in options if name not in OPTIONS]:
        raise CannotStart(f"groupscope.watch has no option {wrong[0]}: it has {', '.join(OPTIONS)}")
    try:
        config = {"trainer": {"name": "TRL"}, "theirs": arguments_of(trainer), **known(trainer, trainer.args.max_steps)}
        given = {name: options[name] for name in OPTIONS[:4] if name in options}
        Recording.model_validate({"key": "0" * 16, "worker": "here", "config": config, "name": "TRL", **given})
    except ValidationError as error:
        where, why = ".".join(map(str, error.errors()[0]["loc"])), error.errors()[0]["msg"]
        raise CannotStart(f"groupscope.watch cannot record this: {where}: {why}") from None
