"""The word, colour and icon of each state of a run and a group, everywhere the same."""

from dataclasses import dataclass
from typing import Literal

from backend.contract.groups import CompletionData, FinishReason, GroupState
from backend.contract.records import BETWEEN_STEPS, PHASES, STOPS, Run, Status
from dashboard.format import plain

Colour = Literal["gray", "blue", "orange", "green", "red", "violet"]


@dataclass(frozen=True)
class Look:
    """How a state is shown: never by colour alone."""

    word: str
    colour: Colour
    icon: str

    @property
    def markdown(self) -> str:
        """Icon and word in their colour, for a Streamlit label."""
        return f":{self.colour}[{self.icon} {self.word}]"


RUN: dict[Status, Look] = {
    "queued": Look("queued", "gray", ":material/radio_button_unchecked:"),
    "running": Look("running", "blue", ":material/play_circle:"),
    "paused": Look("paused", "orange", ":material/pause_circle:"),
    "finished": Look("finished", "green", ":material/check_circle:"),
    "failed": Look("failed", "red", ":material/cancel:"),
    "stopped": Look("stopped", "orange", ":material/stop_circle:"),
}
AGAIN: dict[Status, tuple[str, str]] = {
    "failed": ("Retry", ":material/refresh:"),
    "stopped": ("Continue", ":material/play_arrow:"),
}
"""What the command `retry` is called for a run that ended so, and its icon: nobody looks for a retry of what did not fail."""
FINISHED: dict[FinishReason, str] = {"stop": "ended by itself", "length": "cut at the token limit"}
PAUSING = Look("pausing", "orange", ":material/pause_circle:")
STOPPING = Look("stopping", "orange", ":material/stop_circle:")

GROUP: dict[GroupState, Look] = {
    "live": Look("live", "blue", ":material/bolt:"),
    "zero_variance": Look("dead", "gray", ":material/remove:"),
    "unscored": Look("unscored", "red", ":material/help:"),
    "filtered": Look("filtered", "violet", ":material/filter_alt:"),
    "probe": Look("probe", "green", ":material/visibility:"),
}


def look(run: Run) -> Look:
    """The run's state; a requested pause or stop shows until it takes effect, at the next step boundary."""
    if run.status == "running" and run.requested == "pause":
        return PAUSING
    if run.status == "running" and run.requested in STOPS:
        return STOPPING
    return RUN[run.status]


def phase_in_words(phase: str) -> str:
    """What a worker does in this phase of a step or between two; one that is not known has its own name."""
    return (PHASES | BETWEEN_STEPS).get(phase, plain(phase))


def measured(completion: CompletionData) -> bool:
    """Whether its length is known, and with it how it ended: a text has tokens, and a record of another trainer may not say how many."""
    return completion.token_count > 0 or not (completion.text or completion.turns)
