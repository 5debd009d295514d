"""The Playground's page against a real backend."""

import math
import re

import pytest
import recorded
from on_screen import Open, figures, press
from serving import Backend, one_for_all
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from backend.storage.tables import run
from dashboard.stored import put

backend = pytest.fixture(one_for_all)  # no test changes the group that another reads


def shown(at: AppTest) -> str:
    kinds = (at.markdown, at.caption, at.info, at.error, at.code, at.get("html"))
    words = "\n".join(element.value for kind in kinds for element in kind)
    return re.sub(r"/chart/\w+", "/chart/…", words)  # each page has addresses of its own for its pictures


def record(backend: Backend) -> int:
    """A logged group with an unscored completion, in a run that chose another estimator than the page opens with."""
    how = {"advantage": {"kind": "leave_one_out"}, "surrogate": {"kind": "clip", "epsilon_high": 0.28}}
    run_id, claimed = recorded.started(backend.client, "some run", algorithm=how)
    reported = recorded.group_of(0, [0.1, 1.0, None, 0.0])
    mean = math.fsum([0.1, 1.0, 0.0]) / 3
    completions = [
        completion.model_copy(
            update={"advantage": 0.0 if completion.reward is None else (completion.reward - mean) * 1.5}
        )
        for completion in reported.completions
    ]
    groups = [reported.model_copy(update={"completions": completions}), recorded.group_of(1, [1.0, 1.0, 0.0, 0.0])]
    recorded.report(backend.client, run_id, claimed.attempt, 7, groups)
    return backend.client.groups(run_id).items[0].id


@pytest.fixture(scope="module")
def group(shared_backend: Backend) -> int:
    return record(shared_backend)


def test_it_opens_on_a_textbook_example_to_which_one_click_leads_back_from_a_group(open_page: Open, group: int) -> None:
    at = open_page("playground")
    assert at.text[0].value == "Calculate 2 + 2 x 6"
    spread = {"Mean (group)": "0.500", "Std (population)": "0.500"}
    assert figures(at) == spread | {"Highest advantage": "+1.00", "Lowest advantage": "−1.00"}
    for number in ("0.53", "±0.94", "±1.0", "0.183 / 0.067", "ratio = 0.9 / 0.5 = **1.8** → clipped to **1.2**"):
        assert number in shown(at)
    assert not at.query_params

    at = open_page("group", id=group)
    links = [link for link in at.get("page_link") if "Playground" in link.proto.label]
    assert [link.proto.query_string for link in links] == [f"group={group}"]

    at = open_page("playground", group=group)
    press(at, "Textbook example")
    assert not at.query_params
    assert figures(at)["Highest advantage"] == "+1.00"
    assert at.selectbox(key="set-estimator").value == "group_zscore"


def test_every_control_changes_the_numbers_and_stands_in_the_address_until_it_is_set_back(open_page: Open) -> None:
    at = open_page("playground")
    at.segmented_control(key="set-std").set_value("sample").run()
    assert figures(at)["Highest advantage"] == "+0.935"
    at.text_input(key="set-rewards").set_value("1, 1, 0").run()
    at.number_input(key="set-new").set_value(0.2).run()
    at.text_input(key="set-epsilon_low").set_value("0.3").run()
    at.segmented_control(key="set-kl").set_value("k1").run()
    at.number_input(key="set-lam").set_value(0.0).run()
    assert "= **0.4** → clipped to **0.7**" in shown(at)
    assert "**λ = 0 is TD:**" in shown(at)
    again = open_page("playground", **at.query_params)
    assert shown(again) == shown(at)
    assert figures(again) == figures(at)

    at = open_page("playground", rewards="1, 0", new="0.5")
    assert "**the loss reads 0, yet each token is pulled by its A**" in shown(at)
    at.text_input(key="set-rewards").set_value("1, 1, 1, 1, 0, 0, 0, 0").run()
    assert set(at.query_params) == {"new"}


def test_a_typo_or_nonsense_in_the_address_is_named_and_the_last_good_picture_stays(open_page: Open) -> None:
    at = open_page("playground", rewards="1, 0, 0")
    before = figures(at)
    for field in ("rewards", "eps", "delta", "beta", "values"):
        good = at.text_input(key=f"set-{field}").value
        at.text_input(key=f"set-{field}").set_value("1, x").run()
        assert not at.exception, field
        assert ":red[" in shown(at), field
        assert figures(at) == before, field
        at.text_input(key=f"set-{field}").set_value(good).run()
        assert ":red[" not in shown(at), field

    at = open_page("playground", rewards="x", estimator="gae", new="7", lam="a", group="y", surrogate="dpo")
    assert figures(at)["Highest advantage"] == "+1.00"
    assert "“x” is not a number" in shown(at)


def test_every_estimator_and_every_surrogate_has_its_picture_and_equal_rewards_are_dead_but_not_for_softmax(
    open_page: Open,
) -> None:
    at = open_page("playground")
    for kind in at.selectbox(key="set-estimator").options:
        at.selectbox(key="set-estimator").select(kind).run()
        assert not at.exception, kind
        assert ":red[" not in shown(at), kind
        assert figures(at)["Highest advantage"].startswith("+"), kind
    at = open_page("playground")
    for kind in ("cispo", "sapo", "vespo", "policy_gradient"):
        at.selectbox(key="set-surrogate").set_value(kind).run()
        assert ":red[" not in shown(at), kind
        assert "best: pulled **up**" in shown(at), kind

    at = open_page("playground", rewards="1, 1, 1, 1")
    assert "**A dead group.**" in shown(at)
    assert "no pull, A is 0" in shown(at)
    at.selectbox(key="set-estimator").set_value("softmax").run()
    assert "A dead group" not in shown(at)
    assert figures(at)["Highest advantage"] == figures(at)["Lowest advantage"] == "+0.250"


def test_a_logged_group_opens_with_the_settings_of_its_run_and_the_steps_other_groups(
    open_page: Open, backend: Backend, group: int
) -> None:
    at = open_page("playground", group=group)
    logged = backend.client.group(group)
    assert at.text[0].value == logged.prompt
    assert at.text_input(key="set-rewards").value == "0.1, 1, -, 0"
    assert at.selectbox(key="set-estimator").value == "leave_one_out"
    assert at.text_input(key="set-epsilon_high").value == "0.28"
    assert "These are the advantages that the run trained with" in shown(at)
    at.selectbox(key="set-estimator").set_value("softmax").run()
    assert "What if: the run itself trained with −0.550 … +0.950" in shown(at)
    assert set(at.query_params) == {"group", "estimator"}

    at = open_page("playground", group=group, estimator="batch_baseline")
    assert at.text_input(key="set-batch").value == "1, 1, 0, 0"
    assert figures(at)["Mean (batch)"] == "0.443"


def test_an_estimator_that_this_version_cannot_read_opens_as_the_usual_one(open_page: Open, backend: Backend) -> None:
    group = record(backend)
    run_id = backend.client.group(group).run_id
    newer = put(backend.client.run(run_id).config, "algorithm.advantage.from_a_newer_version", 1)
    with backend.services.database.write() as tx:
        tx.execute(update(run).where(run.c.id == run_id).values(config=newer))
    at = open_page("playground", group=group)
    assert at.selectbox(key="set-estimator").value == "group_zscore"
    assert at.text_input(key="set-rewards").value == "0.1, 1, -, 0"
