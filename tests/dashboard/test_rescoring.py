"""The editor's companion: a changed reward file scores the sample again, what that changed is said, and what looks like a mistake is marked."""

from hashlib import sha256
from typing import cast

import pytest
import recorded
import streamlit as st
from on_screen import Open, draft_of, press, texts
from scored import scores_of
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.records import OwnReward, RewardFile, RewardText, RunError
from dashboard.before_launch.request import ask, files_now
from dashboard.before_launch.rescoring import _look, changed, difference, suspicions
from dashboard.components.address import _WRITTEN
from dashboard.stored import get

OWN: dict[str, Json] = {"kind": "python", "name": "own", "weight": 1.0, "function": "own.py:reward"}


# ---- what looks like a mistake


def marks(rewards: list[float | None], lengths: list[int] | None = None, **function: Json) -> list[str]:
    return suspicions([scores_of(rewards, lengths)], {"rewards": {"functions": [{**OWN, **function}]}})


@pytest.mark.parametrize(
    ("rewards", "lengths", "mark"),
    [
        ([0.0] * 16, None, "own is always 0: it tells no two completions apart."),
        ([1.0] * 16, None, "own is always 1.00: it tells no two completions apart."),
        ([0.3] * 16, None, "own is always 0.300: it tells no two completions apart."),
        ([0.0] * 39 + [1.0], None, "own has one value on 98 % of the completions."),
        ([0.0, 12.0] * 8, None, "own goes from 0 to 12.0, and other rewards from 0 to 1: it may outweigh them. Is that meant?"),
        ([0.0, -0.5] * 8, None, "own goes from −0.500 to 0, and"),
        ([0.1 * n for n in range(10)], [5 * n for n in range(10)], "own is higher the longer a completion is"),
    ],
)  # fmt: skip
def test_what_looks_like_a_mistake_is_marked(rewards: list[float | None], lengths: list[int] | None, mark: str) -> None:
    [found] = marks(rewards, lengths)
    assert found.startswith(mark)


def test_scores_that_look_right_or_are_not_there_are_not_marked() -> None:
    assert marks([0.0, 1.0, 1.0, 0.5] * 4, [7, 9, 3, 8] * 4) == []
    assert marks([0.1 * n for n in range(10)], [50 - 5 * n for n in range(10)]) == []  # a right answer may be short
    assert marks([0.0] * 4) == []  # too few to say
    assert marks([0.0, 1.0] * 8, [3, 30] * 8, kind="length") == []  # meant to
    assert marks([-3.0, 12.0] * 8, kind="reward_model") == []  # has no bounds

    assert marks([None] * 16) == []
    assert marks([1.0] * 8 + [None] * 8) == ["own is always 1.00: it tells no two completions apart."]


# ---- what changed


def test_a_change_or_a_lost_score_is_told_in_rewards_advantages_and_dead_groups() -> None:
    before = [scores_of([0.0, 1.0]), scores_of([1.0, 1.0])]
    after = [scores_of([1.0, 0.0]), scores_of([1.0, 0.0])]
    assert difference(before, after) == (
        "3 of 4 rewards changed: the mean went from 0.750 to 0.500, 4 advantages changed sign. "
        "Dead or unscored groups: 0 of 2 (1 before)."
    )
    assert difference(before, before) == "No reward changed."

    assert difference([scores_of([0.0, 1.0])], [scores_of([0.0, None])]) == (
        "1 of 2 rewards changed: the mean went from 0.500 to 0, 2 advantages changed sign. "
        "Dead or unscored groups: 1 of 1 (0 before)."
    )


# ---- when


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def with_file(text: str, error: str | None = None, **arguments: Json) -> p.WorkerInfo:
    """A worker whose folder has own.py with this text, whose function has these settings."""
    functions = [] if error else [OwnReward(function="own.py:reward", arguments=arguments)]
    file = RewardFile(name="own.py", texts={"own.py": digest(text)}, functions=functions, error=error)
    return recorded.WORKER.model_copy(update={"reward_files": [file]})


def test_a_file_that_a_reward_names_has_changed_once_no_worker_has_what_scored() -> None:
    def workers(*texts: str) -> frozenset[tuple[str, str]]:
        return files_now({"rewards": {"functions": [OWN]}}, [with_file(text) for text in texts])  # type: ignore[misc]

    scored = {"own.py": digest("a")}
    assert not changed(workers("a"), scored)
    assert changed(workers("b"), scored)
    assert not changed(workers("b", "a"), scored)
    assert not changed(workers("a", "b"), scored)
    assert not changed(workers(), scored)
    assert not changed(workers("b"), {})

    assert files_now({"rewards": {"functions": [{**OWN, "function": "other.py:reward"}]}}, [with_file("a")]) == set()  # type: ignore[list-item]


def tell(backend: Backend, worker: p.WorkerInfo) -> None:
    """What the worker asks for work with; there is none."""
    assert backend.client.ask(p.ClaimRequest(worker=worker, kinds=["sample"])).claim is None


def claimed(backend: Backend, sample_id: int, text: str) -> p.Claim:
    scored_by = [RewardText(name="own.py", sha256=digest(text), text=text)]
    return recorded.claim(backend.client, sample_id, worker=with_file(text), kind="sample", reward_texts=scored_by)


def score(backend: Backend, sample_id: int, text: str, rewards: list[float | None]) -> None:
    """What a worker with this text reports for a sample of one group."""
    claim = claimed(backend, sample_id, text)
    reported = recorded.group_of(0, rewards)
    completions = [
        one.model_copy(
            update={"rewards": [one.rewards[0].model_copy(update={"name": "own", "raw": raw, "weight": 1.0})]}
        )
        for one, raw in zip(reported.completions, rewards, strict=True)
    ]
    groups = [reported.model_copy(update={"completions": completions})]
    backend.client.report(sample_id, p.Report(attempt=claim.attempt, seq=0, step=0, groups=groups, metrics={}))
    recorded.finish(backend.client, sample_id, claim)


def drawn(at: AppTest) -> AppTest:
    """The page as it is now, whatever it kept."""
    st.cache_data.clear()
    at.run()
    assert not at.exception
    return at


def asked(open_page: Open, backend: Backend) -> tuple[AppTest, int]:
    """The page that has just asked for a sample, and the sample."""
    tell(backend, with_file("a"))
    at = open_page("new-run", recipe="grpo")
    draft_of(at).change({"rewards.functions": [OWN], "rewards.gates": []})
    at.run()
    press(at, "Sample before launch")
    sample_id = draft_of(at).sample_id
    assert sample_id is not None, draft_of(at).sample_refused
    return at, sample_id


@pytest.fixture
def sampled(open_page: Open, backend: Backend) -> tuple[AppTest, int]:
    """The page with a finished sample that own.py, whose text is "a", gave 0 everywhere."""
    at, sample_id = asked(open_page, backend)
    score(backend, sample_id, "a", [0.0] * 16)
    return drawn(at), sample_id


def rescoring(backend: Backend, at: AppTest, base: int) -> int:
    """The sample that the page has asked for now."""
    sample_id = draft_of(at).sample_id
    assert sample_id not in (None, base)
    assert backend.client.run(cast(int, sample_id)).config["rescores"] == base
    return cast(int, sample_id)


def test_a_changed_file_scores_the_sample_again_and_the_change_is_shown(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, first = sampled
    assert "Save own.py in your editor, and these completions are scored again." in texts(at)
    assert "own is always 0: it tells no two completions apart." in texts(at)
    assert draft_of(drawn(at)).sample_id == first
    tell(backend, with_file("b"))
    second = rescoring(backend, drawn(at), first)
    score(backend, second, "b", [0.0, 1.0] * 8)
    said = texts(drawn(at))
    assert (
        "8 of 16 rewards changed: the mean went from 0 to 0.500, 16 advantages changed sign. "
        "Dead or unscored groups: 0 of 1 (1 before)."
    ) in said
    assert "is always" not in said
    tell(backend, with_file("c"))
    third = draft_of(drawn(at)).sample_id
    assert third not in (first, second, None)
    assert backend.client.run(cast(int, third)).config["rescores"] == first  # always what was sampled


def test_a_file_that_cannot_be_imported_is_said_and_asks_nothing(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, first = sampled
    tell(backend, with_file("b", error="own.py, line 3: SyntaxError: invalid syntax\nTraceback of it"))
    said = texts(drawn(at))
    assert "own.py, line 3: SyntaxError: invalid syntax" in said
    assert "Traceback" not in said
    assert draft_of(at).sample_id == first


@pytest.mark.thorough
def test_a_rescoring_that_failed_at_its_start_or_after_waits_for_the_next_change(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, first = sampled
    tell(backend, with_file("b"))
    second = rescoring(backend, drawn(at), first)
    claim = backend.client.ask(p.ClaimRequest(worker=with_file("b"), kinds=["sample"])).claim
    assert claim is not None
    error = RunError(code="reward_unavailable", message="own.py cannot be imported", retryable=False)
    recorded.fail(backend.client, second, claim, error)
    assert "own.py cannot be imported" in texts(drawn(at))
    assert draft_of(at).sample_id == second
    tell(backend, with_file("c"))
    third = rescoring(backend, drawn(at), first)
    assert third != second

    claim = claimed(backend, third, "c")
    error = RunError(code="reward_contract", message="own gave a text, and a number was expected", retryable=False)
    recorded.fail(backend.client, third, claim, error)
    assert "own gave a text, and a number was expected" in texts(drawn(at))
    assert draft_of(at).sample_id == third
    tell(backend, with_file("d"))
    fourth = rescoring(backend, drawn(at), first)
    score(backend, fourth, "d", [1.0] * 16)
    assert "16 of 16 rewards changed: the mean went from 0 to 1" in texts(drawn(at))


@pytest.mark.thorough
def test_a_sample_that_failed_before_its_start_is_sampled_again_at_the_next_change(
    open_page: Open, backend: Backend
) -> None:
    at, first = asked(open_page, backend)
    claim = backend.client.ask(p.ClaimRequest(worker=with_file("a"), kinds=["sample"])).claim
    assert claim is not None
    error = RunError(code="reward_unavailable", message="own.py cannot be imported", retryable=False)
    recorded.fail(backend.client, claim.run_id, claim, error)
    assert "Save own.py in your editor, and the prompts are sampled again." in texts(drawn(at))
    assert draft_of(at).sample_id == first
    tell(backend, with_file("b", new=2))
    second = draft_of(drawn(at)).sample_id
    assert second not in (first, None)
    config = backend.client.run(cast(int, second)).config
    assert config["rescores"] is None
    assert arguments(config) == {"new": 2}


def arguments(config: dict[str, Json]) -> Json:
    return config["rewards"]["functions"][0]["arguments"]  # type: ignore[call-overload,index]


def test_a_save_that_changes_the_parameters_scores_with_the_new_ones(
    backend: Backend, sampled: tuple[AppTest, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    at, first = sampled
    draft = draft_of(at)
    draft.change({"rewards.functions": [{**OWN, "arguments": {"most": 9, "old": 1}}]})
    monkeypatch.setattr("dashboard.before_launch.rescoring.draw_again", lambda: None)
    tell(backend, with_file("b", most=3, new=2))
    st.cache_data.clear()
    _look(draft, backend.client.run(first))  # between two drawings of the page
    assert arguments(backend.client.run(cast(int, draft.sample_id)).config) == {"most": 9, "new": 2}


def test_a_save_that_changes_the_parameters_samples_and_starts_with_the_new_ones(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, _ = sampled
    tell(backend, with_file("a", new=2))
    assert arguments(draft_of(drawn(at)).config) == {"new": 2}

    draft = draft_of(at)
    tell(backend, with_file("b", newer=3))
    st.cache_data.clear()
    ask(draft)
    assert arguments(backend.client.run(cast(int, draft.sample_id)).config) == {"newer": 3}


@pytest.mark.thorough
def test_a_refused_rescoring_waits_for_the_next_change(backend: Backend, sampled: tuple[AppTest, int]) -> None:
    at, first = sampled
    functions = draft_of(at).get("rewards.functions")
    draft_of(at).change({"rewards.functions": [OWN, OWN]})  # two of one name
    tell(backend, with_file("b"))
    drawn(at)
    assert draft_of(at).sample_refused is not None
    draft_of(at).change({"rewards.functions": functions})
    assert draft_of(drawn(at)).sample_id == first
    tell(backend, with_file("c"))
    rescoring(backend, drawn(at), first)


@pytest.mark.thorough
def test_an_earlier_sample_that_is_opened_again_stays_as_it_was_until_somebody_wants_more(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, first = sampled
    tell(backend, with_file("b"))
    second = rescoring(backend, drawn(at), first)
    score(backend, second, "b", [0.0, 1.0] * 8)
    assert "8 of 16 rewards changed" in texts(drawn(at))
    at.query_params["sample"] = str(first)
    at.session_state[_WRITTEN] = {}  # as Back does
    said = texts(drawn(at))
    assert draft_of(at).sample_id == first
    assert "of 16 rewards changed" not in said
    assert "own.py changed since these completions were scored." in said
    assert "in your editor" not in said
    at.button(key="score-by-files-of-now").click().run()
    assert draft_of(at).sample_id not in (first, second)
    assert backend.client.run(cast(int, draft_of(at).sample_id)).config["rescores"] == first


@pytest.mark.thorough
def test_rewards_that_changed_in_the_form_are_scored_again_by_a_click_and_what_counts_as_right_follows_them(
    backend: Backend, sampled: tuple[AppTest, int]
) -> None:
    at, first = sampled
    for weight in (0.5, 0.25):
        draft_of(at).change({"rewards.functions.0.weight": weight})
        at.run()
        assert "The form's rewards changed after this sample was scored." in texts(at)
        press(at, "Score again")
        again = rescoring(backend, at, first)
        assert get(backend.client.run(again).config, "rewards.functions.0.weight") == weight
        score(backend, again, "a", [1.0] * 16)
        assert right_from(drawn(at)) == weight
    at.query_params["sample"] = str(first)
    at.session_state[_WRITTEN] = {}  # as Back does
    assert right_from(drawn(at)) == 1, "the earlier sample's own"


def right_from(at: AppTest) -> float | None:
    """The reward from which a completion counts as right, as the field says it."""
    [field] = [one for one in at.number_input if one.label.startswith("Counts as right")]
    return field.value
