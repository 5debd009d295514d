"""The models to choose from: where they lie, how large they are, and whether they fit; and settings to start with."""

from typing import Any

import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.catalog import SHAPES, TINY_ARITHMETIC
from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG, TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora
from backend.contract.model_choice import ModelChoice, Models, StartingSettings
from backend.contract.model_shape import ModelShape
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.protocol import WorkerInfo
from backend.contract.recipes import SMOLLM2
from backend.contract.records import MOST_MODELS, OfferedModel, Offers
from backend.contract.training import GIB
from backend.preflight.facts import Facts
from backend.preflight.hints import hints
from backend.preflight.memory import needed
from backend.preflight.starting import starting_settings

QWEN_HALF = ModelShape(
    hidden=896, layers=24, heads=14, kv_heads=2, head_dim=64, intermediate=4864, vocabulary=151_936, context=32_768
)
QWEN_7B = ModelShape(
    hidden=3584,
    layers=28,
    heads=28,
    kv_heads=4,
    head_dim=128,
    intermediate=18_944,
    vocabulary=152_064,
    context=131_072,
    tied=False,
)
LOCAL = OfferedModel(source="local:qwen", parameters=494_032_768, shape=QWEN_HALF)
HUB = OfferedModel(source="Qwen/Qwen2.5-7B", parameters=7_615_616_512, shape=QWEN_7B)


def connect(backend: Backend, *models: OfferedModel, name: str = "one", gib: float | None = 8.0) -> Actor:
    """A worker that asked for work and got none."""
    actor = Actor(backend.client, name, f"/{name}")
    memory = None if gib is None else round(gib * GIB)
    actor.info = WorkerInfo(name=name, device="CPU, 2 threads", memory_bytes=memory, store=f"/{name}", models=[*models])
    assert actor.claim() is None
    return actor


def config_of(source: str, **model: Json) -> dict[str, Json]:
    return {**GRPO, "model": {"source": source, **model}}


def chosen(models: Models, source: str) -> ModelChoice:
    return next(one for one in models.items if one.source == source)


def test_what_comes_along_and_what_workers_have_is_offered_with_size_and_fit(backend: Backend) -> None:
    for published in (LOCAL, HUB):
        assert published.shape is not None
        assert published.shape.parameters == pytest.approx(published.parameters, rel=1e-3)
    connect(backend, HUB, LOCAL)
    models = backend.client.models(GRPO)
    assert [(one.source, one.place) for one in models.items] == [
        (TINY_ARITHMETIC, "builtin"),
        (SMOLLM2, "builtin"),
        ("local:qwen", "local"),
        ("Qwen/Qwen2.5-7B", "hub"),
    ]
    tiny, local, hub = (chosen(models, source) for source in (TINY_ARITHMETIC, LOCAL.source, HUB.source))
    assert (tiny.parameters, tiny.workers, tiny.fits, tiny.note) == (SHAPES[TINY_ARITHMETIC].parameters, 1, 1, "")
    # 16 bytes a parameter, and 8 GiB
    assert (local.parameters, local.workers, local.fits, local.too_small) == (494_032_768, 1, 0, 1)
    assert (hub.parameters, hub.too_small) == (7_615_616_512, 1)
    worker = Offers(device="CPU, 2 threads", memory_bytes=8 * GIB)
    config = RUN_CONFIG.validate_python(GRPO)
    assert local.memory_bytes == sum(needed(config, QWEN_HALF, worker).values())


def test_a_directory_is_weighed_on_the_workers_that_have_it(backend: Backend) -> None:
    connect(backend, name="roomy", gib=64)
    connect(backend, LOCAL, name="small", gib=4)
    local = chosen(backend.client.models(GRPO), LOCAL.source)
    assert (local.workers, local.fits, local.too_small) == (1, 0, 1)
    connect(backend, LOCAL, name="roomy", gib=64)
    local = chosen(backend.client.models(GRPO), LOCAL.source)
    assert (local.workers, local.fits, local.too_small) == (2, 1, 1)


def test_whether_it_fits_is_not_known_without_a_worker_or_its_memory(backend: Backend) -> None:
    tiny = chosen(backend.client.models(GRPO), TINY_ARITHMETIC)
    assert (tiny.workers, tiny.fits + tiny.too_small, tiny.memory_bytes is not None) == (0, 0, True)
    connect(backend, gib=None)
    tiny = chosen(backend.client.models(GRPO), TINY_ARITHMETIC)
    assert (tiny.workers, tiny.fits + tiny.too_small) == (1, 0)


def test_a_checkpoint_has_the_size_of_the_model_that_its_run_began_with(backend: Backend) -> None:
    connect(backend, LOCAL)
    run = backend.client.create_run(config_of(LOCAL.source), name="first")
    trainer = Actor(backend.client, "one", "/one")
    trainer.info = WorkerInfo(name="one", device="CPU", store="/one", memory_bytes=64 * GIB, models=[LOCAL])
    trainer.begin()
    for step in (2, 4):
        trainer.report(step - 1)
        trainer.save(step)
    trainer.finish()
    one = chosen(backend.client.models(GRPO), f"run:{run.id}@4")
    assert (one.place, one.title, one.parameters, one.fits) == ("checkpoint", "first, step 4", 494_032_768, 1)
    assert f"run:{run.id}@2" not in [other.source for other in backend.client.models(GRPO).items]
    older = chosen(backend.client.models(config_of(f"run:{run.id}@2")), f"run:{run.id}@2")
    assert (older.title, older.usable) == ("first, step 2", True)
    backend.clock.now += 600
    connect(backend, LOCAL, name="elsewhere")
    away = chosen(backend.client.models(GRPO), f"run:{run.id}@4")
    assert (away.workers, away.note) == (0, "no worker that is up reaches the store in which it lies")


@pytest.mark.parametrize(
    ("source", "usable", "note"),
    [
        ("some/model", True, "size unknown until a worker has downloaded its config.json, or you give it"),
        ("local:nowhere", False, "no worker that is up has it below its model root"),
        ("run:99@1", False, "there is no such checkpoint; choose one from the list"),
        ("builtin:nothing", False, "there is no such model; choose one from the list"),
    ],
)
def test_what_nobody_offers_stands_in_the_list_with_the_reason(
    backend: Backend, source: str, usable: bool, note: str
) -> None:
    models = backend.client.models(config_of(source))
    one = chosen(models, source)
    assert (one.usable, one.note, one.parameters, models.starting) == (usable, note, None, [])


def test_another_revision_another_architecture_and_what_cannot_be_trained_say_what_is_known(backend: Backend) -> None:
    gpt2 = OfferedModel(source="local:gpt2", parameters=124_439_808)
    connect(backend, HUB, gpt2, OfferedModel(source="local:bad", problem="bad cannot be read: no JSON"))
    models = backend.client.models(config_of(f"{HUB.source}@v2"))
    downloaded = chosen(models, f"{HUB.source}@v2")
    assert (downloaded.parameters, downloaded.note) == (QWEN_7B.parameters, "")
    one = chosen(models, "local:gpt2")
    assert (one.parameters, one.memory_bytes, one.fits + one.too_small) == (124_439_808, None, 0)
    assert one.note == "no memory estimate: its architecture is not counted here"
    bad = chosen(models, "local:bad")
    assert (bad.usable, bad.note) == (False, "bad cannot be read: no JSON")
    said = [m.text for m in backend.client.preflight(config_of("local:bad")).messages if m.field == "model.source"]
    assert said[0] == "no connected worker can train it: bad cannot be read: no JSON"
    backend.clock.now += 600
    assert [one.place for one in backend.client.models(GRPO).items] == ["builtin"] * 2, "who is silent offers nothing"


def test_sizes_are_there_while_the_form_is_wrong_and_estimates_only_once_it_is_right(backend: Backend) -> None:
    connect(backend, LOCAL)
    wrong_model = chosen(backend.client.models(config_of("../secrets")), LOCAL.source)
    assert wrong_model.memory_bytes is not None
    wrong_step = chosen(backend.client.models({**GRPO, "budget": {"steps": 0}}), LOCAL.source)
    assert (wrong_step.parameters, wrong_step.memory_bytes, wrong_step.too_small) == (494_032_768, None, 0)
    nothing = backend.client.models({})
    assert chosen(nothing, TINY_ARITHMETIC).parameters is not None


def test_a_given_config_json_is_that_of_the_chosen_model_alone(backend: Backend) -> None:
    connect(backend, LOCAL)
    given: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": 100,
    }
    before, models = (backend.client.models(config_of("some/model"), config_json) for config_json in (None, given))
    one = chosen(models, "some/model")
    assert one.parameters == 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64 + 2 * 64 * 100
    assert one.memory_bytes is not None
    assert chosen(before, "some/model").memory_bytes is None
    assert chosen(models, LOCAL.source) == chosen(before, LOCAL.source)
    assert models.starting
    answer = backend.client.preflight(config_of("some/model"), given)
    assert answer.memory is not None
    assert answer.memory.total_bytes == one.memory_bytes


def test_preflight_warns_of_a_directory_that_no_worker_has() -> None:
    def warned(*workers: Offers) -> bool:
        config = GrpoConfig.model_validate(config_of("local:nowhere"))
        return any("has nowhere below its model root" in one.text for one in hints(config, Facts(workers=workers)))

    other, here = (OfferedModel(source=source) for source in ("local:other", "local:nowhere"))
    assert warned(Offers(device="CPU"))
    assert not warned()
    assert not warned(Offers(device="CPU"), Offers(device="CPU", models=[here]))
    assert not warned(Offers(device="CPU", models=[other] * MOST_MODELS))  # it may have more than it says


# ---- settings to start with


def starts(config: TrainingConfig, shape: ModelShape, gib: float | None) -> tuple[StartingSettings, StartingSettings]:
    worker = None if gib is None else Offers(device="CPU, 2 threads", memory_bytes=round(gib * GIB))
    whole, adapters = starting_settings(config, shape, worker)
    return whole, adapters


def values(start: StartingSettings) -> dict[str, Any]:
    return {one.field: one.value for one in start.values}


@pytest.mark.parametrize(
    ("shape", "rate", "times"), [(SHAPES[TINY_ARITHMETIC], 5e-5, 10), (SHAPES[SMOLLM2], 1e-5, 10), (QWEN_7B, 1e-6, 100)]
)
def test_the_learning_rate_follows_the_size_and_what_is_trained(shape: ModelShape, rate: float, times: int) -> None:
    whole, adapters = starts(GrpoConfig(), shape, None)
    assert values(whole)["optimizer.learning_rate"] == rate
    assert values(whole)["model.lora"] is None
    assert values(adapters)["optimizer.learning_rate"] == pytest.approx(times * rate, rel=1e-12)
    (reason,) = (one.reason for one in adapters.values if one.field == "optimizer.learning_rate")
    assert f"{times} times" in reason
    assert values(adapters)["model.lora"] == Lora().model_dump(mode="json")
    assert all(one.reason for start in (whole, adapters) for one in start.values)


@pytest.mark.parametrize("shape", [SHAPES[TINY_ARITHMETIC], SHAPES[SMOLLM2], QWEN_7B])
@pytest.mark.parametrize("kind", [GrpoConfig, DpoConfig])
def test_what_is_advised_is_never_warned_of(shape: ModelShape, kind: type[GrpoConfig | DpoConfig]) -> None:
    model = OfferedModel(source="local:model", shape=shape)
    worker = Offers(device="CPU, 2 threads", memory_bytes=100 * GIB, models=[model])
    for start in starting_settings(kind(), shape, worker):
        config: Any = kind().model_dump(mode="json")
        config["model"]["source"] = "local:model"
        for field, value in values(start).items():
            part, name = field.split(".")
            config[part][name] = value
        checked: Any = RUN_CONFIG.validate_python(config)
        warned = {one.field for one in hints(checked, Facts(workers=[worker])) if one.level != "info"}
        assert warned & set(values(start)) == set()
        assert sum(needed(checked, shape, worker).values()) == start.memory_bytes


def test_little_memory_means_smaller_micro_batches_and_at_last_recomputation() -> None:
    config = GrpoConfig()
    needs = starts(config, SHAPES[SMOLLM2], 64)[0].memory_bytes / GIB
    roomy, tight, tighter = (values(starts(config, SHAPES[SMOLLM2], share * needs)[0]) for share in (2, 1.05, 0.8))
    assert roomy["optimizer.micro_batch_tokens"] == 8192
    assert tight["optimizer.micro_batch_tokens"] < 8192
    assert not tight["model.gradient_checkpointing"]
    assert tighter["model.gradient_checkpointing"]


def test_all_weights_are_advised_for_small_models_that_fit_else_adapters_else_nothing() -> None:
    def advised(shape: ModelShape, gib: float) -> list[bool]:
        return [one.advised for one in starts(GrpoConfig(), shape, gib)]

    assert advised(SHAPES[SMOLLM2], 16) == [True, False]
    assert advised(SHAPES[SMOLLM2], 3) == [False, True]
    assert advised(QWEN_7B, 1000) == [False, True]
    assert advised(QWEN_7B, 8) == [False, False]


def test_a_micro_batch_holds_the_longest_completion() -> None:
    config = GrpoConfig.model_validate(
        {**GRPO, "sampling": {"max_new_tokens": 6000}, "optimizer": {"micro_batch_tokens": 16_384}}
    )
    for start in starts(config, QWEN_7B, 1):
        assert values(start)["optimizer.micro_batch_tokens"] > 6000


def test_a_reward_model_keeps_its_own_learning_rate() -> None:
    whole, _ = starts(RewardModelConfig(), SHAPES[SMOLLM2], 8)
    assert "optimizer.learning_rate" not in values(whole)


def test_starting_settings_and_the_estimate_are_of_the_chosen_model_and_the_forms_settings(backend: Backend) -> None:
    connect(backend, LOCAL)
    adapted = config_of(LOCAL.source, lora=Lora().model_dump(mode="json"))
    whole, with_adapters = (chosen(backend.client.models(one), LOCAL.source) for one in (GRPO, adapted))
    estimate = backend.client.preflight(adapted).memory
    assert estimate is not None
    assert with_adapters.memory_bytes == estimate.total_bytes < (whole.memory_bytes or 0)
    assert (whole.fits, with_adapters.fits) == (0, 1)
    all_weights, adapters = backend.client.models(config_of(LOCAL.source)).starting
    assert (all_weights.title, adapters.title) == ("All weights", "Adapters (LoRA, rank 16)")
    assert "494 million" in all_weights.values[0].reason
    assert adapters.advised
    assert backend.client.models(config_of("some/model")).starting == []
