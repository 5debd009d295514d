"""What rules look at: plain facts about a run, of which none is asked of the database again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backend.contract.base import Json
from backend.contract.groups import GroupState
from backend.contract.reward_bound import reward_bound
from backend.health.stretch import Stretch

RECENT = 10  # steps that "now" means
HISTORY = 50  # steps that are read, the recent ones included
ENOUGH = 5  # steps without which most rules keep silent: the first ones say little

SOLVED = 0.9  # of the highest reward: what is left to learn is little
NOTHING = Stretch({})


@dataclass(frozen=True)
class GroupFact:
    """A group of the recent steps."""

    step: int
    state: GroupState
    reward_mean: float | None


@dataclass(frozen=True)
class OpenPhase:
    """The phase that the worker said it is in, and for how many seconds it has been saying so."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Facts:
    """A run as rules see it. `config` is the stored one, read as it is; any field of it may be absent."""

    config: Mapping[str, Json]
    status: str = "running"
    step: int = 0  # steps that are done
    history: Mapping[str, Stretch] = field(default_factory=dict)  # the last HISTORY steps, by metric
    start: Mapping[str, Stretch] = field(default_factory=dict)  # the first RECENT steps
    groups: Sequence[GroupFact] = ()  # of the RECENT steps
    phase: OpenPhase | None = None
    silence: float | None = None  # seconds since the worker was last heard of; None: nobody should be heard of
    lease_seconds: float = 30.0
    lost_attempts: int = 0  # that ended without a word

    def recent(self, name: str) -> Stretch:
        """A metric over the last RECENT steps."""
        stretch = self.history.get(name, NOTHING)
        return Stretch({step: value for step, value in stretch.values.items() if step >= self.step - RECENT})

    def began(self, name: str) -> Stretch:
        """A metric over the first RECENT steps, as long as none of them is recent."""
        return self.start.get(name, NOTHING) if self.step >= 2 * RECENT else NOTHING

    def solved(self, share: float = SOLVED) -> bool:
        """Whether the recent reward is at least this share of the highest there is. False where none is known."""
        highest, reward = reward_bound(self.config), self.recent("reward").mean
        return highest is not None and reward is not None and reward >= share * highest
