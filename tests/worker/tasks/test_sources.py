"""Several sources in one run: the columns around a prompt, whose shares of the prompts are kept, and whose metrics stand apart."""

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from backend.contract.sample import SampleConfig
from backend.contract.task import Dataset
from backend.contract.training import Curriculum
from worker.sampling_job import sampled_items
from worker.tasks.items import Items, TaskError
from worker.tasks.loading import load_items
from worker.tasks.prompt_sampler import PromptSampler

ROWS = [
    {"prompt": f"What is {n} + {n}?", "answer": str(2 * n), "topic": f"topic {n % 7}", "from": ("a", "b", "c")[n % 3]}
    for n in range(90)
]


def lines(rows: Sequence[object]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def load(rows: Sequence[object] = ROWS, **fields: object) -> Items:
    task = Dataset.model_validate({"source": "upload:7", "held_out": 0, **fields})
    return load_items(task, fetch_upload=lambda _: lines(rows))


# ---- columns in the template


def test_columns_stand_in_the_template_and_what_they_hold_is_text() -> None:
    rows = [{"prompt": "Ask {topic}", "answer": "1", "topic": "{prompt} {answer}", "n": 3}]
    [item] = load(rows, template="{topic} | {prompt} | {n} | {nothing} | {{x}}").train
    assert item.question == "{prompt} {answer} | Ask {topic} | 3 | {nothing} | {{x}}"
    assert load(ROWS[:1], template="About {topic}.").train[0].question == "About topic 0.", "it needs no prompt in it"


def test_rows_that_differ_in_a_column_of_the_template_alone_are_different_items() -> None:
    rows = [{"prompt": "same", "answer": "1", "topic": topic} for topic in ("x", "y")]
    assert len({item.id for item in load(rows, template="{prompt} {topic}").train}) == 2
    assert len({item.id for item in load(rows).train}) == 1


def test_a_column_of_the_template_that_some_rows_lack_is_named_with_the_rows() -> None:
    rows = [{**row, "topic": None} if n in (3, 8) else row for n, row in enumerate(ROWS)]
    with pytest.raises(TaskError, match="column topic is missing in rows 4, 9"):
        load(rows, template="{prompt} {topic}")


# ---- shares


def drawn(items: Items, seed: int, count: int, *, cursor: int = 0, step: int = 0) -> list[str]:
    return [item.id for item in PromptSampler(items, seed).draw(step, cursor=cursor, count=count)]


def shares_of(items: Items, seed: int, count: int) -> Counter[str]:
    return Counter(item.source for item in PromptSampler(items, seed).draw(0, cursor=0, count=count))


def test_each_source_has_its_share_of_the_prompts_to_within_one_or_two() -> None:
    items = load(source_column="from", shares={"a": 1, "b": 2, "c": 5})
    for seed in range(5):
        found = shares_of(items, seed, 8_000)
        assert all(abs(found[name] - want) <= 4 for name, want in (("a", 1000), ("b", 2000), ("c", 5000)))


def test_a_sample_and_sampled_pairs_ask_what_a_run_would() -> None:
    rows = [{**row, "from": "hard" if n < 9 else "easy"} for n, row in enumerate(ROWS)]
    task = {"kind": "dataset", "source": "upload:7", "source_column": "from", "shares": {"hard": 3, "easy": 1}}
    items = load(rows, **task)
    config = SampleConfig.model_validate({"task": {**task, "held_out": 0}, "task_prompts": 16, "seed": 3})
    asked = sampled_items(config, fetch_upload=lambda _: lines(rows))
    assert [item.id for item in asked] == list(dict.fromkeys(drawn(items, 3, 16)))
    hard = {item.id for item in items.train if item.source == "hard"}
    assert hard <= {item.id for item in asked}
    assert len(hard) == 9


def test_over_all_seeds_the_first_prompt_is_from_each_source_as_often_as_its_share_says() -> None:
    items = load(source_column="from", shares={"a": 1, "b": 3})
    found = Counter(next(iter(shares_of(items, seed, 1))) for seed in range(2_000))
    error = 4 * np.sqrt(0.25 * 0.75 / 2_000)  # four standard errors
    assert found["a"] / 2_000 == pytest.approx(0.25, abs=error)


def test_a_draw_depends_on_the_seed_and_the_place_alone() -> None:
    items = load(source_column="from", shares={"a": 1, "b": 3})
    whole = drawn(items, 5, 300)
    assert whole == drawn(items, 5, 300)
    assert whole != drawn(items, 6, 300)
    again = PromptSampler(items, 5)  # after a resume: it begins in the middle
    assert [item.id for item in again.draw(7, cursor=123, count=100)] == whole[123:223]
    assert [item.id for item in again.draw(0, cursor=0, count=10)] == whole[:10]  # and goes back


def test_within_a_source_all_its_prompts_come_before_any_comes_again() -> None:
    items = load(source_column="from", shares={"a": 1, "b": 1})
    of_a = [item.id for item in PromptSampler(items, 0).draw(0, cursor=0, count=200) if item.source == "a"]
    assert len(set(of_a[:30])) == 30
    assert set(of_a[30:60]) == set(of_a[:30])


@pytest.mark.parametrize("curriculum", [None, Curriculum()], ids=["rounds", "curriculum"])
def test_rows_of_the_same_number_in_two_sources_are_not_drawn_together(curriculum: Curriculum | None) -> None:
    rows = [{"prompt": f"{name}{n}", "answer": str(n), "from": name} for n in range(200) for name in "ab"]
    items = load(rows, source_column="from", shares={"a": 1, "b": 1})
    together = 0
    for seed in range(20):
        drawn_now = PromptSampler(items, seed, curriculum).draw(0, cursor=0, count=40)
        numbers = [{item.answer for item in drawn_now if item.source == name} for name in "ab"]
        together += len(numbers[0] & numbers[1])
    # 20 of 200 and 20 of 200 have 2 in common on average, in 20 seeds 40; all 400 with equal draws
    assert 10 < together < 90


def test_the_first_source_and_a_task_without_sources_are_drawn_by_seed_and_round_alone() -> None:
    items = load(ROWS, source_column="from", shares={"a": 1})
    of_a = [item for item in items.train if item.source == "a"]
    order = [*np.random.default_rng([4, 0]).permutation(30), *np.random.default_rng([4, 1]).permutation(30)]
    wanted = [of_a[place].id for place in order]
    assert drawn(items, 4, 60) == wanted
    assert drawn(Items(of_a, []), 4, 60) == wanted


def test_a_source_without_a_share_is_evaluated_and_never_trained_on_and_without_shares_the_rows_are_drawn() -> None:
    items = load(source_column="from", shares={"a": 1, "b": 1}, held_out=0.3)
    assert "c" in {item.source for item in items.held_out}
    assert set(shares_of(items, 0, 500)) == {"a", "b"}
    assert set(shares_of(load(source_column="from"), 0, 90).values()) == {30}


def test_a_share_of_a_source_that_no_row_has_is_refused_with_those_that_rows_have() -> None:
    with pytest.raises(TaskError, match="no row to train on is from d; the rows are from a, b, c"):
        load(source_column="from", shares={"a": 1, "d": 1})


# ---- metrics by source


def test_the_sources_that_have_metrics_are_the_same_20_in_every_step_and_evaluation() -> None:
    rows = [{"prompt": f"{n}", "answer": "1", "from": f"source {n % 20:02}"} for n in range(40)]
    assert {item.source for item in load(rows, source_column="from").train} == {f"source {n:02}" for n in range(20)}
    rows = [{"prompt": f"{n}", "answer": "1", "from": f"source {n % 100:02}"} for n in range(2_000)]
    shares = {"source 98": 1, "source 99": 1, "source 07": 1}
    named = [f"source {n:02}" for n in range(18)] + ["source 98", "source 99"]
    items = load(rows, source_column="from", shares=shares, held_out=0.5)
    for some in (items.train, items.held_out):
        assert {item.source for item in some} == {*named, ""}
