"""The model of the form, and settings to start with, against a real backend."""

import pytest
from acting import GRPO, Actor
from on_screen import Open, draft_of, texts
from serving import Backend
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Selectbox

from backend.contract.base import Json
from backend.contract.model_shape import ModelShape
from backend.contract.protocol import WorkerInfo
from backend.contract.recipes import SMOLLM2
from backend.contract.records import OfferedModel
from backend.contract.training import GIB

SHAPE = ModelShape(
    hidden=896, layers=24, heads=14, kv_heads=2, head_dim=64, intermediate=4864, vocabulary=151_936, context=32_768
)
QWEN = OfferedModel(source="local:qwen", parameters=494_032_768, shape=SHAPE)
BROKEN = OfferedModel(source="local:broken", problem="broken cannot be read: **[no](http://x) JSON**")


@pytest.fixture(autouse=True)
def worker(backend: Backend) -> None:
    """One worker with 8 GiB and two directories."""
    actor = Actor(backend.client)
    actor.info = WorkerInfo(
        name="one", device="CPU, 2 threads", memory_bytes=8 * GIB, store="/one", models=[QWEN, BROKEN]
    )
    assert actor.claim() is None


def chooser(at: AppTest) -> Selectbox[str]:
    return next(box for box in at.selectbox if box.label == "Model")


def paste(at: AppTest, text: str) -> None:
    next(box for box in at.text_area if "paste" in box.label).set_value(text).run()


CONFIG_JSON = """{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
"num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true, "time_step_limit": Infinity}"""


def test_each_model_stands_in_the_list_and_the_chosen_one_stays_chosen_while_its_line_changes_with_the_settings(
    open_page: Open,
) -> None:
    at = open_page("new-run")
    tiny, smollm2, qwen, broken = chooser(at).options
    assert tiny.startswith("Tiny arithmetic · comes along · 0.888 million parameters · ")
    assert tiny.endswith(", fits · builtin:tiny-arithmetic")
    assert smollm2.startswith("SmolLM2 135M Instruct · comes along · 135 million parameters · ")
    assert smollm2.endswith(f", fits · {SMOLLM2}")
    assert qwen.startswith("qwen · model root · 494 million parameters · ")
    assert qwen.endswith("GiB, does not fit · local:qwen")
    assert broken == "broken · model root · cannot be trained · local:broken"

    before = chooser(at).options
    chooser(at).set_value("local:qwen").run()
    at.toggle(key=draft_of(at).key("model.lora")).set_value(True).run()
    assert chooser(at).options != before
    at.number_input(key=draft_of(at).key("sampling.group_size")).set_value(4).run()
    assert not at.exception
    assert draft_of(at).get("model.source") == chooser(at).value == "local:qwen"
    assert chooser(at).options[2].endswith(", fits · local:qwen")


def test_settings_to_start_with_have_their_reason_and_are_taken_with_one_click_and_leave_the_rest(
    open_page: Open,
) -> None:
    at = open_page("new-run")
    chooser(at).set_value("local:qwen").run()
    shown = texts(at)
    assert "**Adapters (LoRA, rank 16)** :green-badge[advised]" in shown
    assert "**Optimizer › Learning rate** 1e-4  \n:gray[10 times the rate of all the weights" in shown
    assert "does not fit" in shown

    before = dict(draft_of(at).config)
    at.button(key=draft_of(at).key("starting-adapters")).click().run()
    assert not at.exception
    draft = draft_of(at)
    assert (draft.get("model.lora.rank"), draft.get("optimizer.learning_rate")) == (16, 1e-4)
    assert {name for name in before if before[name] != draft.config[name]} == {"model", "optimizer"}
    assert chooser(at).options[2].endswith(", fits · local:qwen")
    at.button(key=draft.key("starting-whole")).click().run()
    assert draft_of(at).get("model.lora") is None


def test_a_model_of_the_hub_has_no_known_size_until_its_config_json_is_pasted_and_another_model_is_chosen(
    open_page: Open, backend: Backend
) -> None:
    config: dict[str, Json] = {**GRPO, "model": {"source": "some/model"}}
    at = open_page("new-run", clone=backend.client.create_run(config).id)
    assert chooser(at).options[-1] == "some/model · Hub · size unknown"
    assert "Size unknown until a worker has downloaded its config.json, or you give it." in texts(at)
    assert not [button for button in at.button if button.label == "Use these"]

    paste(at, CONFIG_JSON)
    assert "given config.json" not in texts(at)
    next(button for button in at.button if button.label == "Estimate with it").click().run()
    assert chooser(at).options[-1].startswith("some/model · Hub · 1.24 billion parameters · ")
    shown = texts(at)
    assert "estimated from the given config.json: llama, 1,236 million parameters" in shown
    assert "Memory about" in shown.replace(":gray[Memory]", "Memory")
    assert [button for button in at.button if button.label == "Use these"]
    chooser(at).set_value("local:qwen").run()
    assert "given config.json" not in texts(at)


def test_what_is_no_config_json_or_cannot_be_counted_or_trained_says_why_without_markup(open_page: Open) -> None:
    at = open_page("new-run")
    for text, why in (
        ('{"model_type": "llama"', "This is not JSON"),
        ("[" * 50_000, "This is not JSON"),
        ("[1]", "A config.json is an object such as"),
    ):
        paste(at, text)
        assert not at.exception
        assert why in texts(at), text[:20]
        assert next(button for button in at.button if button.label == "Estimate with it").disabled

    paste(at, '{"model_type": "**gpt2**"}')
    next(button for button in at.button if button.label == "Estimate with it").click().run()
    said, *_ = [str(one.value) for one in at.markdown if "nothing can be estimated" in str(one.value)]
    assert "\\*\\*gpt2\\*\\* has other layers than Llama" in said
    assert "lacks hidden" in said
    next(button for button in at.button if button.label == "Estimate without it").click().run()
    assert "nothing can be estimated" not in texts(at)

    chooser(at).set_value("local:broken").run()
    [said] = [str(one.value) for one in at.markdown if "Broken cannot be read" in str(one.value)]
    assert "\\*\\*\\[no\\]" in said
