"""A measured data set: prompts by success rate, the groups behind a bar, and a band that becomes the form's data."""

import json

import pytest
import recorded
from on_screen import Open, draft_of, press, texts
from scored import scores_of
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.groups import GroupReport
from backend.contract.task import Dataset, row_id
from dashboard.before_launch.success_rates import rates_of
from dashboard.charts.success_rates import ALWAYS, LABELS, NEVER, bar_of, bar_title, success_rates_figure

backend = pytest.fixture(one_for_all)  # every sample is claimed by the test that asked for it

ROWS = [{"prompt": f"Calculate {n} + {n}", "answer": str(2 * n), "level": "abc"[n // 9]} for n in range(1, 25)]
G = 16


# ---- the bars


def test_a_rate_counts_in_the_bar_that_is_named_by_its_ends_and_the_figure_counts_those_in_the_band() -> None:
    bars = {0.0: NEVER, 0.01: 1, 0.1: 2, 0.3: 4, 0.7: 8, 0.99: 10, 1.0: ALWAYS}  # the ends have their own
    assert {rate: bar_of(rate) for rate in bars} == bars
    assert [bar_title(bar) for bar in (NEVER, 3, ALWAYS)] == ["Never right", "20–30 % right", "Always right"]
    assert len(LABELS) == ALWAYS + 1
    data = success_rates_figure([0.0, 0.0, 0.2, 0.25, 0.5, 0.8, 0.85, 1.0], (0.2, 0.8)).data.set_index("label")
    prompts = {"never": 2, "20–30": 2, "50–60": 1, "80–90": 2, "always": 1}
    assert dict(data["prompts"][data["prompts"] > 0]) == prompts
    assert dict(data["kept"][data["kept"] > 0]) == {"20–30": 2, "50–60": 1, "80–90": 1}


def test_a_prompt_that_was_asked_twice_has_one_rate() -> None:
    twice = [scores_of([1.0, 1.0]), scores_of([0.0, 1.0]), scores_of([None, None])]
    assert rates_of(twice, {"rewards": {"functions": [{"name": "own", "kind": "correctness"}]}}, None) == {"a": 0.75}


# ---- the page


def groups(task: Dataset, rates: list[int]) -> list[GroupReport]:
    """A group for each of the first rows, with as many right completions."""
    return [
        recorded.group_of(place, [1.0] * right + [0.1] * (G - right)).model_copy(
            update={"prompt_id": row_id(task, row), "prompt_text": row["prompt"]}
        )
        for place, (right, row) in enumerate(zip(rates, ROWS, strict=False))
    ]


def measured(open_page: Open, backend: Backend, rates: list[int]) -> tuple[AppTest, Dataset]:
    """The page after a measurement of an upload."""
    upload = backend.client.upload("sums.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode())
    at = open_page("new-run", recipe="grpo")
    task = Dataset(source=f"upload:{upload.id}", held_out=0.0)
    draft_of(at).change({"task": task.model_dump(mode="json"), "budget.eval_every": 0, "telemetry.probe_prompts": 0})
    at.session_state["part"] = "Before launch"
    at.run()
    press(at, "Measure the data set")
    sample_id = draft_of(at).sample_id
    assert sample_id is not None, draft_of(at).sample_refused
    sample = backend.client.run(sample_id)
    assert sample.config["task_prompts"] == 200
    claim = recorded.claim(backend.client, sample.id, kind="sample")
    whole = groups(task, rates)
    for seq, first in enumerate(range(0, len(whole), 16)):  # in parts, as a worker reports them
        part = [one.model_copy(update={"index": place}) for place, one in enumerate(whole[first : first + 16])]
        backend.client.report(sample.id, p.Report(attempt=claim.attempt, seq=seq, step=seq, groups=part, metrics={}))
    recorded.finish(backend.client, sample.id, claim)
    at.run()
    assert not at.exception
    return at, task


def numbers(at: AppTest) -> list[int]:
    """The numbers of the groups in the table."""
    return [int(number) for number in next(one.value for one in at.dataframe if "group" in one.value)["group"]]


RATES = [0] * 10 + [4, 8, 12] * 2 + [G] * 8


def test_a_measurement_shows_what_can_teach_a_bar_its_groups_and_why_a_band_is_refused(
    open_page: Open, backend: Backend
) -> None:
    at, task = measured(open_page, backend, RATES)
    said = texts(at)
    assert "of 24 prompts, a click shows the groups" in said
    assert "24 groups: 6 live, 18 dead" in said
    assert next(one.value for one in at.metric if one.label == "Can teach") == "6 of 24"
    assert "200 prompts were drawn, 24 of them different: each is asked once." in said
    assert "Group 1 of 24" in said
    assert numbers(at) == list(range(1, 25))  # though the worker reported them in two parts
    draft_of(at).sample_bar = bar_of(0.25)
    at.run()
    assert "20–30 % right: 2 prompts" in texts(at).replace("*", "")
    assert "Group 1 of 2" in texts(at)
    assert numbers(at) == [1, 2]
    press(at, "Show all")
    assert "Group 1 of 24" in texts(at)

    backend.client.delete_upload(int(task.source.partition(":")[2]))
    press(at, "Keep 6 of 24")
    assert "There is no upload" in texts(at)
    assert draft_of(at).get("task.source") == task.source


def test_a_band_becomes_the_forms_data_with_one_click_and_brings_its_task_back_if_the_form_asks_another(
    open_page: Open, backend: Backend
) -> None:
    at, task = measured(open_page, backend, RATES)
    assert any(button.label == "Keep 6 of 24 prompts as the data" for button in at.button)
    at.slider[0].set_range(0, 50).run()
    press(at, "Keep 14 of 24 prompts as the data")
    made = backend.client.uploads()[0]
    assert made.name == "0 to 50 % of sums.jsonl"
    assert draft_of(at).get("task.source") == f"upload:{made.id}"
    assert draft_of(at).get("task.held_out") == 0
    kept = [json.loads(line) for line in backend.client.upload_content(made.id).splitlines()]
    assert kept == [row for row, right in zip(ROWS, RATES, strict=True) if right <= G / 2]
    said = texts(at)
    assert "The form's data are now these 14 prompts. **Form** shows them" in str(
        [one.value for one in at.success]
    ).replace("\\", "")
    assert "changed after this sample was taken" not in said
    assert "measured by the rewards on 14 prompts, success rate 0.107" in said
    assert not [one for one in at.button if one.label.startswith("Keep")]
    at.slider[0].set_range(100, 100).run()
    press(at, "Keep 8 of 24 prompts as the data")  # still of what was measured
    again = backend.client.uploads()[0]
    assert again.name == "100 to 100 % of sums.jsonl"
    assert again.rows == 8
    draft_of(at).change({"task.template": "Reckon: {prompt}"})
    at.run()
    assert "The form's task changed after this sample was taken. Sample again." in texts(at)
    assert not at.success

    draft_of(at).change({"task": {"kind": "single_prompt", "prompt": "1 + 1", "answer": "2"}})
    at.run()
    press(at, "Keep 8 of 24")
    source = f"upload:{backend.client.uploads()[0].id}"
    assert draft_of(at).get("task") == {**task.model_dump(mode="json"), "source": source}


@pytest.mark.thorough
def test_a_band_leaves_what_was_changed_in_the_form_since_and_one_without_a_prompt_is_not_to_be_kept(
    open_page: Open, backend: Backend
) -> None:
    at, task = measured(open_page, backend, RATES)
    shares = {"a": 1.0, "b": 2.0, "c": 3.0}
    changed = {"template": "Reckon: {prompt}", "system_prompt": "A number.", "source_column": "level", "shares": shares}
    draft_of(at).change({f"task.{name}": value for name, value in changed.items()})
    at.run()
    kept = {row["level"] for row, right in zip(ROWS, RATES, strict=True) if right == G}
    assert kept == {"b", "c"}
    at.slider[0].set_range(100, 100).run()
    press(at, "Keep 8 of 24")
    assert not at.error
    now = draft_of(at).get("task")
    assert isinstance(now, dict)
    (band,) = (upload for upload in backend.client.uploads() if upload.name == "100 to 100 % of sums.jsonl")
    assert now == {
        **task.model_dump(mode="json"),
        **changed,
        "source": f"upload:{band.id}",
        "shares": {name: shares[name] for name in kept},
    }

    at, _ = measured(open_page, backend, [0] * 12 + [G] * 12)
    [keep] = [button for button in at.button if button.label.startswith("Keep")]
    assert (keep.label, keep.disabled) == ("Keep 0 of 24 prompts as the data", True)

    at, _ = measured(open_page, backend, [0, 4, 8])
    assert "a click shows the groups" not in texts(at)
