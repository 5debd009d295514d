"""The relative judge: a language model sees all completions of a prompt at once and orders them."""

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from random import Random
from string import ascii_lowercase

import numpy as np

from backend.contract.base import Json
from backend.contract.reading import FIRST
from backend.contract.reward import Ranking
from worker.ranks.ranks import ALONE, Ranks
from worker.rewards.judge import AskQuestion, EndpointScorer, JudgeCache, Unscored, prompt_text, question
from worker.rewards.judge_endpoint import JudgeEndpoint
from worker.tasks.items import Item

UNRIVALLED = 0.5
"""The score of a completion that has nothing to be compared with."""
_ORDER = re.compile(r"\[([^\[\]]*)\]")
_UNCLEAR = re.compile(
    r"(?i)\bworst\W+(?:to|first)\b|\bascending\b|\btie[ds]?\b|\bequal|\[\s*\[|\b(?:rank|score|rating)s\b[\"']?\s*[:=]"
)
_WORST = re.compile(r"(?i)worst|weakest|lowest|least")
_STEP = re.compile(
    r"(?i)(?:[^\w<=≈~≤]|\b(?:then|and|next|followed|by|is|better|than|beats|over|the|answer|best|second|third|last)\b)*"
)


class RankingScorer(EndpointScorer):
    """Scores the completions of a group by their places in the judge's orders: 1 for the first, 0 for the last.

    In each round the answers are shown in another order; of two rounds the second shows the first one's backwards, so that a
    judge that looks at places alone gives everybody the same score. Equal completions are shown once.
    """

    def __init__(self, ranking: Ranking, endpoint: JudgeEndpoint, cache: JudgeCache, reading: int) -> None:
        super().__init__(ranking, endpoint, cache, reading)
        self._ranking = ranking
        self._biases: list[float] = []

    def take_metrics(self, ranks: Ranks = ALONE) -> dict[str, float]:
        """The same, and `position_bias`: the mean correlation of the places at which answers were shown and those they got.

        1 if the judge repeats the order that it is shown, -1 if it turns it round, about 0 if it does not look at it.
        """
        metrics = super().take_metrics(ranks)
        if biases := [*chain(*ranks.gather(self._biases))]:
            metrics[f"judge/{self._ranking.name}/position_bias"] = float(np.mean(biases))
        self._biases.clear()
        return metrics

    def outcomes(self, group: Sequence[tuple[Item, str]], ask: AskQuestion) -> Iterator[dict[str, Json]]:
        """A question for each round; if one gives no order, the whole group stays unscored."""
        item, answers = group[0][0], list(dict.fromkeys(text for _, text in group))
        if len(answers) == 1:
            return iter([{"value": UNRIVALLED} for _ in group])
        rounds = shown_orders(prompt_text(item), answers, self._ranking.rounds)
        replies = [ask(self._question(item, [answers[place] for place in order])) for order in rounds]
        return self._scored([answers.index(text) for _, text in group], rounds, replies)

    def _question(self, item: Item, shown: Sequence[str]) -> str:
        # A policy cannot foresee the name, so that no answer can end itself and begin another.
        mark = "".join(_random_of(shown).choices(ascii_lowercase, k=8))
        listed = "\n\n".join(f"Answer {number}:\n<{mark}>\n{text}\n</{mark}>" for number, text in enumerate(shown, 1))
        return question(self._ranking.instruction, item, completions=listed)

    def _scored(
        self, places: Sequence[int], rounds: Sequence[Sequence[int]], replies: Sequence[Callable[[], str]]
    ) -> Iterator[dict[str, Json]]:
        """The outcomes, computed when the first is asked for."""
        count = len(rounds[0])
        scores = np.zeros(count)
        try:
            for shown, reply in zip(rounds, replies, strict=True):
                text = reply()
                ranks = read_order(text, count, self._reading)
                if ranks is None:
                    why = f"orders no {count} answers, each of which must be named once"
                    raise self.without_verdict(why, text)
                self._biases.append(float(np.corrcoef(np.arange(count), ranks)[0, 1]))
                scores[list(shown)] += 1 - np.array(ranks) / (count - 1)
        except Unscored as unscored:
            error = f"{unscored}\nIt was asked about all {len(places)} completions of the prompt."
            for _ in places:
                yield {"error": error}
            return
        for place in places:
            yield {"value": float(scores[place]) / len(rounds)}


def shown_orders(prompt: str, answers: Sequence[str], rounds: int) -> list[list[int]]:
    """For each round the answers' numbers in the order in which they are shown: the same for the same group, always."""
    random = _random_of([prompt, *answers])
    orders: list[list[int]] = []
    for number in range(rounds):
        if number % 2:
            orders.append(orders[-1][::-1])
        else:
            orders.append(sorted(range(len(answers)), key=lambda _: random.random()))
    return orders


def _random_of(texts: Sequence[str]) -> Random:
    """A generator that is the same for the same texts."""
    return Random(sha256("\0".join(texts).encode(errors="surrogatepass")).digest())


def read_order(reply: str, count: int, reading: int = FIRST) -> list[int] | None:
    """The rank, from 0, of each answer as it was numbered; None if the reply does not name each of them once.

    The order is the last list in brackets that does, or else all numbers of the reply: "2 > 1 > 3". After FIRST, None also if it
    may be another order: ties, the worst first, the rank of each answer, or words between the numbers that are unknown.
    """
    if reading > FIRST and _UNCLEAR.search(reply):
        return None
    for text in [*reversed(_ORDER.findall(reply)), reply]:
        named = [int(number) - 1 for number in re.findall(r"\d{1,9}", text)]
        if sorted(named) == list(range(count)):
            before, *steps = re.split(r"\d+", text)[:-1]
            if reading > FIRST and (_WORST.search(before) or not all(map(_STEP.fullmatch, steps))):
                return None
            return [named.index(answer) for answer in range(count)]
    return None
