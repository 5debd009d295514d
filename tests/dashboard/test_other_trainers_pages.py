"""The pages of runs that another program trains, however little it told, and their comparison with a run of ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import recorded
from on_screen import Open, figures, texts
from serving import TOKEN, Backend
from streamlit.testing.v1 import AppTest

import groupscope
from backend.contract.trl import in_our_terms
from groupscope import Completion, Group

KNOWN: dict[str, Any] = {
    "sampling": {"group_size": 2, "prompts_per_step": 1},
    "rewards": {"functions": [{"name": "right", "weight": 1.0}]},
    "algorithm": {"advantage": {"kind": "group_center"}},
    "budget": {"steps": 4},
}


@pytest.fixture
def record(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Records a run of another program: its groups and metrics by step."""
    monkeypatch.setenv("GROUPSCOPE_TOKEN", TOKEN)

    def record_(name: str, groups: list[list[Group]], metrics: list[dict[str, float]], **options: Any) -> int:
        with groupscope.start_run(name, backend=backend.url, home=tmp_path / "scripts", **options) as run:
            for step, each in enumerate(groups):
                run.log_groups(each, step)
            for step, each_ in enumerate(metrics):
                run.log_metrics(each_, step)
        assert run.run_id is not None
        return run.run_id

    return record_


@pytest.fixture
def ours(backend: Backend) -> int:
    run_id = recorded.queue(backend.client, "ours", sampling={"group_size": 2, "prompts_per_step": 1})
    claimed = recorded.train(backend.client, run_id, steps=4, total=4, prompts=1, group_size=2)
    recorded.finish(backend.client, run_id, claimed)
    return run_id


def cards_and_texts(at: AppTest) -> str:
    return f"{texts(at)} {' '.join(element.value for element in at.get('html'))}"


def question(backend: Backend, run_id: int) -> str:
    return backend.client.groups(run_id, limit=1).items[0].prompt


def test_a_prompt_that_two_trainers_drew_is_opened_with_the_draws_of_both(
    open_page: Open, backend: Backend, record: Callable[..., int], ours: int
) -> None:
    text = question(backend, ours)
    theirs = record("theirs", [[Group(text, [Completion("1", reward=1.0), Completion("2", reward=0.0)])]], [])
    at = open_page("compare", runs=f"{ours},{theirs}", view="Prompts")
    query = parse_qs(urlparse(at.dataframe[0].value["side by side"][0]).query)
    assert len(query["prompt"]) == 2  # each trainer has an id of its own
    at = open_page("prompt", prompt=query["prompt"], runs=query["runs"][0])
    assert set(at.dataframe[0].value["run"]) == {f"#{ours}", f"#{theirs}"}
    alone = open_page("prompt", prompt=query["prompt"][0], runs=ours)
    assert f"#{theirs} theirs" in alone.multiselect(key="of-runs").options


def test_of_settings_only_those_that_both_have_are_compared_and_the_others_stand_apart(
    open_page: Open, record: Callable[..., int], ours: int
) -> None:
    theirs = record("theirs", [], [{"reward": 0.5}], known=KNOWN, config={"warmup": 3, "seed": 5})
    at = open_page("compare", runs=f"{ours},{theirs}")
    shared, alone = (table.value for table in at.dataframe if "field" in table.value)
    assert "algorithm.advantage.kind" in list(shared["field"])
    assert "theirs.warmup" in list(alone["field"])
    assert set(shared["field"]).isdisjoint(alone["field"])


def test_a_run_that_lacks_what_places_it_along_an_axis_is_named_and_not_drawn_at_a_guess(
    open_page: Open, record: Callable[..., int], ours: int
) -> None:
    theirs = record("theirs", [], [{"reward": 0.5}, {"reward": 0.6}])
    for axis, lacks in (("wall time", "step_time"), ("tokens", "num_tokens"), ("samples", "num_samples")):
        at = open_page("compare", runs=f"{ours},{theirs}", x=axis)
        assert f"not drawn along this axis, since no {lacks} was recorded" in texts(at), axis


def test_another_trainers_names_are_charted_without_being_asked_for_and_what_means_the_same_has_our_chart(
    open_page: Open, backend: Backend, record: Callable[..., int]
) -> None:
    run = record(
        "verl",
        [],
        [{"critic/score/mean": 0.5, "actor/ppo_kl": 0.1, "perf/time_per_step": 2.0, "perf/mfu/actor": 0.4}] * 3,
    )
    series = backend.client.metrics(run).series
    assert {name: one.value for name, one in series.items()} == {
        "critic/score/mean": [0.5] * 3,
        "reward": [0.5] * 3,
        "actor/ppo_kl": [0.1] * 3,
        "perf/time_per_step": [2.0] * 3,
        "perf/mfu/actor": [0.4] * 3,
        "step_time": [2.0] * 3,
    }
    at = open_page("compare", runs=str(run), x="wall time")
    assert "not drawn along this axis" not in texts(at)

    at = open_page("run", id=run)
    shown = texts(at)
    assert "actor/ppo_kl" in shown
    assert "perf/mfu/actor" in shown


def test_the_pages_of_another_trainers_run_speak_of_no_worker_and_not_of_how_its_loss_is_summed(
    open_page: Open, record: Callable[..., int]
) -> None:
    clip = in_our_terms({"loss_type": "dapo", "beta": 0.04, "num_iterations": 1})
    run = record("TRL", [], [{"reward": 0.5, "loss": 0.1}] * 3, known=clip)
    said = texts(open_page("run", id=run))
    assert "Judge the run by its reward." in said
    assert "sequence mean" not in said
    said = texts(open_page("run", id=run, tab="log"))
    assert "what the program that trains the run says" in said
    assert "The worker writes" not in said


POOR: dict[str, tuple[list[list[Group]], list[dict[str, float]], dict[str, Any]]] = {
    "texts and rewards": ([[Group("a?", [Completion("1", reward=1.0), Completion("2", reward=0.0)])]] * 3, [], {}),
    "texts alone": ([[Group("a?", [Completion("1"), Completion("2")])]] * 3, [], {}),
    "one metric": ([], [{"loss": 1.0}], {}),
    "nothing": ([], [], {}),
    "a lone completion": ([[Group("a?", [Completion("1", reward=1.0)])]], [], {}),
    "with a known estimator": (
        [
            [
                Group(
                    "a?",
                    [
                        Completion("1", reward=1.0, advantage=0.5, rewards={"right": 1.0}),
                        Completion("2", reward=0.0, advantage=-0.5),
                    ],
                )
            ]
        ],
        [{"reward": 0.5}],
        {"known": KNOWN},
    ),
}
TABS = ("overview", "groups", "prompts", "search", "health", "paid for", "judgement", "configuration", "log")


@pytest.mark.parametrize(
    "which", [one if one == "a lone completion" else pytest.param(one, marks=pytest.mark.thorough) for one in POOR]
)
def test_every_page_of_a_run_of_which_little_is_known_is_drawn(
    open_page: Open, backend: Backend, record: Callable[..., int], which: str
) -> None:
    groups, metrics, options = POOR[which]
    run = record("poor", groups, metrics, **options)
    pages: list[AppTest] = [open_page("runs"), open_page("compare", runs=str(run))]
    pages += [open_page("run", id=run, tab=tab) for tab in TABS]
    pages += [open_page("compare", runs=str(run), view=view) for view in ("Settings", "Distributions", "Prompts")]
    for group in backend.client.groups(run, limit=1).items:
        pages += [open_page("group", id=group.id), open_page("prompt", prompt=group.prompt_id, runs=run)]
        pages += [open_page("playground", group=group.id)]
    assert [at.exception[0].message for at in pages if at.exception] == []


def test_the_pages_say_what_was_not_recorded_and_guess_nothing_in_its_place(
    open_page: Open, backend: Backend, record: Callable[..., int]
) -> None:
    run = record("poor", POOR["texts and rewards"][0], [])
    [group] = backend.client.groups(run, limit=1).items
    shown = cards_and_texts(open_page("group", id=group.id))
    assert "How rewards became advantages was not recorded" in shown
    assert "length not recorded" in shown
    assert "0 tokens" not in shown
    assert "1e-" not in shown
    assert "No metric of this run was recorded" in texts(open_page("run", id=run))

    run = record("poor", POOR["texts alone"][0], [])
    [group] = backend.client.groups(run, step=0).items
    shown = cards_and_texts(open_page("group", id=group.id))
    assert "of 2 completions 0 have a recorded reward" in shown
    assert "no advantage was recorded" in shown
    assert "No values of these tokens were recorded" in texts(open_page("group", id=group.id, tokens=1))
    bare = record("bare", [], [{"loss": 1.0}])
    assert "No group of this run was kept" in texts(open_page("run", id=bare, tab="groups"))

    assert "No completions were recorded" in texts(open_page("run", id=bare, tab="search"))
    assert "No completion fits" in texts(open_page("run", id=bare, tab="search", find="x"))

    alike = [Completion(text, reward=1.0, advantage=0.0) for text in "ab"]
    run = record(
        "theirs", [[Group("?", alike), Group("!", alike, evaluated=True)]], [], known={"algorithm": KNOWN["algorithm"]}
    )
    dead, evaluated = sorted(backend.client.groups(run).items, key=lambda group: group.index)
    shown = cards_and_texts(open_page("group", id=dead.id))
    assert "whether a KL penalty acts on its tokens was not recorded" in shown
    assert "<small>cut at the limit</small><b>–</b>" in shown
    assert "Of an evaluation" in texts(open_page("group", id=evaluated.id))


def test_what_if_works_on_what_another_trainer_told_and_says_what_it_did_not(
    open_page: Open, backend: Backend, record: Callable[..., int]
) -> None:
    said = [("1", 1.0, 0.5), ("2", 0.5, 0.0), ("3", 0.0, -0.5)]
    drawn = [Completion(text, reward=reward, advantage=a, rewards={"right": reward}) for text, reward, a in said]
    told = in_our_terms({"num_generations": 3, "scale_rewards": "none", "beta": 0.0, "num_iterations": 1})
    whole = record("TRL's", [[Group("?", drawn)]], [], known=told | {"rewards": KNOWN["rewards"]})
    at = open_page("group", id=backend.client.groups(whole).items[0].id, wi_open="true")
    assert "**The run's own settings.**" in texts(at)
    at.number_input(key="set-wi_w_right").set_value(-1.0).run()
    assert figures(at)["Sign changes"] == "2"
    assert "how this trainer's loss takes it was not recorded" in texts(at)
    # no name and no weight that a reward of ours could have
    named = {"functions": [{"name": "is it / right?", "weight": 2e4}]}
    half = record(
        "half",
        [[Group("?", drawn)]],
        [],
        known={"algorithm": {"advantage": {"kind": "group_center"}}, "rewards": named},
    )
    at = open_page("group", id=backend.client.groups(half).items[0].id, wi_open="true")
    assert "**The run's own settings.**" in texts(at)
    assert "no token's pull is computed" in texts(at)
    poor = record("poor", [[Group("?", drawn)]], [])
    group = backend.client.groups(poor).items[0].id
    assert "was not recorded, or has no counterpart here" in texts(open_page("group", id=group, wi_open="true"))
    assert "its own estimator was not recorded" in texts(open_page("playground", group=group))
