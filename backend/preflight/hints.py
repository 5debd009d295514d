"""What is worth knowing before a run starts: few things, each with what to do."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from math import lcm
from typing import Literal

from backend.catalog import CARDS
from backend.contract.answers import ANSWERS
from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG, RunConfig, TrainingConfig, data_of
from backend.contract.grpo import GrpoConfig
from backend.contract.model_shape import ModelShape
from backend.contract.preference import DpoConfig, RewardModelConfig, SampledPairs
from backend.contract.preflight import Message, dead_share_at_rate
from backend.contract.recipes import RECIPES
from backend.contract.records import MOST_MODELS
from backend.contract.replay import ReplayConfig
from backend.contract.reward import file_of
from backend.contract.sample import SampleConfig
from backend.contract.task import Dataset
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB
from backend.preflight.facts import Facts
from backend.preflight.memory import trained_parameters
from backend.preflight.starting import SMALL, full_rate
from backend.runs.needs import needs_of

TINY_RATE_LIMIT, FULL_RATE_LIMIT = 5e-4, 5e-5
LORA_RATE_LOW = 5e-5
SMALL_GROUP, USUAL_GROUP = 3, 8
LEAST_DEAD = 0.5  # the success rate with the fewest dead groups
TRACED_BYTES = 10  # of a token, compressed: 9.3 in a run of SmolLM2 with the defaults
ORDER_TOKENS = 8  # of {"order": []}
WORTH_SAYING = 0.1  # of the free disk
MANY_TIMES = 10  # a pair seen more often than this is learned by heart
OFFERING = {
    "native": "starts a Groupscope worker",
    "transformers": "installs transformers 5.17 or newer",
    "vllm": "sets GROUPSCOPE_VLLM_URL",
}
Hints = Iterator[Message]


def model_source(config: RunConfig, facts: Facts) -> Hints:
    """A built-in model that does not exist, or a directory that no worker can train."""
    source, known = config.model.source, [card.source for card in CARDS]
    if source.startswith("builtin:") and source not in known:
        nearest = get_close_matches(source, known, n=1, cutoff=0)[0]
        text = f"there is no {source}; the built-in models are {', '.join(known)}"
        yield _hint("error", "model.source", text, nearest)
    problems = [one.problem for worker in facts.workers for one in worker.models if one.source == source]
    if problems and None not in problems:
        yield _hint("warning", "model.source", f"no connected worker can train it: {problems[0]}")
    full = any(len(worker.models) == MOST_MODELS for worker in facts.workers)
    if source.startswith("local:") and facts.workers and not problems and not full:
        text = f"no connected worker has {source.removeprefix('local:')} below its model root (GROUPSCOPE_MODEL_ROOT): put the folder there"
        yield _hint("warning", "model.source", text)


def context(config: TrainingConfig | SampleConfig, facts: Facts) -> Hints:
    """More new tokens than the model can hold."""
    if isinstance(config, SampleConfig):
        field, new_tokens = "decoding.max_new_tokens", config.decoding.max_new_tokens
    elif isinstance(config, GrpoConfig):
        field, new_tokens = "sampling.max_new_tokens", config.sampling.max_new_tokens
    elif isinstance(config.pairs, SampledPairs):
        field, new_tokens = "pairs.decoding.max_new_tokens", config.pairs.decoding.max_new_tokens
    else:
        return
    shape = facts.shape_of(config.model.source)
    if shape is not None and new_tokens >= shape.context:
        text = f"{new_tokens} new tokens and a prompt exceed the model's context of {shape.context} tokens"
        yield _hint("error", field, text, shape.context // 2)


def shares_of_processes(config: GrpoConfig, _facts: Facts) -> Hints:
    """Processes that have fewer groups than others, or none."""
    prompts, processes = config.sampling.prompts_per_step, config.compute.processes
    if prompts < processes:
        given = "1 prompt a step leaves" if prompts == 1 else f"{prompts} prompts a step leave"
        text = f"{given} {processes - prompts} of {processes} processes without a group, which only wait"
        yield _hint("warning", "compute.processes", text, prompts)
    elif rest := prompts % processes:
        text = f"{prompts} prompts a step are not divided evenly among {processes} processes: {rest} of them {'has' if rest == 1 else 'have'} one group more, and the others wait"
        yield _hint("info", "compute.processes", text)


def repeats(config: GrpoConfig, facts: Facts) -> Hints:
    """More prompts than there are items, in all or of a source with a share."""
    asked = config.budget.steps * config.sampling.prompts_per_step
    shares: Mapping[str, float] = config.task.shares if isinstance(config.task, Dataset) else {}
    items = facts.source_items if shares else {"": facts.training_items or 0}
    whole = sum(shares.values())
    times = {name: asked * shares.get(name, 1.0) / (whole or 1.0) / count for name, count in items.items() if count}
    if max(times.values(), default=0.0) <= 2:
        return
    least, most = min(times, key=lambda name: times[name]), max(times, key=lambda name: times[name])
    text = f"{asked:,} prompts are drawn from {sum(items.values()):,} training items: "
    if least == most:
        text += f"each is asked about {_times(times[most])}"
    else:
        text += f"by the shares of their sources, each of {least} is asked about {_times(times[least])} and each of {most} about {_times(times[most])}"
        text += "; the other sources lie between" if len(times) > 2 else ""
    yield _hint("info", "budget.steps", text)


def _times(value: float) -> str:
    """0.4 times, once, 7 times."""
    if 1 <= value < 1.5:
        return "once"
    return f"{value:.0f} times" if value > 1 else f"{value:.1g} times"


def learning_rate(config: TrainingConfig, facts: Facts) -> Hints:
    """A rate at which adapters do not learn, or full training falls apart."""
    rate = config.optimizer.learning_rate
    if config.model.lora is not None:
        if rate <= LORA_RATE_LOW:
            text = f"adapters usually want about 10 times the rate of full training; {_rate(rate)} may not move them"
            yield _hint("warning", "optimizer.learning_rate", text, float(f"{10 * rate:.3g}"))
        return
    shape = facts.shape_of(config.model.source)
    tiny, usual = shape is not None and shape.parameters < SMALL, full_rate(shape.parameters if shape else None)
    limit = TINY_RATE_LIMIT if tiny else FULL_RATE_LIMIT
    if rate > limit:
        text = f"full training at {_rate(rate)} often collapses; {_rate(usual)} is what works for {'this' if tiny else 'a pretrained'} model"
        yield _hint("warning", "optimizer.learning_rate", text, usual)


def truncated_sampling(config: GrpoConfig, _facts: Facts) -> Hints:
    """Samples from fewer tokens than the log-probabilities cover."""
    sampling = config.sampling
    if config.algorithm.logprobs == "renormalized":
        return
    reason = "fewer tokens can be sampled than the log-probs cover, so the ratio and the KL are biased"
    if sampling.top_k:
        yield _hint("warning", "sampling.top_k", f"with top-k {sampling.top_k} {reason}; 0 turns it off", 0)
    if sampling.top_p < 1:
        yield _hint("warning", "sampling.top_p", f"with top-p {sampling.top_p:g} {reason}; 1 turns it off", 1.0)
    if config.algorithm.logprobs == "plain" and sampling.temperature != 1:
        text = f"log-probs are taken at temperature 1 while {sampling.temperature:g} is sampled; tempered agrees with the sampler"
        yield _hint("info", "algorithm.logprobs", text, "tempered")


def group_size(config: GrpoConfig, facts: Facts) -> Hints:
    """Groups so small, or a task so easy or hard, that most groups say nothing."""
    if config.algorithm.advantage.compares != "group":
        return
    size, success = config.sampling.group_size, facts.success
    share = dead_share_at_rate(success.rate if success else LEAST_DEAD, size)
    if size <= SMALL_GROUP:
        about, known = ("about", f"success rate {success.rate:.2g}") if success else ("at least", "at any success rate")
        text = f"with {size} completions {about} {share:.0%} of the groups are all right or all wrong, which teaches nothing ({known})"
        yield _hint("warning", "sampling.group_size", text, USUAL_GROUP)
    elif success is not None and share > 0.5:
        text = f"about {share:.0%} of the groups will be all right or all wrong, which teaches nothing unless another reward tells them apart: the model is right {success.rate:.1%} of the time ({success.basis}); another task, or a larger group, teaches more"
        yield _hint("warning", "sampling.group_size", text)


def loss_on_policy(config: GrpoConfig, _facts: Facts) -> Hints:
    """Why the loss reads 0: the most asked question."""
    algorithm = config.algorithm
    if algorithm.updates_per_batch == 1 and algorithm.surrogate.kind == "clip":
        reads = "the loss is about 0, as expected" if algorithm.advantage.centred else "the loss says little"
        text = f"with one update per batch the ratio is exactly 1, nothing is ever clipped and {reads}; watch reward and gradient norm"
        yield _hint("info", "algorithm.updates_per_batch", text)


def off_policy(config: GrpoConfig, _facts: Facts) -> Hints:
    """Later updates on a batch that nothing corrects."""
    updates, surrogate = config.algorithm.updates_per_batch, config.algorithm.surrogate
    if updates > 1 and not surrogate.uses_ratio and surrogate.weighs == "tokens":
        text = f"{surrogate.kind} has no ratio: of the {updates} updates on a batch, all but the first use samples of an older policy without correcting for it; 1 is sound, and clip allows more"
        yield _hint("warning", "algorithm.updates_per_batch", text, 1)


def small_cap(config: GrpoConfig, _facts: Facts) -> Hints:
    """A cap below 1 is a constant factor."""
    surrogate = config.algorithm.surrogate
    if surrogate.kind == "cispo" and surrogate.cap < 1:
        text = f"a cap of {surrogate.cap:g} is below the ratio of nearly every token, so that all get the same weight; 5 caps the rare large ones"
        yield _hint("warning", "algorithm.surrogate.cap", text, 5.0)


def learned_scores(config: GrpoConfig, _facts: Facts) -> Hints:
    """Differences that mean nothing, scaled up like any other."""
    learned = [one.name for one in config.rewards.functions if one.kind == "reward_model" and one.weight]
    if learned and config.algorithm.advantage.divides_by == "group":
        text = (
            f"scores of the model {learned[0]} are never quite equal: where all completions of a group are right, {config.algorithm.advantage.kind} makes the "
            "remaining differences as large as right and wrong; group_center does not"
        )
        yield _hint("info", "algorithm.advantage", text, {"kind": "group_center"})


def short_rankings(config: GrpoConfig, _facts: Facts) -> Hints:
    """A judge's order of the group that would be cut off."""
    size = config.sampling.group_size
    order = ORDER_TOKENS + sum(len(str(number)) + 1 for number in range(1, size + 1))
    for index, one in enumerate(config.rewards.functions):
        if one.kind == "ranking" and one.max_tokens < order:
            text = (
                f"an order of {size} answers takes about {order} tokens (one for each digit and each comma), and the judge's "
                f"reply ends after {one.max_tokens}: a reply that is cut off scores nothing"
            )
            yield _hint("warning", f"rewards.functions.{index}.max_tokens", text, 2 * order)


def no_penalty(config: GrpoConfig, _facts: Facts) -> Hints:
    """Nothing holds the policy back, or what should hold it does not."""
    algorithm, kl = config.algorithm, config.algorithm.kl
    if kl.beta == 0 and algorithm.surrogate.weighs != "pairs":  # whose own β compares with the reference
        text = "β is 0: nothing holds the policy near its start, the reference pass is skipped, and KL is not measured"
        yield _hint("info", "algorithm.kl.beta", text)
    elif kl.beta > 0 and kl.placement == "loss" and kl.estimator == "k1":
        text = "k1 in the loss has a gradient that is 0 on average: it measures the KL, but does not hold the policy back; k3 does, and so does k1 in the reward"
        yield _hint("info", "algorithm.kl.estimator", text, "k3")
    elif kl.beta > 0 and kl.reference == "old" and algorithm.updates_per_batch == 1:
        text = "with one update per batch the policy is still the old one: the penalty and its gradient are exactly 0"
        yield _hint("info", "algorithm.kl.reference", text, "initial")


def checkpoints(config: TrainingConfig, _facts: Facts) -> Hints:
    """A crash would cost the whole run."""
    if config.budget.checkpoint_every == 0 and config.budget.steps > 20:
        text = f"without checkpoints a crash costs all of the {config.budget.steps} steps"
        yield _hint("warning", "budget.checkpoint_every", text, 20)


def best_checkpoint(config: TrainingConfig, _facts: Facts) -> Hints:
    """The best checkpoint is to be kept, but few checkpoints are evaluated."""
    budget = config.budget
    saved, evaluated = budget.checkpoint_every, budget.eval_every
    if not (budget.keep.last and budget.keep.best and saved) or (evaluated and saved % evaluated == 0):
        return
    if not evaluated:
        yield _hint("info", "budget.keep.best", "without evaluations no checkpoint is known to be the best")
        return
    both = lcm(saved, evaluated)
    text = f"checkpoints every {saved} steps and evaluations every {evaluated} meet every {both} steps: only those can be the best"
    yield Message(level="info", field="budget.keep.best", text=text, fix={"budget.checkpoint_every": evaluated})


def disk(config: TrainingConfig, facts: Facts) -> Hints:
    """Checkpoints and token traces that take much of the free disk, or more. Silent if the worker's disk is not known."""
    shape, free = facts.shape_of(config.model.source), facts.disk_free
    if shape is None or free is None:
        return
    budget = config.budget
    each, count = _checkpoint_bytes(config, shape), budget.keep.most(budget.steps, budget.checkpoint_every)
    stay = count * each
    if budget.keep.at_most_gib:
        stay = min(stay, round(budget.keep.at_most_gib * GIB) + each)
    traces = TRACED_BYTES * _traced_tokens(config) if isinstance(config, GrpoConfig) else 0
    if stay + traces <= WORTH_SAYING * free:
        return
    text = f"checkpoints take up to about {stay / GIB:.1f} GiB ({count:,} of {each / GIB:.2f} GiB"
    text += f", at most {budget.keep.at_most_gib:g} GiB and one more)" if budget.keep.at_most_gib else ")"
    text += f" and token traces {traces / GIB:.1f} GiB" if traces > WORTH_SAYING * stay else ""
    text += f"; {free / GIB:.1f} GiB are free where they lie"
    if stay + traces <= free:
        yield _hint("info", "budget.keep", text)
    elif traces > stay:
        yield _hint("warning", "telemetry.token_traces", text, "extremes")
    else:
        fewer = count > 3 and 4 * each + traces <= free
        yield _hint("warning", "budget.keep.last", text, 2 if fewer else None)


def _checkpoint_bytes(config: TrainingConfig, shape: ModelShape) -> int:
    """The weights that are trained, the optimizer's moments of them, and a reference that follows them."""
    algorithm = config.algorithm if isinstance(config, GrpoConfig) else None
    followed = algorithm is not None and algorithm.needs_reference and algorithm.kl.reference == "synced"
    return FLOAT32 * (1 + ADAMW_STATES + followed) * trained_parameters(config.model, shape)


def _traced_tokens(config: GrpoConfig) -> int:
    """At most: every completion at its limit."""
    sampling, telemetry, steps = config.sampling, config.telemetry, config.budget.steps
    completions = {
        "all": steps * sampling.completions_per_step,
        "periodic": -(-steps // telemetry.trace_every) * sampling.completions_per_step,
        "extremes": steps * sampling.prompts_per_step * min(2, sampling.group_size),
        "none": 0,
    }
    return completions[telemetry.token_traces] * sampling.max_new_tokens


def workers(_config: RunConfig, facts: Facts) -> Hints:
    """No worker would take the run."""
    if not facts.workers:
        yield _waits(_hint("info", None, "no worker is connected: the run waits in the queue until one is"))


def offers(config: RunConfig, facts: Facts) -> Hints:
    """No worker has what the rewards name, the sampling engine, or as many processes."""
    needs = facts.needs or needs_of(config.model_dump(mode="json"))
    able = [one for one in facts.workers if needs.met_by(one)]
    for name, field in needs.functions.items():
        why = [one.passed_over.get(name) for one in facts.workers if name not in one.functions]
        if any(why) and not any(name in one.functions for one in facts.workers):
            yield _hint("error", field, f"{name} cannot score: {next(filter(None, why))}")
    if able and all(one.missing_nodes for one in able):
        yield _waits(_hint("info", None, "the nodes of a worker are not all there: the run waits until they are"))
    if not facts.workers or able:
        return
    if not any(map(needs.computes_as, facts.workers)):
        versions = ", ".join(f"{name} {version}" for name, version in needs.versions.items())
        text = f"steps are done again exactly, and no connected worker computes as the run did ({needs.device}; {versions}): it waits until one does"
        yield _waits(_hint("warning", None, text))
        return
    judges = needs.judges.keys() - {name for one in facts.workers for name in one.judges}
    functions = needs.functions.keys() - {name for one in facts.workers for name in one.functions}
    missing = [(needs.judges[name], f"judge {name}", "its operator sets GROUPSCOPE_JUDGES") for name in sorted(judges)]
    missing += [(needs.functions[name], f"function {name}", _way_to(name, facts)) for name in sorted(functions)]
    for field, what, how in missing:
        yield _waits(_hint("warning", field, f"no connected worker has the {what}: the run waits until one has; {how}"))
    if not any(needs.engine in one.engines for one in facts.workers):
        text = f"no connected worker samples with {needs.engine}: the run waits until one does; its operator {OFFERING[needs.engine]}"
        yield _waits(_hint("warning", "sampling.engine", text, "native"))
    elif (most := max(one.processes for one in facts.workers)) < needs.processes:
        text = f"no connected worker trains with {needs.processes} processes, the most is {most}: the run waits until one does; its operator sets GROUPSCOPE_PROCESSES"
        yield _waits(_hint("warning", "compute.processes", text, most))
    elif not missing:
        text = "no connected worker has all that the run names (judges, functions, engine, processes): the run waits until one has"
        yield _waits(_hint("warning", None, text))


def reward_columns(config: RunConfig, facts: Facts) -> Hints:
    """A Python reward takes a column that the upload lacks."""
    described = data_of(config)
    if facts.columns is None or described is None or not isinstance(described[1], Dataset):
        return
    given = {*facts.columns, *(ANSWERS if described[1].answer_column is not None else [])}
    offered = {name: one for worker in facts.workers for name, one in worker.own_rewards.items()}
    for function, field in needs_of(config.model_dump(mode="json")).functions.items():
        missing = [name for name in offered[function].needs if name not in given] if function in offered else []
        if missing:
            known = ", ".join(facts.columns)
            text = (
                f"{function} takes {', '.join(missing)}, and the data has no such column; its columns are {known:.500}"
            )
            if named := [one for one in missing if one in ANSWERS]:
                text += f". The answer column, if one is chosen, is given as {named[0]}"
            yield _hint("warning", field, text)


def _way_to(function: str, facts: Facts) -> str:
    """What makes a Python function one that a worker has."""
    file = file_of(function)
    if file is None:
        return "its operator sets GROUPSCOPE_REWARD_FUNCTIONS"
    files = [one for worker in facts.workers for one in worker.reward_files if one.name == file]
    if errors := [one.error for one in files if one.error]:
        return errors[0].partition("\n")[0]
    if files:
        has = ", ".join(one.function.partition(":")[2] for one in files[0].functions)
        return f"{file} is there, and has {has}"
    return f"put {file} into the folder rewards of its data directory"


def repeated_pairs(config: RewardModelConfig | DpoConfig, facts: Facts) -> Hints:
    """Pairs that are seen too often."""
    pairs = training_pairs(config, facts)
    times = config.budget.steps * config.budget.pairs_per_step / pairs if pairs else 0
    if times > MANY_TIMES:
        text = f"each of about {pairs:,} pairs is seen about {times:.0f} times and may be learned by heart; watch eval/accuracy"
        yield _hint("warning", "budget.steps", text)


def training_pairs(config: RewardModelConfig | DpoConfig, facts: Facts) -> int | None:
    """About how many pairs there are to train on, without a success rate at most; None if nobody knows before they are read.

    Too many if prompts differ: p^G + (1 − p)^G at the mean rate is less than the mean of theirs (Jensen).
    """
    pairs = config.pairs
    if isinstance(pairs, SampledPairs):
        dead = dead_share_at_rate(facts.success.rate, pairs.group_size) if facts.success else 0.0
        return round(pairs.prompts * (1 - dead))
    return facts.training_items


GRPO_RULES: tuple[Callable[[GrpoConfig, Facts], Hints], ...] = (
    model_source,
    context,
    shares_of_processes,
    repeats,
    learning_rate,
    truncated_sampling,
    group_size,
    checkpoints,
    best_checkpoint,
    disk,
    no_penalty,
    learned_scores,
    short_rankings,
    loss_on_policy,
    off_policy,
    small_cap,
    workers,
    offers,
    reward_columns,
)
PAIR_RULES: tuple[Callable[[RewardModelConfig | DpoConfig, Facts], Hints], ...] = (
    model_source,
    learning_rate,
    checkpoints,
    best_checkpoint,
    disk,
    workers,
    offers,
    reward_columns,
    context,
    repeated_pairs,
)


def hints(config: RunConfig, facts: Facts) -> list[Message]:
    """What the rules say; a warning, or a fix, that the unchanged recipe gets too is only noted, since it is so on purpose."""
    if isinstance(config, ReplayConfig):
        return [message for rule in (workers, offers) for message in rule(config, facts)]
    if isinstance(config, SampleConfig):
        rules = (model_source, context, workers, offers, reward_columns)
        return [message for rule in rules for message in rule(config, facts)]
    if not isinstance(config, GrpoConfig):
        return [message for rule in PAIR_RULES for message in rule(config, facts)]
    intended = _of_recipe(config.recipe)
    return [
        one.model_copy(update={"level": "info", "fix": None, "intended": True}) if one in intended else one
        for one in _grpo_hints(config, facts)
    ]


def _grpo_hints(config: GrpoConfig, facts: Facts) -> Iterable[Message]:
    return (message for rule in GRPO_RULES for message in rule(config, facts))


@lru_cache(maxsize=len(RECIPES))
def _of_recipe(recipe: str | None) -> tuple[Message, ...]:
    """What would be mended in the recipe itself, whatever workers and earlier runs there are."""
    card = next((card for card in RECIPES if card.id == recipe), None)
    config = RUN_CONFIG.validate_python(card.config) if card else None
    if not isinstance(config, GrpoConfig):
        return ()
    return tuple(one for one in _grpo_hints(config, Facts()) if one.level == "warning" or one.fix)


def _rate(value: float) -> str:
    """As people write it: 5e-5, not 5e-05."""
    return f"{value:g}".replace("e-0", "e-")


def _hint(level: Literal["error", "warning", "info"], field: str | None, text: str, value: Json = None) -> Message:
    """A message about a field; `value` would settle it."""
    fix = None if field is None or value is None else {field: value}
    return Message(level=level, field=field, text=text, fix=fix)


def _waits(message: Message) -> Message:
    """The same, as one that keeps a run in the queue."""
    return message.model_copy(update={"waits": True})
