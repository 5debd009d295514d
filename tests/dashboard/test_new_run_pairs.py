"""The New run page for runs on preference pairs, against a real backend."""

import pytest
from on_screen import Open, draft_of, press, start_disabled, texts
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

backend = pytest.fixture(one_for_all)  # what a test leaves in the queue is nothing to the others

PAIRS = b'{"prompt": "2 + 2 x 6?", "chosen": "14", "rejected": "24"}\n{"prompt": "1 + 2 x 2?", "chosen": "5", "rejected": "6"}\n'


def sections(at: AppTest) -> list[str]:
    return [expander.label.split("**")[1] for expander in at.expander if expander.label.startswith("**")]


@pytest.mark.parametrize(("recipe", "kind"), [("reward-model", "reward_model"), ("dpo", "dpo")])
def test_a_recipe_of_another_kind_brings_its_own_form_and_starts_a_run_of_its_kind(
    open_page: Open, backend: Backend, recipe: str, kind: str
) -> None:
    at = open_page("new-run")
    assert "Algorithm" in sections(at)
    at.button_group(key="family-grpo").set_value("Preferences").run()
    at.button(key=f"recipe-{recipe}").click().run()
    assert not at.exception
    assert sections(at) == ["Model", "Pairs", "Task", "Rewards", "Decoding", "Optimizer", "Budget"]
    steps = 60 if kind == "reward_model" else 100
    assert f"16 pairs × {steps} steps = **{16 * steps:,}** pairs" in texts(at)
    seen = "96 % of these are used" if kind == "reward_model" else "each is used 1.60 times"
    assert f"drawn from at most **1,000** different ones (of 1000 groups of 8): {seen}" in texts(at)
    press(at, "Start run")
    [run, *_] = backend.client.runs(limit=1).items
    assert (run.kind, run.config["recipe"]) == (kind, recipe)


def test_own_pairs_are_chosen_by_their_columns_and_what_does_not_go_together_is_said_at_its_field(
    open_page: Open, backend: Backend
) -> None:
    upload = backend.client.upload("pairs.jsonl", PAIRS)
    at = open_page("new-run", recipe="reward-model")
    draft = draft_of(at)
    at.selectbox(key=draft.key("pairs.kind")).set_value("dataset").run()
    assert sections(at) == ["Model", "Pairs", "Optimizer", "Budget"]
    at.selectbox(key=draft.key("pairs.source")).set_value(f"upload:{upload.id}").run()
    assert not at.exception
    assert draft.get("pairs.chosen_column") == "chosen"
    assert draft.get("pairs.rejected_column") == "rejected"
    assert "drawn from about **2** different ones" in texts(at)
    draft.change({"pairs.chosen_column": "poem"})
    at.run()
    assert "column poem is missing in rows 1, 2" in texts(at)
    assert start_disabled(at)

    at = open_page("new-run", recipe="reward-model")
    draft = draft_of(at)
    draft.change({"optimizer.micro_batch_tokens": 64})
    at.run()
    assert "a micro-batch of 64 tokens cannot hold both completions of a pair" in texts(at)
    at.button(key=draft.key("fix-optimizer.micro_batch_tokens-0")).click().run()
    assert draft.get("optimizer.micro_batch_tokens") == 384
    assert not start_disabled(at)
