"""A run of the kind `replay`: its steps reported one by one, the last of them with what it was made of."""

from functools import partial

from backend.contract.client import ApiError
from backend.contract.records import Progress
from backend.contract.replay import ReplayConfig
from worker.errors import Interrupted, RunFailure
from worker.replay.records import StepRecord
from worker.replay.replay import Replay, Replayable
from worker.reporter import Channels, Ending, Place, Reporter
from worker.worker import Reads


def read_step(client: Reads, run_id: int, step: int) -> StepRecord:
    """What the run recorded of a step. Raises RunFailure if that was deleted."""
    try:
        return StepRecord(step, client.step_groups(run_id, step), client.step_metrics(run_id, step))
    except ApiError as error:
        text = f"The records of step {step} of run {run_id} cannot be read: {error.message}"
        raise RunFailure("records_gone", text) from error


def run_replay(config: ReplayConfig, replayable: Replayable, place: Place, channels: Channels) -> Ending:
    """Do the steps again and report them. Nothing is lost by leaving at any moment: the next attempt begins where this one did."""
    replay = Replay(replayable)
    reporter = Reporter(place, channels, total_steps=config.steps, elapsed=0.0)

    def show(step: int, phase: str, done: int, total: int) -> None:
        channels.show_or_end(Progress(step=step, total_steps=config.steps, phase=phase, done=done, total=total))

    with reporter:
        before = config.step - replay.from_step
        reporter.start(replay.from_step, f"{before} steps to do again, and step {config.step} to explain")
        try:
            for step in range(replay.from_step, config.step):
                repeated = replay.repeat(step, partial(show, step))
                reporter.metrics(step, repeated.metrics)
            explained = replay.explain(config.step, partial(show, config.step), group=config.group, other=config.other)
            reporter.step(config.step, lambda: explained)
        except Interrupted as interrupted:
            return interrupted.ending
    return "finished"
