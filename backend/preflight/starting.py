"""Settings to start with, by the size of the model and by what is trained of it, each with its reason."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from backend.contract.base import Json
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora, Model
from backend.contract.model_choice import StartingSettings, StartingValue
from backend.contract.model_shape import ModelShape
from backend.contract.preference import SampledPairs
from backend.contract.records import Offers
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB, MICRO_BATCH, Optimizer
from backend.preflight.memory import needed, trained_parameters

SMALL, LARGE = 10_000_000, 1_000_000_000  # parameters


class _Rates(NamedTuple):
    """Of models with fewer parameters than `below`: the learning rates of all the weights and of adapters, each with its reason."""

    below: float
    full: float
    why_full: str
    adapters: float
    why_adapters: str


_TENFOLD = "10 times the rate of all the weights, which adapters usually need whatever their rank"
_BY_SIZE = (  # The tiny model collapsed at 1e-3.
    _Rates(
        SMALL,
        Optimizer().learning_rate,
        "a model that small bears a high rate: the quickstart's was measured",
        10 * Optimizer().learning_rate,
        f"{_TENFOLD}: the tiny model learns with it as fast as with all its weights",
    ),
    _Rates(
        LARGE,
        1e-5,
        "SmolLM2 learns with it; models of this size often collapse with more than five times as much",
        1e-4,
        f"{_TENFOLD}: SmolLM2 learns with it",
    ),
    _Rates(
        inf,
        1e-6,
        "most published GRPO runs on models of a billion parameters and more use it",
        1e-4,
        "the rate that adapters of smaller models learn with; 100 times that of all the weights, which is a careful one",
    ),
)
MOST_TOKENS, FEWEST_TOKENS = Optimizer().micro_batch_tokens, 512
SPARE = 0.9  # of the memory, at most: an estimate leaves out what libraries take for themselves


def full_rate(parameters: int | None) -> float:
    """The learning rate with which all weights of a pretrained model usually learn; of an unknown number, of a middle one."""
    return _rates(parameters or SMALL).full


def _rates(parameters: int) -> _Rates:
    return next(one for one in _BY_SIZE if parameters < one.below)


def starting_settings(config: TrainingConfig, shape: ModelShape, worker: Offers | None) -> list[StartingSettings]:
    """For all the weights and for adapters; the one to try first is advised, if it fits. `worker` is the roomiest that has the model."""
    ways = [_starting(config, shape, worker, lora) for lora in (None, Lora())]
    whole, adapters = ways
    advised = whole if shape.parameters < LARGE and whole.fits is not False else adapters
    return [one.model_copy(update={"advised": one is advised and one.fits is not False}) for one in ways]


def _starting(config: TrainingConfig, shape: ModelShape, worker: Offers | None, lora: Lora | None) -> StartingSettings:
    """The largest micro-batch that fits, without recomputation if possible; the smallest need if nothing fits."""
    has = worker.memory_bytes if worker is not None else None
    tried = [(one, sum(needed(one, shape, worker).values())) for one in _tried(config, lora)]
    chosen, needs = next((one for one in tried if has is None or one[1] <= SPARE * has), tried[-1])
    return StartingSettings(
        title="All weights" if lora is None else f"Adapters (LoRA, rank {lora.rank})",
        values=list(_values(chosen, shape, needs, has)),
        memory_bytes=needs,
        fits=None if has is None else needs <= SPARE * has,
    )


def _tried(config: TrainingConfig, lora: Lora | None) -> Iterator[TrainingConfig]:
    """The configuration with less and less need of memory."""
    fewest = max(FEWEST_TOKENS, 2 * _longest(config))
    for recomputed in (False, True):
        model = config.model.model_copy(update={"lora": lora, "dtype": "auto", "gradient_checkpointing": recomputed})
        tokens = max(fewest, MOST_TOKENS)
        while tokens >= fewest:
            optimizer = config.optimizer.model_copy(update={"micro_batch_tokens": tokens})
            yield config.model_copy(update={"model": model, "optimizer": optimizer})
            tokens //= 2


def _longest(config: TrainingConfig) -> int:
    """Tokens that must pass together: a completion, or both of a pair."""
    if isinstance(config, GrpoConfig):
        return config.sampling.max_new_tokens
    return 2 * config.pairs.decoding.max_new_tokens if isinstance(config.pairs, SampledPairs) else 0


def _values(config: TrainingConfig, shape: ModelShape, needs: int, has: int | None) -> Iterator[StartingValue]:
    model, tokens = config.model, config.optimizer.micro_batch_tokens
    yield _value("model.lora", model.lora.model_dump(mode="json") if model.lora else None, _why_lora(model, shape))
    if isinstance(config, GrpoConfig):
        rates = _rates(shape.parameters)
        yield _value(
            "optimizer.learning_rate",
            *((rates.full, rates.why_full) if model.lora is None else (rates.adapters, rates.why_adapters)),
        )
    reason = "bfloat16 on a GPU that has it, float32 elsewhere; the weights that are trained stay float32"
    yield _value("model.dtype", model.dtype, reason)
    reason = f"with it about {needs / GIB:.1f} GiB are needed"
    if has is not None:
        reason += f", and the roomiest worker has {has / GIB:.1f}"
    yield _value(MICRO_BATCH, tokens, f"{reason}; smaller ones need less and change no result")
    reason = (
        "each step is faster without" if not model.gradient_checkpointing else "without it too little memory is left"
    )
    yield _value("model.gradient_checkpointing", model.gradient_checkpointing, reason)


def _why_lora(model: Model, shape: ModelShape) -> str:
    trained = trained_parameters(model, shape)
    states = f"{FLOAT32 * (1 + ADAMW_STATES) * trained / GIB:.2g} GiB for gradients and the optimizer's moments"
    if model.lora is None:
        return f"all {_millions(trained)} parameters are trained, with {states}; nothing limits what can be learned"
    return (
        f"{_millions(trained)} of {_millions(shape.parameters)} parameters are trained, with {states}, and the reference needs no copy; a "
        f"reward says little about a completion, so a rank of {model.lora.rank} on all linear layers is enough"
    )


def _millions(parameters: int) -> str:
    return f"{parameters / 1e9:.3g} billion" if parameters >= LARGE else f"{parameters / 1e6:.3g} million"


def _value(field: str, value: Json, reason: str) -> StartingValue:
    return StartingValue(field=field, value=value, reason=reason)
