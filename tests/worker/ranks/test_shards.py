"""What each process holds, and what it leaves on the disk for any number of others."""

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec, patch

import pytest
import torch
from together import in_float64, together, whole
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from witness import Witness, configured, train
from worker_models import tiny_policy

from backend.contract.records import Progress
from worker import attempt
from worker.attempt import Attempt
from worker.checkpoint import damage
from worker.learner import Learner
from worker.policy.policy import Policy
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.sharding import local
from worker.reporter import Channels, Place
from worker.rollout.engine import quiet
from worker.store import Store
from worker.uploads import Uploads

HALVES = {"steps": 4, "checkpoint_every": 2, "eval_every": 0}
FEW = {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 24}
KINDS: dict[str, dict[str, Any]] = {
    "all weights and a critic": {
        "algorithm": {"advantage": {"kind": "gae"}, "kl": {"placement": "reward", "estimator": "k1"}}
    },
    "adapters": {"model": {"lora": {"rank": 4, "alpha": 8}}},
    "a reference that follows": {"algorithm": {"kl": {"reference": "synced", "sync_every": 3}}},
}


def halfway(
    ranks: Ranks, folder: Path, kind: str, resume: Path | None = None
) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The checkpoints of a training in float64, and its weights at the end; from `resume` on if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    witness = Witness()
    with in_float64():
        config = configured(budget=HALVES, sampling=FEW, **KINDS[kind])
        _, policy = train(config, folder, witness, resume=resume, attempt=1 if resume is None else 2, ranks=ranks)
    assert all(damage(folder / one.path, one.sha256) is None for one in witness.checkpoints)
    return [one.path for one in witness.checkpoints], {name: whole(one) for name, one in policy.named_parameters()}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [*[*KINDS][:1], *(pytest.param(one, marks=pytest.mark.long) for one in [*KINDS][1:])])
def test_a_checkpoint_of_two_processes_is_gone_on_with_by_one_and_one_of_one_by_three(
    tmp_path: Path, kind: str
) -> None:
    (begun, *_), _ = halfway(ALONE, tmp_path / "one", kind)
    # What is loaded has been rounded to float32, as weights are in a run: so have those that are expected.
    _, expected = halfway(ALONE, tmp_path / "one", kind, tmp_path / "one" / begun)
    (paths, _), _ = together(2, 2, tmp_path / "meet-2", halfway, tmp_path / "two", kind)
    _, by_one = halfway(ALONE, tmp_path / "two", kind, tmp_path / "two" / paths[0])
    (_, by_three), *_ = together(3, 3, tmp_path / "meet-3", halfway, tmp_path / "one", kind, tmp_path / "one" / begun)
    for name, values in expected.items():
        assert torch.allclose(by_three[name], values, rtol=0, atol=1e-10), name
        assert torch.allclose(by_one[name], values, rtol=0, atol=1e-6), name  # two float64 may round to neighbours


def test_all_processes_wait_in_rounds_for_a_bucket_that_is_away_longer_than_their_patience(tmp_path: Path) -> None:
    policy, said, rooms = tiny_policy(reference=False), list[bool](), iter([False, False, True])
    channels = Channels(quiet, quiet, lambda: "nothing", quiet, lambda: False)
    place = Place(1, 1, Store(tmp_path), "store", None, "CPU", {})
    one = Attempt(place, channels, policy, torch.optim.AdamW(policy.parameters()), configured().budget)
    one.reporter._uploads = create_autospec(Uploads, instance=True)
    one.reporter._uploads.wait.side_effect = lambda show, *, most, hurried, seconds: hurried() and next(rooms)
    one.advance(drawn=0, tokens=0, samples=0)
    with patch.object(Ranks, "any", lambda self, mine: said.append(mine) or mine):
        one._save()
    assert said == [True, True, False]


class Scale(list[Progress]):
    """The most bytes that a process held of weights, gradients and optimizer state, by what it did meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.policy: Policy | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.phase, self.most = "loading", dict[str, int]()

    def append(self, progress: Progress) -> None:
        self.phase = progress.phase or self.phase

    def weigh(self) -> None:
        if self.policy is None or self.optimizer is None:
            return
        held = [one for _, one in self.policy.named_parameters()]
        held += [one.grad for one in held if one.grad is not None]
        held += [one for moments in self.optimizer.state.values() for one in moments.values()]
        held += (self.policy.reference_weights or {}).values()
        for module in self.policy.model.modules():
            if isinstance(module, FSDPModule):
                for one in module._get_fsdp_state()._fsdp_param_group.fsdp_params:
                    if (gathered := getattr(one, "_unsharded_param", None)) is not None:
                        held += [gathered] if gathered.grad is None else [gathered, gathered.grad]
        storages = {one.data_ptr(): one.nbytes() for one in (local(one).untyped_storage() for one in held)}
        total = sum(storages.values())
        self.most[self.phase] = max(self.most.get(self.phase, 0), total)

    def around(
        self, owner: object, method: str, *, before: bool = True, phase: str = ""
    ) -> AbstractContextManager[object]:
        """Weighs after each call of this method and, unless what it needs has to be gathered first, before it."""
        do = getattr(owner, method)

        def weigh_and_do(*given: Any, **named: Any) -> Any:
            self.phase = phase or self.phase
            if before:
                self.weigh()
            result = do(*given, **named)
            self.weigh()
            return result

        return patch.object(owner, method, weigh_and_do)


def weighed(ranks: Ranks, folder: Path) -> dict[str, int]:
    """The most bytes by phase, in two steps with a KL penalty, an evaluation and a checkpoint."""
    scale, learner_init = Scale(), Learner.__init__
    folder.mkdir(parents=True, exist_ok=True)

    def note(self: Learner, policy: Policy, *given: Any) -> None:
        learner_init(self, policy, *given)
        scale.policy, scale.optimizer = policy, self.optimizer

    config = configured(
        budget=HALVES | {"steps": 2, "checkpoint_every": 1},
        sampling=FEW | {"prompts_per_step": 4, "max_new_tokens": 32},
        algorithm={"kl": {"beta": 0.04}},
    )
    with (
        patch.object(Learner, "__init__", note),
        scale.around(FSDPParamGroup, "wait_for_unshard", before=False),
        scale.around(FSDPParamGroup, "post_backward"),
        scale.around(torch.optim.AdamW, "step"),
        scale.around(Learner, "_measure_before", phase="reference"),
        scale.around(Learner, "_pass_through", phase="update"),
        scale.around(attempt, "write_checkpoint"),
    ):
        train(config, folder, Witness(), ranks=ranks, shown=scale)
    return scale.most


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_of_four_processes_holds_a_quarter_and_what_it_computes_with(tmp_path: Path) -> None:
    model = tiny_policy(reference=False).model
    weights, layer, table = (
        sum(one.nbytes for one in module.parameters())
        for module in (model, model.get_decoder().layers[0], model.get_input_embeddings())
    )
    one_process = 5 * weights  # weights, reference, gradients, two moments
    for most in together(4, 4, tmp_path / "meeting", weighed, tmp_path / "four"):
        assert most.keys() >= {"rollout", "reference", "update", "checkpoint"}
        for phase, held in most.items():
            with_gradient = 2 if phase == "update" else 1
            assert held <= one_process / 4 + with_gradient * (layer + table), phase


def shown_phases(ranks: Ranks, folder: Path) -> list[str]:
    """The phase of each sign of life in a step of one group, which one of two processes samples."""
    folder.mkdir(parents=True, exist_ok=True)
    shown: list[Progress] = []
    config = configured(
        budget={"steps": 1, "checkpoint_every": 0, "eval_every": 0},
        sampling=FEW | {"prompts_per_step": 1},
        algorithm={"kl": {"beta": 0.04}},
    )
    train(config, folder, Witness(), ranks=ranks, shown=shown)
    return [one.phase for one in shown if one.phase is not None]


@pytest.mark.slow
def test_a_process_that_only_helps_the_others_gives_signs_of_life(tmp_path: Path) -> None:
    sampled, helped = (Counter(phases) for phases in together(2, 2, tmp_path / "meeting", shown_phases, tmp_path))
    assert helped["rollout"] > 8  # one for each pass of the other
    assert helped["reference"] == sampled["reference"]
    assert helped["update"] == sampled["update"]
