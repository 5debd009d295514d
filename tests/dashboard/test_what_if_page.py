"""The what-if on a group's page and on a run's groups, against a real backend."""

import pytest
import recorded
from on_screen import Open, press, shown
from scored import one_step
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p

backend = pytest.fixture(one_for_all)  # no test changes the run

REWARDS = ([1.0, 0.9, 0.1, 0.0], [0.1, 0.1, 0.0, 0.1], [1.0, 1.0, 1.0, 1.0], [1.0, None, None, None])


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    """A step with a mixed group, one that only differs in its format, a solved and an unscored one, a replaced one and a probe."""
    run_id = recorded.queue(shared_backend.client, sampling={"group_size": 4}, algorithm={"kl": {"beta": 0.1}})
    claimed = recorded.claim(shared_backend.client, run_id)
    groups = [recorded.group_of(index, rewards) for index, rewards in enumerate(REWARDS)]
    for state in ("filtered", "probe"):
        aside = recorded.group_of(len(groups), [1.0, 0.0, 0.0, 0.0])
        groups.append(aside.model_copy(update={"state": state}))
    report = p.Report(attempt=claimed.attempt, seq=0, step=3, groups=groups, trace=recorded.trace_of(groups))
    shared_backend.client.report(run_id, report)
    return run_id


@pytest.fixture(scope="module")
def group_ids(shared_backend: Backend, run_id: int) -> list[int]:
    return [group.id for group in shared_backend.client.step_scores(run_id, 3).groups]


def open_what_if(open_page: Open, group_id: int, **settings: object) -> AppTest:
    return open_page("group", id=group_id, wi_open="true", **settings)


def metrics(at: AppTest) -> dict[str, tuple[str, str]]:
    return {metric.label: (metric.value, metric.delta) for metric in at.metric}


def table(at: AppTest, column: str) -> list[list[str]]:
    """The rows of the table that has the column."""
    return next(frame.value for frame in at.dataframe if column in frame.value.columns).astype(str).values.tolist()


def test_it_is_folded_until_somebody_asks_and_the_runs_own_settings_give_what_is_stored(
    open_page: Open, group_ids: list[int]
) -> None:
    at = open_page("group", id=group_ids[0])
    assert "Computed again" not in shown(at)
    assert not at.number_input

    at = open_what_if(open_page, group_ids[0])
    assert "**The run's own settings.**" in shown(at)
    assert metrics(at)["Dead groups"] == ("1 of 3, 33 %", "was 1 of 3, 33 %")
    assert metrics(at)["Sign changes"] == ("0", "of 16 completions")
    assert next(button for button in at.button if button.label == "Run's settings").disabled
    assert "every ratio is exactly 1" in shown(at)


def test_a_changed_weight_changes_group_and_step_on_both_pages_and_stands_in_the_address(
    open_page: Open, group_ids: list[int], run_id: int
) -> None:
    at = open_what_if(open_page, group_ids[1])
    at.number_input(key="set-wi_w_format").set_value(0.0).run()
    assert "**What if:**" in shown(at)
    assert metrics(at)["Dead groups"] == ("2 of 3, 67 %", "was 1 of 3, 33 %")
    ways = ["reinforced → 0", "reinforced → 0", "discouraged → 0", "reinforced → 0"]
    assert [row[-1] for row in table(at, "advantage, what if")] == ways
    assert at.query_params["wi_w_format"] == "0.0"
    again = open_page("group", **at.query_params)
    assert metrics(again) == metrics(at)
    press(again, "Run's settings")
    assert not [name for name in again.query_params if name not in ("id", "wi_open")]
    assert metrics(again)["Dead groups"] == ("1 of 3, 33 %", "was 1 of 3, 33 %")

    at = open_page("run", id=run_id, tab="groups", step=3, wi_open="true", wi_w_format="0")
    assert metrics(at)["Dead groups"] == ("2 of 3, 67 %", "was 1 of 3, 33 %")


def test_every_estimator_can_be_tried_and_beta_says_what_the_kl_costs(open_page: Open, group_ids: list[int]) -> None:
    at = open_what_if(open_page, group_ids[0])
    for kind in at.selectbox(key="set-wi_estimator").options:
        at.selectbox(key="set-wi_estimator").select(kind).run()
        assert not at.exception
        assert "Sign changes" in metrics(at)
    assert ":red[" not in shown(at)

    at = open_what_if(open_page, group_ids[0], wi_beta="0.2")
    assert "the penalty's part of the step's loss is β × KL = 0.100 ×" in shown(at)
    assert "with β = 0.200 it would be" in shown(at)


def test_each_completion_whose_sign_changes_leads_to_its_group_with_the_same_settings(
    open_page: Open, group_ids: list[int]
) -> None:
    at = open_what_if(open_page, group_ids[0], wi_estimator="batch_baseline", wi_w_format="0.3")
    rows = table(at, "change")
    assert rows
    for row in rows:
        assert set(row[-2].split(" → ")) <= {"reinforced", "0", "discouraged"}
        assert row[-1].startswith(f"/group?id={group_ids[int(row[0]) - 1]}&wi_open=true")
        assert "wi_estimator=batch_baseline" in row[-1]
        assert "wi_w_format=0.3" in row[-1]


def test_a_typo_is_named_and_what_is_shown_stays(open_page: Open, group_ids: list[int]) -> None:
    at = open_what_if(open_page, group_ids[0])
    before = metrics(at)
    for name in ("wi_beta", "wi_eps", "wi_epsilon_low"):
        good = at.text_input(key=f"set-{name}").value
        at.text_input(key=f"set-{name}").set_value("x").run()
        assert not at.exception, name
        assert ":red[" in shown(at), name
        assert metrics(at) == before, name
        at.text_input(key=f"set-{name}").set_value(good).run()
        assert ":red[" not in shown(at), name


def test_a_group_that_was_replaced_or_a_probe_says_that_nothing_was_trained_on_it(
    open_page: Open, group_ids: list[int]
) -> None:
    for place in (4, 5):
        assert "Nothing was trained on this group" in shown(open_what_if(open_page, group_ids[place]))


def test_a_critics_run_says_what_cannot_be_computed_again(open_page: Open, backend: Backend) -> None:
    groups = [recorded.group_of(0, [1.0, 0.1, 0.0, 0.9])]
    run_id = one_step(backend.client, groups, algorithm={"advantage": {"kind": "gae"}})
    at = open_what_if(open_page, backend.client.groups(run_id).items[0].id)
    assert "come from a critic" in shown(at)
    at.selectbox(key="set-wi_estimator").select("group_center").run()
    assert "The run itself had a critic" in shown(at)
