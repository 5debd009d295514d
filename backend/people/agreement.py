"""People against the reward."""

from collections.abc import Mapping

from backend.contract.base import Json
from backend.contract.people import Agreement, Disagreement
from backend.people.pairs import Judgement, Pair
from backend.people.preferences import trainable

SHOWN = 50


def agreement(said: Judgement, config: Mapping[str, Json]) -> Agreement:
    """How often the reward is higher for what people find better; `config` is the run's stored one."""
    agreed, undecided = 0, 0
    against: list[Disagreement] = []
    for pair in said.pairs:
        better, worse = pair.better.reward, pair.worse.reward
        if better is None or worse is None or better == worse:
            undecided += 1
        elif better > worse:
            agreed += 1
        else:
            against.append(_disagreement(pair, better, worse))
    return Agreement(
        thumbs_up=said.thumbs_up,
        thumbs_down=said.thumbs_down,
        choices=said.choices,
        pairs=len(said.pairs),
        trainable=len(trainable(config, said.pairs).pairs),
        agreed=agreed,
        disagreed=len(against),
        undecided=undecided,
        disagreements=against[:SHOWN],
    )


def _disagreement(pair: Pair, better_reward: float, worse_reward: float) -> Disagreement:
    return Disagreement(
        group_id=pair.group.id,
        step=pair.group.step,
        group_index=pair.group.index,
        prompt=pair.group.prompt or pair.group.prompt_text,
        better_index=pair.better.index,
        worse_index=pair.worse.index,
        better_reward=better_reward,
        worse_reward=worse_reward,
    )
