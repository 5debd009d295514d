"""Finished runs whose reward is a function of the text, so that a test knows what it pays for."""

import random
from collections.abc import Callable, Sequence

from acting import GRPO, Actor
from serving import Backend

from backend.contract.groups import CompletionData, GroupReport, RewardScore

WORDS = "we add both numbers carry one then write down what remains of it and look".split()
Reward = Callable[[str, int], float | None]


def odd(text: str, _place: int) -> float:
    """A truth that no property of a text has to do with."""
    return float(len(text) % 2)


PHRASE = "as an expert"


def answers(draw: random.Random, size: int, expert: float, phrase: str) -> list[str]:
    """Texts that differ in length, digits, tags and words; `expert` is the share of those with the phrase."""
    texts = []
    for _ in range(size):
        spoken = draw.choices(WORDS, k=draw.randint(6, 30))
        spoken += [str(draw.randint(0, 999)) for _ in range(draw.randint(0, 6))]
        draw.shuffle(spoken)
        if draw.random() < expert:
            spoken.insert(draw.randrange(len(spoken)), phrase)
        text = " ".join(spoken)
        texts.append(f"<answer>{text}</answer>" if draw.random() < 0.5 else text)
    return texts


def report(index: int, texts: Sequence[str], pays: Reward, truth: Reward, prompt_id: str) -> GroupReport:
    """A group whose reward is what a function `pays`; what is right is only measured."""
    rewards = [pays(text, place) for place, text in enumerate(texts)]
    known = [each for each in rewards if each is not None]
    return GroupReport(
        index=index,
        prompt_id=prompt_id,
        prompt_text=f"Add the numbers of {prompt_id}",
        prompt=f"Add the numbers of {prompt_id}",
        state="live" if len({*known}) > 1 else "zero_variance",
        scored=len(known),
        completions=[
            CompletionData(
                index=place,
                text=text,
                token_count=len(text.split()),
                finish_reason="stop",
                rewards=[
                    RewardScore(name="judge", raw=reward, weight=1.0),
                    RewardScore(name="truth", raw=truth(text, place), weight=0.0),
                ],
                reward=reward,
            )
            for place, (text, reward) in enumerate(zip(texts, rewards, strict=True))
        ],
    )


def trained(
    backend: Backend,
    pays: Reward,
    *,
    steps: int = 16,
    groups: int = 4,
    size: int = 8,
    truth: Reward = odd,
    expert: Callable[[int], float] = lambda _: 0.4,
    phrase: str = PHRASE,
) -> int:
    """A finished run with the rewards that `pays` gives to texts; `expert` is the share with the phrase, by step."""
    backend.client.create_run(GRPO)
    actor, draw = Actor(backend.client).begin(), random.Random(0)
    for step in range(steps):
        drawn = [
            report(index, answers(draw, size, expert(step), phrase), pays, truth, f"item {step} {index}")
            for index in range(groups)
        ]
        actor.report(step, metrics={"reward": 0.0}, groups=drawn)
    actor.finish()
    return actor.run_id
