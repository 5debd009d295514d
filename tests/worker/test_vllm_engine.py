"""The engine on a vLLM server, against a small server that speaks its protocol: what is sent, when weights go, what fails how."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig
from vllm_service import VllmService
from worker_models import items, tiny_policy

from backend.contract.model import Lora, Model
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.vllm_engine import VllmEngine

pytestmark = pytest.mark.slow

DRAWS = Draws(3, "train", 1)
SHORT = Decoding(max_new_tokens=4)


@pytest.fixture
def policy() -> Policy:
    return tiny_policy(reference=False)


@pytest.fixture
def service(policy: Policy) -> Iterator[VllmService]:
    with VllmService.serving(policy.config, policy.tokenizer) as one:
        yield one


@pytest.fixture
def engine(policy: Policy, service: VllmService, tmp_path: Path) -> VllmEngine:
    return VllmEngine(policy, service.url, tmp_path / "weights", None)


def prompts_of(policy: Policy, count: int) -> list[list[int]]:
    return [policy.encode(item)[1] for item in items(count)]


def sample(engine: VllmEngine, policy: Policy) -> None:
    engine.sample(Request(prompts_of(policy, 2), group_size=2, decoding=SHORT, draws=DRAWS))


def update(policy: Policy, rate: float = 1e-5) -> None:
    """What Adam's first step at this rate does to the weights, always in the same direction, which does not matter here."""
    directions = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(rate * torch.randn(parameter.shape, generator=directions).sign())
    policy.updates += 1


def failure_of(engine: VllmEngine, policy: Policy, decoding: Decoding = SHORT) -> RunFailure:
    with pytest.raises(RunFailure) as caught:
        engine.sample(Request(prompts_of(policy, 2), group_size=2, decoding=decoding, draws=DRAWS))
    return caught.value


# ---- what is asked


def test_each_prompt_is_asked_once_for_its_whole_group(
    engine: VllmEngine, policy: Policy, service: VllmService
) -> None:
    prompts = prompts_of(policy, 3)
    engine.sample(
        Request(prompts, group_size=2, decoding=Decoding(temperature=0.5, max_new_tokens=4, stop=["x"]), draws=DRAWS)
    )
    assert sorted(body["prompt"] for body in service.bodies) == sorted(prompts)
    for body in service.bodies:
        assert (body["model"], body["n"], body["max_tokens"], body["temperature"]) == ("served-model", 2, 4, 0.5)
        assert (body["stop"], set(body["stop_token_ids"])) == (["x"], policy.stop_ids)
        # what the server would take from the model's generation settings is off
        assert (body["top_k"], body["top_p"], body["min_p"], body["repetition_penalty"]) == (0, 1, 0, 1)


def test_seeds_belong_to_the_step_and_the_group(engine: VllmEngine, policy: Policy, service: VllmService) -> None:
    def seeds(step: int, first_group: int) -> dict[int, int]:
        service.bodies.clear()
        prompts = prompts_of(policy, 2)
        draws = Draws(3, "train", step)
        engine.sample(Request(prompts, group_size=2, decoding=SHORT, draws=draws, first_group=first_group))
        return {first_group + prompts.index(body["prompt"]): body["seed"] for body in service.bodies}

    first = seeds(step=0, first_group=0)
    assert seeds(step=0, first_group=0) == first
    assert seeds(step=0, first_group=1)[1] == first[1]
    others = [*first.values(), *seeds(step=1, first_group=0).values(), *seeds(step=0, first_group=2).values()]
    assert len(set(others)) == 6


def test_the_operators_key_is_shown(policy: Policy, service: VllmService, tmp_path: Path) -> None:
    service.key = "secret"
    shown = VllmEngine(policy, service.url, tmp_path, "secret")
    assert len(shown.sample(Request(prompts_of(policy, 1), group_size=2, decoding=SHORT, draws=DRAWS))) == 2
    error = failure_of(VllmEngine(policy, service.url, tmp_path, "another"), policy)
    assert "401" in error.message
    assert "another" not in error.message
    address = service.url.replace("://", "://somebody:password@")
    assert "password" not in failure_of(VllmEngine(policy, address, tmp_path, "another"), policy).message


# ---- the weights


def test_weights_go_to_the_server_when_they_changed_and_only_then(
    engine: VllmEngine, policy: Policy, service: VllmService
) -> None:
    sample(engine, policy)
    sample(engine, policy)
    assert service.control == ["reload_weights", "reset_prefix_cache"]
    with torch.no_grad():
        policy.parameters()[0].mul_(1.5)
    policy.updates += 1
    sample(engine, policy)
    assert service.control == ["reload_weights", "reset_prefix_cache"] * 2
    served = dict(service.model.named_parameters())
    assert all(torch.equal(parameter, served[name]) for name, parameter in policy.model.named_parameters())


@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["full weights", "LoRA"])
def test_tied_weights_reach_the_servers_head(service: VllmService, tmp_path: Path, lora: Lora | None) -> None:
    policy = tiny_policy(Model(lora=lora), reference=False)
    assert policy.config.tie_word_embeddings
    sample(VllmEngine(policy, service.url, tmp_path, None), policy)
    head = policy.model.get_output_embeddings()
    assert torch.equal(service.model.lm_head.weight, head.weight)
    assert torch.equal(service.model.model.embed_tokens.weight, head.weight)


def test_the_folder_keeps_the_weights_that_the_server_has_and_no_older_ones(
    engine: VllmEngine, policy: Policy, tmp_path: Path
) -> None:
    (tmp_path / "weights" / "groupscope-of-a-worker-that-was-killed").mkdir(parents=True)
    (tmp_path / "weights" / "somebody-elses").mkdir()
    for _ in range(3):
        engine.sample(Request(prompts_of(policy, 1), group_size=2, decoding=SHORT, draws=DRAWS))
        policy.updates += 1
    kept, other = sorted((tmp_path / "weights").iterdir())
    assert other.name == "somebody-elses"
    assert [file.name for file in kept.iterdir()] == ["model.safetensors"]


# ---- an update that the server misses


@pytest.mark.thorough
def test_one_missed_update_at_a_rate_of_1e_minus_5_is_seen(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.checker = False
    sample(engine, policy)
    for _ in range(3):
        update(policy)
        sample(engine, policy)
    update(policy)
    monkeypatch.setattr(service, "reload", lambda folder: None)
    error = failure_of(engine, policy)
    assert error.code == "vllm_mismatch"
    assert "missed an update" in error.message
    assert policy.remarks == []


def test_missed_updates_too_small_to_be_seen_add_up_until_they_are(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.checker = False
    sample(engine, policy)
    monkeypatch.setattr(service, "reload", lambda folder: None)

    def train_a_little() -> None:
        update(policy, 1e-7)
        sample(engine, policy)

    train_a_little()  # within rounding: it cannot be seen
    with pytest.raises(RunFailure, match="missed an update"):  # noqa: PT012
        for _ in range(1_000):
            train_a_little()


def test_a_head_that_stays_behind_is_seen(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.checker = False
    sample(engine, policy)
    update(policy)
    head, reload = service.model.lm_head.weight.clone(), service.reload

    def all_but_the_head(folder: Path) -> None:
        reload(folder)
        service.model.lm_head.weight.data.copy_(head)

    monkeypatch.setattr(service, "reload", all_but_the_head)
    assert "took a part of it" in failure_of(engine, policy).message


def test_rounding_hides_no_missed_update_from_a_server_that_is_emptied_before(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.model.bfloat16()
    sample(engine, policy)
    update(policy)
    sample(engine, policy)
    update(policy)
    monkeypatch.setattr(service, "reload", lambda folder: None)
    assert "did not take 30 of the policy's weights" in failure_of(engine, policy).message
    assert policy.remarks == []


def test_the_first_weights_are_seen_to_arrive_too(
    engine: VllmEngine, policy: Policy, service: VllmService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(engine, policy)
    update(policy)  # as where a run goes on from a checkpoint, on a server that has what the run began with
    monkeypatch.setattr(service, "reload", lambda folder: None)
    assert (
        "did not take 30 of the policy's weights"
        in failure_of(VllmEngine(policy, service.url, tmp_path, None), policy).message
    )


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        (["layers.3.post_attention_layernorm"], "model.layers.3.post_attention_layernorm.weight"),
        ([f"layers.2.self_attn.{part}_proj" for part in "qkv"], "model.layers.2.self_attn.qkv_proj.weight"),
    ],
)
def test_a_weight_that_the_server_leaves_out_is_named(
    engine: VllmEngine,
    policy: Policy,
    service: VllmService,
    monkeypatch: pytest.MonkeyPatch,
    left_out: list[str],
    named: str,
) -> None:
    reload = service.reload

    def all_but_some(folder: Path) -> None:
        reload(folder)
        for name in left_out:
            service.model.get_parameter(f"model.{name}.weight").data.zero_()

    monkeypatch.setattr(service, "reload", all_but_some)
    error = failure_of(engine, policy)
    assert error.code == "vllm_mismatch"
    assert f"did not take 1 of the policy's weights, among them {named}" in error.message


def test_weights_that_are_0_are_not_missed(engine: VllmEngine, policy: Policy) -> None:
    with torch.no_grad():
        policy.model.get_parameter("model.layers.3.mlp.down_proj.weight").zero_()
    sample(engine, policy)


def test_a_run_says_once_where_a_missed_update_cannot_be_seen(
    engine: VllmEngine, policy: Policy, service: VllmService
) -> None:
    service.checker = False
    service.model.bfloat16()
    for _ in range(3):
        sample(engine, policy)
        update(policy)
    (remark,) = policy.remarks
    assert "it cannot be seen whether the vLLM server takes each update" in remark


# ---- what fails


def test_a_server_that_is_not_there(policy: Policy, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        error = failure_of(VllmEngine(policy, url, tmp_path, None), policy)
    assert error.code == "vllm_server"
    assert url in error.message
    assert "GROUPSCOPE_VLLM_URL" in error.message


def test_a_server_that_takes_no_weights(engine: VllmEngine, policy: Policy, service: VllmService) -> None:
    service.dev = False
    error = failure_of(engine, policy)
    assert error.code == "vllm_server"
    assert "VLLM_SERVER_DEV_MODE=1" in error.message
    assert "404" in error.message


def test_a_server_with_another_model(policy: Policy, tmp_path: Path) -> None:
    other = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    with VllmService.serving(other, policy.tokenizer) as service:
        error = failure_of(VllmEngine(policy, service.url, tmp_path, None), policy)
    assert error.code == "vllm_server"
    assert "the model that the run trains" in error.message


def test_a_server_that_measures_at_another_temperature(
    engine: VllmEngine, policy: Policy, service: VllmService
) -> None:
    service.processed = False
    hot = Decoding(temperature=5.0, max_new_tokens=8)
    error = failure_of(engine, policy, hot)
    assert error.code == "vllm_mismatch"
    assert "--logprobs-mode processed_logprobs" in error.message


def test_a_server_that_did_not_take_the_weights(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "reload", lambda folder: None)
    assert failure_of(engine, policy).code == "vllm_mismatch"


def test_after_a_failure_the_weights_go_again(engine: VllmEngine, policy: Policy, service: VllmService) -> None:
    service.dev = False
    failure_of(engine, policy)
    service.dev = True
    assert len(engine.sample(Request(prompts_of(policy, 1), group_size=2, decoding=SHORT, draws=DRAWS))) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_ids": None}, "token_ids"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, "1 log-probs"),
        ({"logprobs": None}, "logprobs"),
        ({"finish_reason": "abort"}, "finish_reason"),
    ],
)
def test_an_answer_in_another_form(
    engine: VllmEngine,
    policy: Policy,
    service: VllmService,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
    words: str,
) -> None:
    complete = service.complete
    monkeypatch.setattr(service, "complete", lambda body: [choice | change for choice in complete(body)])
    error = failure_of(engine, policy)
    assert error.code == "vllm_server"
    assert words in error.message


def test_an_answer_with_too_few_completions(
    engine: VllmEngine, policy: Policy, service: VllmService, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = service.complete
    monkeypatch.setattr(service, "complete", lambda body: complete(body)[1:])
    assert "gave 1 completions where 2 were asked for" in failure_of(engine, policy).message


def test_progress_is_asked_while_the_server_takes_its_time(
    engine: VllmEngine, policy: Policy, service: VllmService
) -> None:
    service.hold.clear()
    counts: list[int] = []

    def look(done: int) -> None:
        counts.append(done)
        if len(counts) == 2:
            service.hold.set()

    engine.sample(Request(prompts_of(policy, 1), group_size=2, decoding=SHORT, draws=DRAWS), on_progress=look)
    assert counts[:2] == [0, 0]
    assert counts[-1] == 2
