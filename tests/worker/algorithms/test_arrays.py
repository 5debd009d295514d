"""Every public function runs on numpy, and on torch with the same result."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch

import worker.algorithms
from backend.contract.advantage import GroupZscore, NormalizeThenSum
from backend.contract.algorithm import Algorithm
from backend.contract.surrogate import Clip, Sapo
from worker.algorithms import advantages, arrays, estimator, gae, objective, preference, total_reward
from worker.algorithms.arrays import Array

NAN = float("nan")
GENERATOR = np.random.default_rng(0)
REWARDS = np.array([[0.2, 0.9, NAN, 0.4], [1.0, 0.0, 1.0, 1.0], [0.3, 0.3, 0.3, NAN], [NAN] * 4])
COMPONENTS = np.stack([REWARDS, REWARDS**2, 1 - REWARDS], axis=-1)
WEIGHTS = np.array([1.0, 0.5, 0.0])
MASK = (np.arange(4) < np.array([4, 2, 0, 1, 3, 4])[:, None]).astype(float)
OLD, LOGPROB, REFERENCE = -1 - GENERATOR.random((3, 6, 4))
RATIO, PER_ROW = np.exp(LOGPROB - OLD), GENERATOR.normal(size=(6, 1))
N = GENERATOR.normal(size=(4, 5))
EPSILONS = {"epsilon_low": 0.1, "epsilon_high": 0.2}
VESPO = {"k_positive": 2, "lambda_positive": 3, "k_negative": 3, "lambda_negative": 2}
SAPO = Algorithm(surrogate=Sapo(), entropy_bonus=0.1)

# Of one completion's numbers, not of arrays: tests/worker/rewards/test_total_reward.py
NO_ARRAYS = "total_reward.total_reward total_reward.closed_gates total_reward.counting advantages.group_state"

Case = tuple[Callable[..., object], tuple[np.ndarray, ...]]
CASES: list[Case] = [
    (arrays.stop_gradient, (REWARDS,)),
    (advantages.group_statistics, (REWARDS,)),
    (advantages.batch_statistics, (REWARDS,)),
    (advantages.live_by_component, (COMPONENTS, WEIGHTS)),
    (partial(advantages.group_zscore, std="sample", eps=1e-4), (REWARDS,)),
    (advantages.group_center, (REWARDS,)),
    (partial(advantages.batch_std, eps=1e-4), (REWARDS,)),
    (advantages.softmax, (REWARDS,)),
    (advantages.leave_one_out, (REWARDS,)),
    (advantages.batch_baseline, (REWARDS,)),
    (advantages.no_baseline, (REWARDS,)),
    (partial(advantages.normalize_then_sum, eps=1e-4), (COMPONENTS, WEIGHTS)),
    (advantages.best_worst, (REWARDS,)),
    (partial(estimator.estimate, GroupZscore()), (REWARDS,)),
    (
        lambda r, c, w: estimator.estimate(NormalizeThenSum(), r, components_P_G_K=c, weights_K=w),
        (REWARDS, COMPONENTS, WEIGHTS),
    ),
    (
        lambda r, c, w: estimator.live_groups(NormalizeThenSum(), r, components_P_G_K=c, weights_K=w),
        (REWARDS, COMPONENTS, WEIGHTS),
    ),
    (partial(total_reward.with_penalty, beta=0.05), (REWARDS, -REWARDS)),
    (partial(objective.token_weights, aggregation="group_token_mean", max_new_tokens=4, group_size=2), (MASK,)),
    (partial(objective.token_weights, aggregation="sequence_mean", max_new_tokens=4), (MASK,)),
    (partial(gae.gae, gamma=0.9, lam=0.8), (RATIO, LOGPROB, MASK)),
    (gae.last_token_rewards, (np.array([1.0, NAN, 2, 3, 4, 5]), MASK)),
    (gae.normalize, (RATIO, MASK)),
    (partial(objective.kl_per_token, estimator="k3"), (LOGPROB, REFERENCE)),
    (partial(objective.importance_ratio, level="sequence_mean"), (LOGPROB, OLD, MASK)),
    (objective.bounded_log_ratio, (LOGPROB, OLD, MASK)),
    (partial(objective.clip, delta=1.5, **EPSILONS), (RATIO, PER_ROW)),
    (partial(objective.clipped_low, epsilon_low=0.1), (RATIO, PER_ROW)),
    (partial(objective.clipped_high, epsilon_high=0.2), (RATIO, PER_ROW)),
    (objective.policy_gradient, (LOGPROB, PER_ROW)),
    (partial(objective.cispo, cap=1.1), (RATIO, LOGPROB, PER_ROW)),
    (partial(objective.sapo, tau_positive=1, tau_negative=1.05), (RATIO, PER_ROW)),
    (partial(objective.vespo, **VESPO), (LOGPROB, OLD, MASK, PER_ROW)),
    (objective.value_loss, (LOGPROB, OLD)),
    (partial(preference.preference_margin, beta=0.1), tuple(N)),
    (preference.dpo_loss, (N,)),
    (preference.bradley_terry_loss, (N[0], N[1])),
    (partial(objective.surrogate_loss, SAPO.surrogate), (LOGPROB, OLD, RATIO, PER_ROW, MASK)),
    (partial(objective.clipped, Clip()), (RATIO, PER_ROW)),
    (
        lambda new, old, advantage, mask, reference, entropy: objective.token_terms(
            SAPO,
            logprob_R_T=new,
            old_logprob_R_T=old,
            advantages_R_T=advantage,
            mask_R_T=mask,
            reference_logprob_R_T=reference,
            entropy_R_T=entropy,
        ),
        (LOGPROB, OLD, PER_ROW, MASK, REFERENCE, RATIO),
    ),
]


def results(value: object) -> Iterator[Array]:
    """The arrays in a result, whatever tuples they stand in."""
    for part in value if isinstance(value, tuple) else (value,):
        yield from results(part) if isinstance(part, tuple) else [part]


@pytest.mark.parametrize("case", CASES)
def test_numpy_and_torch_agree_float32_stays_float32_and_what_lies_on_an_accelerator_stays_there(case: Case) -> None:
    """torch's `meta` device refuses to be mixed with the CPU, as an accelerator does, and needs none."""
    function, arguments = case
    on_meta = function(*(torch.tensor(argument, device="meta") for argument in arguments))
    assert all(output.device.type == "meta" for output in results(on_meta))
    for size in (np.float64, np.float32):
        given = [argument.astype(size) for argument in arguments]
        on_numpy, on_torch = function(*given), function(*map(torch.tensor, given))
        for ours, other in zip(results(on_numpy), map(np.asarray, results(on_torch)), strict=True):
            assert ours.dtype == other.dtype
            assert ours.dtype in (size, np.bool_)
            if size == np.float64:
                np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-15)


def test_every_public_function_is_held_against_torch() -> None:
    public = {
        (module.__name__, name)
        for info in pkgutil.iter_modules(worker.algorithms.__path__)
        if info.name != "dead_groups"  # of counts, not arrays
        for module in [importlib.import_module(f"worker.algorithms.{info.name}")]
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and function.__module__ == module.__name__
    }
    source = inspect.getsource(sys.modules[__name__])
    missing = [name for module, name in public if f"{module.rsplit('.', 1)[1]}.{name}" not in source]
    assert not missing
