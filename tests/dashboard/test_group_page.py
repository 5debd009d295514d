"""A group's page against a real backend."""

import re
from html import unescape
from statistics import fmean, pstdev

import pytest
import recorded
from answers import completion_of
from following import follow
from on_screen import Open, shown
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.groups import GroupSummary
from dashboard.components.table import frame
from dashboard.group.cards import equal_ones, places
from dashboard.group.rows import ENDING, columns

backend = pytest.fixture(one_for_all)  # no test changes the groups that another reads


@pytest.fixture(scope="module")
def groups(shared_backend: Backend) -> list[int]:
    """The ids of a live, a dead and an unscored group, in this order."""
    run_id, claimed = recorded.started(shared_backend.client, "some run")
    reported = [
        recorded.group_of(0, [0.1, 1.0, 0.0, 1.0]),
        recorded.group_of(1, [1.0, 1.0, 1.0, 1.0]),
        recorded.group_of(2, [None, None, None, 0.1]),
    ]
    trace = recorded.trace_of(reported)
    shared_backend.client.report(run_id, p.Report(attempt=claimed.attempt, seq=0, step=7, groups=reported, trace=trace))
    return [group.id for group in shared_backend.client.groups(run_id).items]


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_a_group_that_a_resume_took_back_is_not_counted_among_the_draws(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    drawn = [recorded.group_of(index, [0.1, 1.0]) for index in (3, 4)]
    recorded.report(backend.client, run_id, recorded.claim(backend.client, run_id).attempt, 7, drawn)
    groups = [group.id for group in backend.client.groups(run_id).items]
    assert "no other draw in this run" in link_labels(open_page("group", id=groups[0]))
    backend.client.finish(run_id, p.Finish(attempt=1, outcome="released"))
    recorded.claim(backend.client, run_id)
    taken_back = open_page("group", id=groups[1])
    assert "no other draw in this run" in link_labels(taken_back)
    assert "**Group 5** :gray[· superseded" in shown(taken_back)
    assert all(taken_back.button(key=f"group-{way}").disabled for way in ("back", "forth"))


def test_who_is_asked_which_is_better_is_not_told_the_rewards(open_page: Open, groups: list[int]) -> None:
    at = open_page("group", id=groups[0], wi_open="true", panel="which is better?")
    assert "reward, what if" not in {name for frame in at.dataframe for name in frame.value}
    at.pills(key="panel").set_value("difference").run()
    assert "reward, what if" in {name for frame in at.dataframe for name in frame.value}


def test_judging_leads_from_the_newest_group_that_is_not_settled_to_the_next_across_steps(
    open_page: Open, backend: Backend
) -> None:
    run_id, claim = recorded.started(backend.client)
    for step in range(3):
        rewards = [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]] if step != 1 else [[1.0, 1.0]]
        reported = [recorded.group_of(index, totals) for index, totals in enumerate(rewards)]
        recorded.report(backend.client, run_id, claim.attempt, step, reported)
    first, second = (one.id for one in backend.client.groups(run_id, step=2, state="live").items)
    oldest = backend.client.groups(run_id, step=0, state="live").items[0].id

    def settle(group_id: int) -> None:
        better, worse = backend.client.group(group_id).completions
        backend.client.people.choose(group_id, better=better.id, worse=worse.id)

    settle(first)
    judge = open_page("run", id=run_id, tab="judgement")
    judge.button(key=f"judge-{run_id}").click().run()
    judge.run()  # the run has moved before the browser has left: the way on is still there
    at = follow(judge)
    assert at.query_params["id"] == str(second)
    settle(second)
    at = at.button(key=f"next-from-{second}").click().run()
    assert not at.exception
    assert (at.query_params["id"], at.query_params["panel"]) == (str(oldest), "which is better?")
    for group in backend.client.groups(run_id, state="live").items:
        settle(group.id)
    at = at.button(key=f"next-from-{oldest}").click().run()
    assert at.query_params["id"] == str(oldest)
    assert "No other group has pairs left" in at.toast[0].value


def link_labels(at: AppTest) -> str:
    return "\n".join(element.proto.label for element in at.get("page_link"))


def test_the_numbers_shown_follow_from_each_other_the_reward_from_its_components_and_the_advantages_from_the_rewards(
    open_page: Open, groups: list[int]
) -> None:
    table = open_page("group", id=groups[0], layout="table").dataframe[0].value
    rewards = [number(reward) for reward in table["reward"]]
    expected = [(reward - fmean(rewards)) / (pstdev(rewards) + 1e-8) for reward in rewards]
    assert [number(advantage) for advantage in table["advantage"]] == pytest.approx(expected, rel=1e-5)

    for _, row in table.iterrows():
        products = [row[name].split(" × ") for name in ("correctness", "format")]
        assert sum(number(raw) * number(weight) for raw, weight in products) == pytest.approx(number(row["reward"]))


def cards(at: AppTest) -> list[str]:
    """What stands on each card, without the elements."""
    inside = [html.value for html in at.get("html") if html.value.startswith('<div class="completion"')]
    return [unescape(re.sub("<[^>]*>", " ", html)) for html in inside]


def test_each_completion_has_its_card_with_its_advantage_and_they_are_ordered_by_it_when_asked(
    open_page: Open, backend: Backend, groups: list[int]
) -> None:
    shown_cards = cards(open_page("group", id=groups[0], apart="true"))
    stored = backend.client.group(groups[0]).completions
    chips = [number(re.search(r"A\s+([+−-]?[\d.]+)", card).group(1)) for card in shown_cards]
    assert chips == pytest.approx([completion.advantage for completion in stored], abs=0.01)
    assert all(completion.text in card for completion, card in zip(stored, shown_cards, strict=True))
    assert "best" in shown_cards[1]
    assert "worst" in shown_cards[2]

    at = open_page("group", id=groups[0], order="by advantage", apart="true")
    assert [card.split()[0] for card in cards(at)] == ["2", "4", "1", "3"]


def heads(at: AppTest) -> list[str]:
    """The places for which each card stands, and how many they are."""
    return [card.partition("reward")[0].strip() for card in cards(at)]


def test_the_cards_share_equal_completions_and_name_unit_completion_prompt_and_neighbours(
    open_page: Open, groups: list[int], backend: Backend
) -> None:
    at = open_page("group", id=groups[1])
    assert heads(at) == ["1–4  · × 4"]
    assert not at.toggle(key="apart").value
    at.toggle(key="apart").set_value(True).run()
    assert heads(at) == ["1", "2", "3", "4"]
    at = open_page("group", id=groups[0])
    assert heads(at) == ["1", "2, 4  · × 2 · best", "3  · worst"]

    shared, _ = cards(at)[1:]
    assert re.search(r"numbers of completion 2: +KL \S+ · entropy \S+ nats per token · ratio", shared)

    codes = [code.value for code in at.code]
    assert backend.client.group(groups[0]).prompt_text.replace(" ", "·") in codes

    assert at.button(key="group-back").disabled
    at.button(key="group-forth").click().run()
    assert at.query_params["id"] == str(groups[1])
    assert "**Group 2** of 3" in shown(at)


def test_completions_that_differ_in_score_or_ending_alone_are_not_equal() -> None:
    cut, other, failed = (
        completion_of(1, 1.0, 0, finish_reason="length"),
        completion_of(2, 0.5, 0),
        completion_of(3, None, 0),
    )
    first, last = completion_of(0, 1.0, 0), completion_of(4, 1.0, 0)
    assert equal_ones([first, cut, other, failed, last]) == [[first, last], [cut], [other], [failed]]
    assert [places(indices) for indices in ([0], [0, 1], [7, 2, 3, 0])] == ["1", "1–2", "1, 3–4, 8"]


def test_of_a_long_text_in_the_table_of_groups_the_end_is_seen() -> None:
    known = recorded.group_of(0, [1.0, 0.0]).model_dump(exclude={"completions"})
    numbers = {"id": 1, "run_id": 1, "attempt": 1, "step": 0, "rewards": [1.0, 0.0], "advantages": [1.0, -1.0]}
    ends = {"best": "no, " * 20 + "<answer>8</answer>", "worst": "nine"}
    group = GroupSummary.model_validate({**known, **numbers, **ends})
    [row] = frame([group], columns([group], 1.0)).to_dict("records")
    assert row["best"].startswith("…")
    assert row["best"].endswith("<answer>8</answer>")
    assert len(row["best"]) == 1 + ENDING
    assert row["worst"] == "nine"


def test_a_completion_is_opened_by_its_address_and_does_not_stand_among_the_cards_too(
    open_page: Open, groups: list[int]
) -> None:
    at = open_page("group", id=groups[0], tokens=2)
    assert heads(at) == ["2  · best", "1", "3  · worst", "4"]

    assert at.button(key="completion-back").disabled is False
    at.button(key="completion-forth").click().run()
    assert at.query_params["tokens"] == "3"
    assert heads(at) == ["3  · worst", "1", "2, 4  · × 2 · best"]


def test_a_dead_group_says_why_nothing_is_learned_and_an_unscored_one_shows_each_error(
    open_page: Open, groups: list[int]
) -> None:
    at = open_page("group", id=groups[1], layout="table")
    assert "**Dead:** all 4 scored completions got 1.00" in shown(at)
    assert set(at.dataframe[0].value["how"]) == {"1 − 1 = 0: all rewards are equal"}

    at = open_page("group", id=groups[2], apart="true")
    assert "**Unscored:** only 1 of 4" in shown(at)
    assert sum("Traceback: the verifier gave up" in card for card in cards(at)) == 3
    assert not any("None" in card for card in cards(at))


def test_whitespace_becomes_visible_on_demand(open_page: Open, backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    group = recorded.group_of(0, [1.0, 0.1], texts=["a b\n\tc", "d"])
    recorded.report(backend.client, run_id, recorded.claim(backend.client, run_id).attempt, 0, [group])
    at = open_page("group", id=backend.client.groups(run_id).items[0].id)
    assert "a b\n\tc" in cards(at)[0]
    at.toggle(key="visible").set_value(True).run()
    assert "a·b⏎\n⇥\tc" in cards(at)[0]


def test_an_address_without_a_group_leads_back(open_page: Open) -> None:
    assert "does not name a group" in shown(open_page("group"))
