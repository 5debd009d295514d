"""The algorithms that TRL has too, in its words and in ours."""

from dataclasses import dataclass, field
from functools import partial

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.surrogate import Cispo, Clip, Sapo, Vespo

NO_KL = Kl(beta=0)
# TRL's default since DeepSeek-V3.2 is KL × ratio; DeepSeekMath's k3 is without.
SETTINGS = {"use_cpu": True, "bf16": False, "report_to": "none", "use_bias_correction_kl": False}
K3 = Kl(beta=0.04, estimator="k3", placement="loss")
plain = partial(Algorithm, kl=NO_KL)


@dataclass(frozen=True)
class Case:
    """The same algorithm in TRL's words and in ours."""

    trl: dict[str, object]
    ours: Algorithm
    metrics: dict[str, str] = field(default_factory=dict)  # TRL's name -> the field of TokenTerms whose mean it is


CLIPPED = {"clip_ratio/low_mean": "low_R_T", "clip_ratio/high_mean": "high_R_T"}
LUSPO: dict[str, object] = {"loss_type": "luspo", "importance_sampling_level": "sequence"}
CASES = {
    "grpo": Case({"loss_type": "grpo"}, plain(), CLIPPED),
    "grpo with k3": Case({"loss_type": "grpo", "beta": 0.04}, plain(kl=K3), CLIPPED | {"kl": "kl_R_T"}),
    "grpo with both epsilons": Case(
        {"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.35},
        plain(surrogate=Clip(epsilon_low=0.1, epsilon_high=0.35)),
        CLIPPED,
    ),
    "grpo with delta": Case({"loss_type": "grpo", "delta": 1.4}, plain(surrogate=Clip(delta=1.4)), CLIPPED),
    "bnpo": Case({"loss_type": "bnpo"}, plain(aggregation="token_mean"), CLIPPED),
    "dr_grpo": Case({"loss_type": "dr_grpo"}, plain(aggregation="constant"), CLIPPED),
    "dr_grpo with k3": Case(
        {"loss_type": "dr_grpo", "beta": 0.04}, plain(kl=K3, aggregation="constant"), CLIPPED | {"kl": "kl_R_T"}
    ),
    "dapo": Case(
        {"loss_type": "dapo", "epsilon_high": 0.28},
        plain(surrogate=Clip(epsilon_high=0.28), aggregation="token_mean"),
        CLIPPED,
    ),
    "cispo": Case(
        {"loss_type": "cispo", "epsilon_high": 1.2},
        plain(surrogate=Cispo(cap=1.2), aggregation="token_mean"),
        {"cispo_clip_ratio": "high_R_T"},
    ),
    "sapo": Case({"loss_type": "sapo"}, plain(surrogate=Sapo())),
    "sapo with other temperatures": Case(
        {"loss_type": "sapo", "sapo_temperature_pos": 0.5, "sapo_temperature_neg": 2.0},
        plain(surrogate=Sapo(tau_positive=0.5, tau_negative=2)),
    ),
    "luspo": Case(LUSPO, plain(ratio="sequence_mean", aggregation="sequence_sum")),
    "luspo with k3": Case(
        LUSPO | {"beta": 0.04}, plain(kl=K3, ratio="sequence_mean", aggregation="sequence_sum"), {"kl": "kl_R_T"}
    ),
    "vespo": Case({"loss_type": "vespo"}, plain(surrogate=Vespo(), ratio="sequence_product", aggregation="token_mean")),
    "vespo with other shapes": Case(
        {
            "loss_type": "vespo",
            "vespo_k_pos": 1.0,
            "vespo_lambda_pos": 2.0,
            "vespo_k_neg": 1.5,
            "vespo_lambda_neg": 0.5,
        },
        plain(
            surrogate=Vespo(k_positive=1, lambda_positive=2, k_negative=1.5, lambda_negative=0.5),
            ratio="sequence_product",
            aggregation="token_mean",
        ),
    ),
    "gspo": Case(
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04},
        plain(surrogate=Clip(epsilon_low=0.03, epsilon_high=0.04), ratio="sequence_mean"),
    ),
    "gspo with k3 and delta": Case(
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.04, "delta": 1.3},
        plain(kl=K3, surrogate=Clip(delta=1.3), ratio="sequence_mean"),
        {"kl": "kl_R_T"},
    ),
}
