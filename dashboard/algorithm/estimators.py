"""The estimators as people read of them: what each does, its formula with a group's numbers in it, and what dead means for it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from backend.contract.advantage import Advantage, BatchStd, Estimator, GroupZscore, NormalizeThenSum
from backend.contract.algorithm import Algorithm
from backend.contract.base import Json
from dashboard.algorithm.rewards import AnyCompletion, AnyGroup, all_equal, exact
from dashboard.stored import get, is_recorded, part, text_at

ADVANTAGE: TypeAdapter[Advantage] = TypeAdapter(Advantage)
Spell = Callable[[str, AnyGroup, Estimator], str]


@dataclass(frozen=True)
class Words:
    """One kind of estimator in words. Everything else that the pages need to know of it stands in the contract."""

    sentence: str
    live: str = (
        "Each completion is compared with its own group: above the mean it is reinforced, below the mean discouraged."
    )
    equal: str = ""  # what equal rewards do, if such a group is not dead; `mean` is the group's
    dead: str = ""  # what is equal in a dead group, if it is not the rewards
    spell: Spell | None = (
        None  # an advantage from a reward; None if it takes more than the group's rewards, mean and std
    )
    remark: str = ""  # what the numbers in that formula are; `others` is the size of the rest of the group
    formula: str = ""  # in place of `spell` and `remark`
    account: Callable[[float], str] = lambda _: ""  # where an advantage comes from, in place of `spell`


def _deviation(reward: str, group: AnyGroup, _: Estimator) -> str:
    return f"{reward} − {exact(group.reward_mean)}"


def _divided(reward: str, group: AnyGroup, chosen: Estimator) -> str:
    std = exact(group.reward_std)
    if isinstance(chosen, GroupZscore) and chosen.std_floor:
        std = f"max({std}, {chosen.std_floor:g})"
    return f"({_deviation(reward, group, chosen)}) / ({std} + {_eps(chosen)})"


def _share(reward: str, group: AnyGroup, _: Estimator) -> str:
    """e^reward over the sum of these; huge rewards less the highest, so that no exponential overflows."""
    rewards = [completion.reward for completion in group.completions if completion.reward is not None]
    highest = max(rewards, default=0.0)
    shift = highest if abs(highest) > 100 else 0.0
    exponent = f"({reward} − {exact(shift)})" if shift else reward
    return f"e^{exponent} / {exact(math.fsum(math.exp(reward - shift) for reward in rewards))}"


def _eps(chosen: Estimator) -> str:
    return f"{chosen.eps:g}" if isinstance(chosen, GroupZscore | BatchStd | NormalizeThenSum) else ""


def _place(advantage: float) -> str:
    if advantage > 0:
        return "the best of the group"
    return "the worst of the group" if advantage < 0 else "neither"


WORDS: Mapping[str, Words] = {
    "group_zscore": Words("Reward minus the group's mean, in standard deviations of the group (GRPO).", spell=_divided),
    "group_center": Words(
        "Reward minus the group's mean, undivided (Dr. GRPO): a group that nearly agrees is not blown up.",
        spell=_deviation,
    ),
    "batch_std": Words(
        "Reward minus the group's mean, in standard deviations of the whole batch: groups keep their relative size.",
        spell=_divided,
        remark=", the std being the whole batch's",
    ),
    "softmax": Words(
        "e^reward, shared out over the group: weights that add up to 1, none negative.",
        live="Each completion gets a weight, and the weights add up to 1: none is discouraged, a better one is reinforced more.",
        equal="each weighs the same, 1/G, and the policy is drawn to all of them alike",
        spell=_share,
        remark=", the sum of these over the group",
    ),
    "leave_one_out": Words(
        "Reward minus the mean of the other completions (RLOO).",
        spell=lambda reward, group, chosen: (
            f"({_deviation(reward, group, chosen)}) × {group.scored} / {group.scored - 1}"
        ),
        remark=", which is reward − mean of the other {others}",
    ),
    "batch_baseline": Words(
        "Reward minus the mean of the whole batch (REINFORCE with a baseline): an easy group is reinforced as a whole.",
        live="Each completion is compared with the mean of the whole batch: above that mean it is reinforced, below that mean discouraged.",
        equal="they are compared with the whole batch, whose mean was {mean}; unless they equal that mean, they still move the policy",
        spell=_deviation,
        remark=", the mean of the whole batch",
    ),
    "none": Words(
        "The reward itself (vanilla policy gradient): with rewards of 0 and 1, nothing is ever discouraged.",
        live="Nothing is compared: a reward above 0 reinforces its completion, one below 0 discourages it, and 0 leaves it alone.",
        equal="the advantage is the reward itself, which still moves the policy unless it is 0",
        spell=lambda reward, *_: reward,
    ),
    "normalize_then_sum": Words(
        "Each reward function z-scored in the group, weighted, added, z-scored again (GDPO): no function drowns another.",
        live="The scores of each reward function are compared within the group, and the results are weighted and added up.",
        dead="no reward function tells two completions apart",
        formula="Σ weight × (reward − mean) / (std + {eps}), each reward function within the group; then the same once more with "
        "that sum, over the whole batch",
        account=lambda _: "each reward normalised in its group, weighted, added, and that normalised over the batch",
    ),
    "best_worst": Words(
        "+1 for the best, −1 for the worst, 0 for the rest: the pair that DPO would be given.",
        live="The first of the best completions is reinforced, the first of the worst discouraged; the others are left as they are.",
        formula="+1 for the first of the best, −1 for the first of the worst, 0 for all others",
        account=_place,
    ),
    "gae": Words(
        "An advantage for each token, from what a value head expects there (PPO).",
        live="Each token is compared with what the value head expected there: better is reinforced, worse discouraged.",
        equal="their tokens are compared with the value head, and the policy is still moved",
        formula="the mean of the completion's token advantages, which come from the value head (GAE)",
        account=lambda _: "the mean of its tokens' advantages",
    ),
}


UNKNOWN = "unknown"
"""The kind where another trainer has not said how its rewards become advantages."""
_UNKNOWN = Words(
    "",
    live="How rewards became advantages was not recorded. An advantage is shown if the trainer reported it.",
    formula="as the trainer reported it; how it was computed was not recorded",
    account=lambda _: "as the trainer reported it",
)


def stored_estimator(config: Mapping[str, Json]) -> Estimator:
    """The estimator of a stored configuration; one that this version cannot read is known by its kind alone."""
    path = "algorithm.advantage"
    if get(dict(config), path) is None:
        return Estimator(kind=UNKNOWN) if is_recorded(config) else Algorithm().advantage
    return part(ADVANTAGE, config, path, Estimator(kind=text_at(config, f"{path}.kind", UNKNOWN)))


def words_of(chosen: Estimator) -> Words:
    """The words for the estimator."""
    if chosen.kind == UNKNOWN:
        return _UNKNOWN
    by_name = f"by {chosen.kind}"
    return WORDS.get(chosen.kind, Words("", formula=by_name, account=lambda _: by_name))


def mean_of(chosen: Estimator) -> str:
    """Which mean a group's `reward_mean` is."""
    return "batch" if chosen.compares == "batch" else "group"


def std_of(chosen: Estimator) -> str:
    """Which standard deviation a group's `reward_std` is."""
    if chosen.divides_by == "batch":
        return "batch"
    if chosen.kind == UNKNOWN:
        return "as reported"
    return chosen.std if isinstance(chosen, GroupZscore) else "population"


def formula(group: AnyGroup, chosen: Estimator) -> str:
    """The estimator with this group's numbers in it."""
    if group.state == "filtered":
        return "no advantage: replaced before anything was trained on it"
    if group.state == "probe":
        return "no advantage: a probe is scored and never trained on"
    if chosen.kind == UNKNOWN and all(completion.advantage is None for completion in group.completions):
        return "no advantage was recorded"
    if any(one.unweighed for one in group.completions):
        return "advantage: as the trainer computed it, from rewards whose weights were not recorded"
    if group.reward_mean is None or (chosen.centred and group.state == "unscored"):
        return "no advantage: fewer than two completions were scored"
    words = words_of(chosen)
    if words.spell is None:
        return f"advantage = {words.formula.format(eps=_eps(chosen))}"
    return f"advantage = {words.spell('reward', group, chosen)}{words.remark.format(others=group.scored - 1)}"


def spell_advantage(completion: AnyCompletion, group: AnyGroup, chosen: Estimator) -> str:
    """(1 − 0.625) / (0.484123 + 1e-08) = +0.774597, as the run computed it."""
    if completion.reward is None and not completion.unweighed:
        return "not scored: it moves neither the mean nor the policy"
    if completion.advantage is None:
        return "not recorded" if chosen.kind == UNKNOWN else "not trained on"
    advantage, words = exact(completion.advantage, sign=True), words_of(chosen)
    if completion.reward is None:
        return f"{advantage}, as the trainer computed it: the weights of the rewards were not recorded"
    if chosen.centred and group.state == "unscored":
        return f"{advantage}: fewer than two completions were scored"
    if chosen.centred and group.state == "zero_variance" and all_equal(group):
        zero = f"{_deviation(exact(completion.reward), group, chosen)} = 0" if words.spell else "0"
        return f"{zero}: {words.dead or 'all rewards are equal'}"
    if words.spell is None or group.reward_mean is None:
        return f"{advantage}: {words.account(completion.advantage)}"
    return f"{words.spell(exact(completion.reward), group, chosen)} = {advantage}"
