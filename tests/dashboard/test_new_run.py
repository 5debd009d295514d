"""The New run page against a real backend."""

import re
from collections.abc import Callable
from typing import cast

import pytest
import recorded
from acting import SAMPLE, as_submitted
from following import follow
from on_screen import Open, draft_of, key, press, send, start_disabled, texts
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import ButtonGroup, NumberInput, Selectbox, TextArea, TextInput, Toggle

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.grpo import GrpoConfig
from backend.contract.protocol import ClaimRequest, Report, Start, WorkerInfo
from backend.contract.recipes import RECIPES
from dashboard.form.draft import Draft, from_text
from dashboard.session import script
from dashboard.stored import get, put

backend = pytest.fixture(one_for_all)  # what a test leaves in the queue is nothing to the others

Widget = NumberInput | TextInput | TextArea | Selectbox[str] | ButtonGroup[str] | Toggle
DEFAULT = GrpoConfig().model_dump(mode="json")
DATA = b'{"question": "2 + 2?", "solution": "4"}\n{"question": "1 + 2?", "solution": "3"}\n'
ELSEWHERE = ("name", "tags", "model.lora", "sampling.curriculum", "task.upload", "task.source.place")


def value_widgets(at: AppTest) -> dict[str, Widget]:
    """The widgets that each hold one value of the configuration, by path."""
    found: list[Widget] = [*at.number_input, *at.text_input, *at.text_area, *at.selectbox, *at.button_group, *at.toggle]
    widgets = {str(widget.key).partition("@")[0]: widget for widget in found if "@" in str(widget.key)}
    return {path: one for path, one in widgets.items() if path not in ELSEWHERE and not path.endswith(".kind")}


def leaves(value: Json, path: str = "") -> set[str]:
    """The paths of single values: numbers, texts, and lists of those."""
    if isinstance(value, dict) and path != "task.params":
        return {leaf for name, inner in value.items() for leaf in leaves(inner, f"{path}.{name}" if path else name)}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {leaf for index, inner in enumerate(value) for leaf in leaves(inner, f"{path}.{index}")}
    return {path}


def nudge(widget: Widget) -> None:
    """Another value that the widget accepts."""
    if isinstance(widget, NumberInput):
        widget.set_value(widget.value + 1)
    elif isinstance(widget, Toggle):
        widget.set_value(not widget.value)
    elif isinstance(widget, Selectbox):
        others = [option for option in widget.options if option != widget.format_func(widget.value)]
        name = others[0].rpartition(" · ")[2]  # a model's line ends with its source
        widget.set_value(name.replace(" ", "_").replace("z-score", "zscore"))
    elif isinstance(widget, ButtonGroup):
        multiple = isinstance(widget.value, list)
        widget.set_value([] if multiple else next(option for option in widget.options if option != widget.value))
    else:
        widget.set_value(f"{widget.value or ''}9")


@pytest.mark.parametrize(  # a second each: one of a kind shows it
    "recipe",
    [pytest.param(one, marks=() if one.id in ("grpo", "dpo") else pytest.mark.thorough) for one in RECIPES],
    ids=lambda one: one.id,
)
def test_every_field_of_a_recipe_comes_back_unchanged_from_its_widget_and_the_run_that_starts_has_it(
    open_page: Open, backend: Backend, recipe: RecipeCard
) -> None:
    at = open_page("new-run", recipe=recipe.id)
    assert draft_of(at).config == recipe.config
    labels = {"schema_version", "kind", "recipe"}
    expected = {leaf for leaf in leaves(recipe.config) if leaf not in labels and not leaf.endswith(".kind")}
    shown = {path: widget.value for path, widget in value_widgets(at).items()}
    assert expected - {"model.lora", "sampling.curriculum", "rewards.gates", "pairs.rewards.gates"} == set(shown)
    for widget in value_widgets(at).values():
        nudge(widget)
    at.run()
    nudged = draft_of(at).config
    assert {path for path in shown if get(nudged, path) == get(recipe.config, path)} == set()
    for path, widget in value_widgets(at).items():
        widget.set_value(shown[path])
    at.run()
    assert not at.exception
    assert draft_of(at).config == recipe.config

    at.number_input(key=key(at, "budget.seed")).set_value(6)
    at.text_input(key=key(at, "name")).set_value("mine").run()
    press(at, "Start run")
    run = backend.client.runs().items[0]
    assert run.name == "mine"
    assert run.config == put(as_submitted(recipe.config), "budget.seed", 6)
    assert follow(at).query_params == {"id": str(run.id)}
    assert "draft" not in at.session_state


def test_the_same_form_sent_twice_makes_one_run(open_page: Open, backend: Backend) -> None:
    draft = draft_of(open_page("new-run"))
    first, second = (
        backend.client.create_run(draft.config, idempotency_key=draft.submission_key()).id for _ in range(2)
    )
    draft.write("budget.steps", 70)
    third = backend.client.create_run(draft.config, idempotency_key=draft.submission_key()).id
    assert first == second != third


def test_a_change_from_outside_renews_the_widgets_that_show_it_and_no_others() -> None:
    draft = Draft()
    draft.fill(RECIPES[0].config)
    others = ("name", "budget.seed", "rewards.functionsX", "task.prompt")
    renewed = ("rewards", "rewards.functions", "rewards.functions.0.name", "task.prompt_column")
    before = {path: draft.key(path) for path in (*others, *renewed)}
    draft.change({"rewards.functions": [], "task.prompt_column": "question"})
    assert [path for path in before if draft.key(path) != before[path]] == [*renewed]
    draft.fill(RECIPES[0].config)
    assert [path for path in before if draft.key(path) == before[path]] == []


@pytest.mark.thorough
def test_what_the_browser_still_holds_of_older_widgets_undoes_nothing(open_page: Open) -> None:
    at = open_page("new-run")
    draft_of(at).change({"rewards.functions": [{"kind": "python", "name": "mine", "weight": 2.0, "function": "a:b"}]})
    at.run()
    for widget in value_widgets(at).values():
        nudge(widget)
    at.text_input(key=key(at, "name")).set_value("first").run()
    older = at._tree.get_widget_states()
    draft_of(at).fill(RECIPES[0].config)
    at.run()
    at.text_input(key=key(at, "name")).set_value("second").run()
    sent = at._tree.get_widget_states()
    sent.widgets.extend(one for one in older.widgets if one.WhichOneof("value") != "trigger_value")  # as a browser does
    at._run(sent)
    assert not at.exception
    assert draft_of(at).config == RECIPES[0].config
    assert draft_of(at).name == "second"


def test_what_is_wrong_stops_the_start_says_why_at_its_field_stays_as_it_was_typed_and_is_fixed_by_a_click(
    open_page: Open,
) -> None:
    at = open_page("new-run")
    for field, number in (("sampling.group_size", 0), ("budget.steps", 99_999_999), ("budget.seed", -1)):
        typed = at.number_input(key=key(at, field))
        assert (typed.min, typed.max) == (None, None), "the browser would keep the last good one, and say nothing"
        typed.set_value(number).run()
        assert start_disabled(at), field
        assert at.number_input(key=key(at, field)).value == number
        assert f"(got {number})" in texts(at)

    at = open_page("new-run")
    assert not start_disabled(at)
    at.number_input(key=key(at, "budget.steps")).set_value(5).run()
    assert start_disabled(at)
    assert texts(at).count("warm-up of 10 steps is longer than the run of 5") == 2
    assert "1 to correct" in next(box.label for box in at.expander if "Optimizer" in box.label)
    at.button(key=key(at, "preflight-fix-0")).click().run()
    assert not start_disabled(at)
    assert at.number_input(key=key(at, "optimizer.warmup_steps")).value <= 5

    at.selectbox(key=key(at, "algorithm.surrogate.kind")).set_value("dpo").run()
    fix = at.button(key=key(at, "preflight-fix-0"))
    assert fix.label.replace("\\", "") == "Set advantage to best worst"
    fix.click().run()
    assert draft_of(at).get("algorithm.advantage.kind") == "best_worst"


def test_the_sampling_engine_is_chosen_and_one_that_nobody_has_is_said(open_page: Open, backend: Backend) -> None:
    backend.client.ask(ClaimRequest(worker=WorkerInfo(name="plain", device="CPU", store="/s")))
    at = open_page("new-run")
    engine = at.selectbox(key=key(at, "sampling.engine"))
    assert (engine.label, engine.value, engine.options) == ("Engine", "native", ["native", "transformers", "vllm"])
    assert "the same seed need not give the same tokens" in engine.help.replace("\\", "")
    engine.set_value("vllm").run()
    assert "engine vllm" in next(box.label for box in at.expander if "Sampling" in box.label)
    assert "no connected worker samples with vllm" in texts(at)
    at.text_input(key=key(at, "sampling.top_p")).set_value("0.9").run()
    assert "gives log-probs over what top-p 0.9 left" in texts(at)
    assert start_disabled(at)


@pytest.mark.thorough
def test_the_time_is_of_the_steps_alone_and_says_so(open_page: Open, backend: Backend) -> None:
    client, plain = backend.client, WorkerInfo(name="plain", device="CPU, 2 threads", store="/s")
    client.ask(ClaimRequest(worker=plain))
    [time] = [one.value for one in open_page("new-run").markdown if one.value.startswith(":gray[Time]")]
    assert "not known yet" in time
    assert "no model of known shape was timed on CPU, 2 threads yet" in time
    run_id = recorded.queue(client, sampling={"group_size": 4})
    while (claim := client.ask(ClaimRequest(worker=plain)).claim) is not None and claim.run_id != run_id:
        pass  # of other tests
    assert claim is not None
    client.start(run_id, Start(attempt=claim.attempt, from_step=0, device=plain.device))
    client.report(run_id, Report(attempt=claim.attempt, seq=0, step=0, metrics={"step_time": 0.5}))
    [time] = [one.value for one in open_page("new-run").markdown if one.value.startswith(":gray[Time]")]
    assert " for 100 steps" in time
    assert f"at the rate of run {run_id} on CPU" in time
    assert re.search(r"about \*\*\S+ s\*\* a step \(0\.\d+ s to \d\.?\d* s\)", time)
    assert "scoring and evaluations are not counted" in time


def test_what_preflight_says_follows_the_form_and_no_number_is_refused_where_it_was_typed(open_page: Open) -> None:
    at = open_page("new-run")
    assert "16 prompts × 8 completions = **128** a step" in texts(at)
    assert "**12,800** completions in all" in texts(at)
    at.number_input(key=key(at, "sampling.group_size")).set_value(4).run()
    assert "16 prompts × 4 completions = **64** a step" in texts(at)
    assert "unknown until the model's answers are sampled" in texts(at)

    at.text_input(key=key(at, "optimizer.learning_rate")).set_value("fast").run()
    assert start_disabled(at)
    assert at.text_input(key=key(at, "optimizer.learning_rate")).value == "fast"
    at.text_input(key=key(at, "optimizer.learning_rate")).set_value("2e-4").run()
    assert not start_disabled(at)
    assert draft_of(at).get("optimizer.learning_rate") == 2e-4


def test_choosing_another_recipe_replaces_the_form_and_neither_another_page_nor_a_backend_that_is_away_does(
    open_page: Open, dashboard_of: Callable[[str], None]
) -> None:
    at = open_page("new-run")
    at.number_input(key=key(at, "sampling.group_size")).set_value(6).run()
    at.switch_page(script("workers")).run()
    at.switch_page(script("new-run")).run()
    assert at.number_input(key=key(at, "sampling.group_size")).value == 6

    at.button(key="recipe-grpo-notebook").click().run()
    assert draft_of(at).config == next(one.config for one in RECIPES if one.id == "grpo-notebook")
    assert at.number_input(key=key(at, "sampling.group_size")).value == 4
    assert at.query_params == {"recipe": "grpo-notebook"}
    assert "Unusual on purpose in this recipe: Sampling › Top k" in texts(at)
    assert not [button for button in at.button if button.label.startswith("Set ")]

    at.number_input(key=key(at, "sampling.group_size")).set_value(6).run()
    dashboard_of("http://127.0.0.1:9")  # nothing listens on the discard port
    at.run()
    assert "does not answer" in at.warning[0].value
    assert at.number_input(key=key(at, "sampling.group_size")).value == 6


def test_a_clone_and_a_checkpoint_fill_the_form_and_name_their_parent_and_what_cannot_be_cloned_fills_none(
    open_page: Open, backend: Backend
) -> None:
    config = put(DEFAULT, "sampling.group_size", 5)
    parent = backend.client.create_run(cast("dict[str, Json]", config), name="first", tags=["a"])
    at = open_page("new-run", clone=parent.id)
    assert as_submitted(draft_of(at).config) == parent.config
    assert at.text_input(key=key(at, "name")).value == "first (copy)"
    at.number_input(key=key(at, "sampling.group_size")).set_value(7).run()
    press(at, "Start run")
    copy = backend.client.runs().items[0]
    assert (copy.name, copy.parent_id, copy.tags) == ("first (copy)", parent.id, ["a"])
    assert get(copy.config, "sampling.group_size") == 7

    at = open_page("new-run", **{"from": f"{parent.id}@3"})
    assert draft_of(at).get("model.source") == f"run:{parent.id}@3"
    assert value_widgets(at)["model.source"].value == f"run:{parent.id}@3"
    assert draft_of(at).parent_id == parent.id
    assert draft_of(at).config == draft_of(at).kept  # the address leads to it again

    at = open_page("new-run", clone=backend.client.record(recorded.THEIRS).run_id)
    assert "Filled from run" not in texts(at)

    assert "There is no run 999." in texts(open_page("new-run", clone=999))
    sample = backend.client.create_run(SAMPLE).id
    assert draft_of(open_page("new-run", clone=sample)).config["kind"] == "grpo"


def test_rewards_gates_lora_and_the_fields_of_another_task_come_and_go_and_a_name_typed_meanwhile_is_kept(
    open_page: Open,
) -> None:
    at = open_page("new-run")
    at.button(key=key(at, "rewards.gates.add.gate")).click().run()
    at.selectbox(key=key(at, "rewards.gates.0.reward")).set_value("correctness").run()
    at.selectbox(key=key(at, "rewards.gates.0.requires")).set_value("format").run()
    assert not start_disabled(at)

    at.button(key=key(at, "rewards.gates.0.remove")).click().run()
    at.button(key=key(at, "rewards.functions.add.format")).click().run()
    assert [get(one, "name") for one in cast(list[Json], draft_of(at).get("rewards.functions"))] == [
        "correctness",
        "format",
        "format-2",
    ]
    at.button(key=key(at, "rewards.functions.1.remove")).click().run()
    at.button(key=key(at, "rewards.functions.1.remove")).click().run()
    assert len(cast(list[Json], draft_of(at).get("rewards.functions"))) == 1
    assert at.button(key=key(at, "rewards.functions.0.remove")).disabled

    at.toggle(key=key(at, "model.lora")).set_value(True).run()
    at.number_input(key=key(at, "model.lora.rank")).set_value(4).run()
    at.text_area(key=key(at, "model.lora.target_modules")).set_value("q_proj\nv_proj").run()
    assert draft_of(at).get("model.lora") == {"rank": 4, "alpha": 32, "target_modules": ["q_proj", "v_proj"]}
    at.toggle(key=key(at, "model.lora")).set_value(False).run()
    assert draft_of(at).get("model.lora") is None

    at = open_page("new-run")
    at.selectbox(key=key(at, "task.kind")).set_value("countdown").run()
    assert draft_of(at).get("task.numbers") == 4
    assert at.number_input(key=key(at, "task.numbers")).value == 4
    assert not start_disabled(at)

    at.selectbox(key=key(at, "algorithm.advantage.kind")).set_value("softmax")
    at.text_input(key=key(at, "name")).set_value("mine")
    at.run()
    assert not at.exception
    assert draft_of(at).name == "mine"


@pytest.mark.thorough
def test_an_uploaded_file_shows_its_rows_and_its_columns_and_an_unreadable_one_is_refused_with_its_line(
    open_page: Open, backend: Backend
) -> None:
    at = open_page("new-run")
    at.selectbox(key=key(at, "task.kind")).set_value("dataset").run()
    assert start_disabled(at)
    send(at, ("mine.jsonl", DATA))
    upload = backend.client.uploads()[0]
    assert draft_of(at).get("task.source") == f"upload:{upload.id}"
    assert list(at.dataframe[0].value.iloc[0]) == ["2 + 2?", "4"]
    assert at.selectbox(key=key(at, "task.prompt_column")).value == "question"
    assert at.selectbox(key=key(at, "task.answer_column")).value == "solution"
    assert at.selectbox(key=key(at, "task.prompt_column")).options == ["question", "solution"]
    assert not start_disabled(at)

    send(at, ("mine.jsonl", DATA + b"{broken"))
    assert "line 3" in texts(at)


def test_a_configuration_that_breaks_the_rules_is_shown_to_be_mended(open_page: Open) -> None:
    at = open_page("new-run")
    draft_of(at).change({"sampling.group_size": 0, "task.kind": "chess", "algorithm.kl.estimator": "k9"})
    at.run()
    assert not at.exception
    assert start_disabled(at)
    assert at.number_input(key=key(at, "sampling.group_size")).value == 0
    assert at.text_input(key=key(at, "algorithm.kl.estimator")).value == "k9"
    at.button(key=key(at, "algorithm.kl.estimator.default")).click().run()
    assert draft_of(at).get("algorithm.kl.estimator") == "k3"


def test_a_configuration_of_trl_fills_the_form_and_says_what_it_could_not_take(open_page: Open) -> None:
    at = open_page("new-run")
    draft = draft_of(at)
    text = "args = GRPOConfig(num_generations=4, per_device_train_batch_size=8, max_steps=30, learning_rate=rate(), min_p=0.5)"
    config, remarks = from_text(text, draft.config)
    draft.fill(config)
    draft.remarks = remarks
    at.run()
    assert not at.exception
    shown = {path: widget.value for path, widget in value_widgets(at).items()}
    assert (shown["sampling.group_size"], shown["sampling.prompts_per_step"], shown["budget.steps"]) == (4, 2, 30)
    assert get(draft.config, "optimizer.learning_rate") == get(DEFAULT, "optimizer.learning_rate")
    [said] = [one.value.replace("\\", "") for one in at.info if "TRL" in one.value]
    assert "learning_rate is computed in line 1: set it here\n- min_p 0.5 has no counterpart here" in said
