"""What is worth knowing before a run starts: few things, each with what to do."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from math import lcm

from backend.catalog.models import CARDS, SHAPES, TINY_ARITHMETIC
from backend.contract.base import Json
from backend.contract.config import TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message
from backend.contract.training import Optimizer
from backend.preflight.disk import disk
from backend.preflight.facts import Facts
from backend.preflight.forecast import dead_share
from backend.runs.needs import needs_of

# The tiny model collapsed at 1e-3; SmolLM2 learns at 1e-5.
TINY_RATE, TINY_RATE_LIMIT = Optimizer().learning_rate, 5e-4
FULL_RATE, FULL_RATE_LIMIT = 1e-5, 5e-5
LORA_RATE_LOW = 5e-5
SMALL_GROUP, USUAL_GROUP = 3, 8
LEAST_DEAD = 0.5  # the success rate with the fewest dead groups
OFFERING = {
    "native": "starts a Groupscope worker",
    "transformers": "installs transformers 5.17 or newer",
    "vllm": "sets GROUPSCOPE_VLLM_URL",
}
Hints = Iterator[Message]


def model_source(config: TrainingConfig, _facts: Facts) -> Hints:
    """A model that is certainly not there."""
    source, known = config.model.source, [card.source for card in CARDS]
    if source.startswith("builtin:") and source not in known:
        nearest = get_close_matches(source, known, n=1, cutoff=0)[0]
        yield _error(
            "model.source", f"there is no {source}; the models that come along are {', '.join(known)}", nearest
        )


def context(config: GrpoConfig, facts: Facts) -> Hints:
    """More new tokens than the model can hold."""
    shape = SHAPES.get(facts.origin or config.model.source)
    if shape is not None and config.sampling.max_new_tokens >= shape.context:
        yield _error(
            "sampling.max_new_tokens",
            f"{config.sampling.max_new_tokens} new tokens and a prompt exceed the model's context of {shape.context} tokens",
            shape.context // 2,
        )


def repeats(config: GrpoConfig, facts: Facts) -> Hints:
    """More prompts than there are items."""
    asked = config.budget.steps * config.sampling.prompts_per_step
    if facts.training_items and asked > 2 * facts.training_items:
        times = asked / facts.training_items
        text = f"{asked:,} prompts are drawn from {facts.training_items:,} training items: each is asked about {times:.0f} times"
        yield Message(level="info", field="budget.steps", text=text)


def learning_rate(config: TrainingConfig, facts: Facts) -> Hints:
    """A rate at which adapters do not learn, or full training falls apart."""
    rate = config.optimizer.learning_rate
    if config.model.lora is not None:
        if rate <= LORA_RATE_LOW:
            text = f"adapters usually want about 10 times the rate of full training; {_rate(rate)} may not move them"
            yield _warning("optimizer.learning_rate", text, float(f"{10 * rate:.3g}"))
        return
    tiny = (facts.origin or config.model.source) == TINY_ARITHMETIC
    limit, usual = (TINY_RATE_LIMIT, TINY_RATE) if tiny else (FULL_RATE_LIMIT, FULL_RATE)
    if rate > limit:
        text = f"full training at {_rate(rate)} often collapses; {_rate(usual)} is what works for {'this' if tiny else 'a pretrained'} model"
        yield _warning("optimizer.learning_rate", text, usual)


def truncated_sampling(config: GrpoConfig, _facts: Facts) -> Hints:
    """Draws from fewer tokens than the log-probabilities are of."""
    sampling = config.sampling
    if config.algorithm.logprobs == "renormalized":
        return
    reason = "the log-probs, and so the ratio and the KL, are of all tokens: they are biased against what was drawn"
    if sampling.top_k:
        yield _warning("sampling.top_k", f"with top-k {sampling.top_k} {reason}; 0 turns it off", 0)
    if sampling.top_p < 1:
        yield _warning("sampling.top_p", f"with top-p {sampling.top_p:g} {reason}; 1 turns it off", 1.0)
    if config.algorithm.logprobs == "plain" and sampling.temperature != 1:
        text = f"log-probs are taken at temperature 1 while {sampling.temperature:g} is sampled; tempered agrees with the sampler"
        yield Message(level="info", field="algorithm.logprobs", text=text, fix={"algorithm.logprobs": "tempered"})


def group_size(config: GrpoConfig, facts: Facts) -> Hints:
    """Groups so small, or a task so easy or hard, that most groups say nothing."""
    if config.algorithm.advantage.compares != "group":
        return
    size, success = config.sampling.group_size, facts.success
    share = dead_share(success.rate if success else LEAST_DEAD, size)
    if size <= SMALL_GROUP:
        about, known = ("about", f"success rate {success.rate:.2g}") if success else ("at least", "at any success rate")
        text = f"with {size} completions {about} {share:.0%} of the groups are all right or all wrong, which teaches nothing ({known})"
        yield _warning("sampling.group_size", text, USUAL_GROUP)
    elif success is not None and share > 0.5:
        text = f"about {share:.0%} of the groups will have equal rewards, which teach nothing: the model is right {success.rate:.1%} of the time ({success.basis}); another task, or a larger group, teaches more"
        yield Message(level="warning", field="sampling.group_size", text=text)


def loss_on_policy(config: GrpoConfig, _facts: Facts) -> Hints:
    """Why the loss reads 0: the most asked question."""
    algorithm = config.algorithm
    if algorithm.updates_per_batch == 1 and algorithm.surrogate.kind == "clip":
        reads = "the loss reads about 0: expected" if algorithm.advantage.centred else "the loss says little"
        text = f"with one update per batch the ratio is exactly 1, nothing is ever clipped and {reads}; watch reward and gradient norm"
        yield Message(level="info", field="algorithm.updates_per_batch", text=text)


def off_policy(config: GrpoConfig, _facts: Facts) -> Hints:
    """Later updates on a batch that nothing corrects or holds back."""
    algorithm = config.algorithm
    if (
        algorithm.updates_per_batch > 1
        and not algorithm.surrogate.uses_ratio
        and algorithm.surrogate.weighs == "tokens"
    ):
        text = f"{algorithm.surrogate.kind} has no ratio: of the {algorithm.updates_per_batch} updates on a batch, all but the first follow a policy that is no longer there; 1 is sound, and clip allows more"
        yield _warning("algorithm.updates_per_batch", text, 1)


def small_cap(config: GrpoConfig, _facts: Facts) -> Hints:
    """A cap below 1 is a constant factor."""
    surrogate = config.algorithm.surrogate
    if surrogate.kind == "cispo" and surrogate.cap < 1:
        text = f"a cap of {surrogate.cap:g} is below the ratio of nearly every token, so that all get the same weight; 5 caps the rare large ones"
        yield _warning("algorithm.surrogate.cap", text, 5.0)


def learned_scores(config: GrpoConfig, _facts: Facts) -> Hints:
    """Differences that mean nothing, made as large as any other."""
    learned = [one.name for one in config.rewards.functions if one.kind == "reward_model" and one.weight]
    if learned and config.algorithm.advantage.divides_by == "group":
        text = (
            f"scores of the model {learned[0]} are never quite equal: where all completions of a group are right, {config.algorithm.advantage.kind} makes what "
            "is left between them as large as right and wrong; group_center does not"
        )
        fix: dict[str, Json] = {"algorithm.advantage": {"kind": "group_center"}}
        yield Message(level="info", field="algorithm.advantage", text=text, fix=fix)


def no_penalty(config: GrpoConfig, _facts: Facts) -> Hints:
    """Nothing holds the policy back, or what should hold it does not."""
    algorithm, kl = config.algorithm, config.algorithm.kl
    if kl.beta == 0 and algorithm.surrogate.weighs != "pairs":  # whose own β compares with the reference
        text = "β is 0: nothing holds the policy near its start, the reference pass is saved, and KL is not measured"
        yield Message(level="info", field="algorithm.kl.beta", text=text)
    elif kl.beta > 0 and kl.placement == "loss" and kl.estimator == "k1":
        text = "k1 in the loss has a gradient that is 0 on average: it measures the KL and holds nothing; k3 pulls, and so does k1 in the reward"
        yield Message(level="info", field="algorithm.kl.estimator", text=text, fix={"algorithm.kl.estimator": "k3"})
    elif kl.beta > 0 and kl.reference == "old" and algorithm.updates_per_batch == 1:
        text = "with one update per batch the policy is still the old one: the penalty and its gradient are exactly 0"
        yield Message(
            level="info", field="algorithm.kl.reference", text=text, fix={"algorithm.kl.reference": "initial"}
        )


def checkpoints(config: TrainingConfig, _facts: Facts) -> Hints:
    """A crash would cost everything."""
    if config.budget.checkpoint_every == 0 and config.budget.steps > 20:
        text = f"without checkpoints a crash costs all of the {config.budget.steps} steps"
        yield _warning("budget.checkpoint_every", text, 20)


def best_checkpoint(config: TrainingConfig, _facts: Facts) -> Hints:
    """The best is to be kept, and can seldom be known."""
    budget = config.budget
    saved, evaluated = budget.checkpoint_every, budget.eval_every
    if not (budget.keep.last and budget.keep.best and saved) or (evaluated and saved % evaluated == 0):
        return
    if not evaluated:
        yield Message(
            level="info", field="budget.keep.best", text="without evaluations no checkpoint is known to be the best"
        )
        return
    both = lcm(saved, evaluated)
    text = f"checkpoints every {saved} steps and evaluations every {evaluated} meet every {both} steps: only those can be the best"
    yield Message(level="info", field="budget.keep.best", text=text, fix={"budget.checkpoint_every": evaluated})


def workers(_config: TrainingConfig, facts: Facts) -> Hints:
    """Nobody would take the run."""
    if not facts.workers:
        yield Message(level="info", text="no worker is connected: the run waits in the queue until one is")


def offers(config: TrainingConfig, facts: Facts) -> Hints:
    """No worker has what the rewards name, or the sampling engine."""
    needs = needs_of(config.model_dump(mode="json"))
    if not facts.workers or any(needs.met_by(one) for one in facts.workers):
        return
    judges = needs.judges.keys() - {name for one in facts.workers for name in one.judges}
    functions = needs.functions.keys() - {name for one in facts.workers for name in one.reward_functions}
    missing = [(needs.judges[name], f"judge {name}", "GROUPSCOPE_JUDGES") for name in sorted(judges)]
    missing += [
        (needs.functions[name], f"function {name}", "GROUPSCOPE_REWARD_FUNCTIONS") for name in sorted(functions)
    ]
    for field, what, setting in missing:
        text = f"no connected worker has the {what}: the run waits until one has; its operator sets {setting}"
        yield Message(level="warning", field=field, text=text)
    if not any(needs.engine in one.engines for one in facts.workers):
        text = f"no connected worker samples with {needs.engine}: the run waits until one does; its operator {OFFERING[needs.engine]}"
        yield _warning("sampling.engine", text, "native")
    elif not missing:
        text = "no connected worker has all that the run names (judges, functions, engine): the run waits until one has"
        yield Message(level="warning", text=text)


RULES: tuple[Callable[[GrpoConfig, Facts], Hints], ...] = (
    model_source,
    context,
    repeats,
    learning_rate,
    truncated_sampling,
    group_size,
    checkpoints,
    best_checkpoint,
    disk,
    no_penalty,
    learned_scores,
    loss_on_policy,
    off_policy,
    small_cap,
    workers,
    offers,
)
FOR_EVERY_KIND: tuple[Callable[[TrainingConfig, Facts], Hints], ...] = (
    model_source,
    learning_rate,
    checkpoints,
    best_checkpoint,
    disk,
    workers,
    offers,
)


def grpo_hints(config: GrpoConfig, facts: Facts) -> list[Message]:
    """What every rule says."""
    return [message for rule in RULES for message in rule(config, facts)]


def _rate(value: float) -> str:
    """As people write it: 5e-5, not 5e-05."""
    return f"{value:g}".replace("e-0", "e-")


def _error(field: str, text: str, value: Json) -> Message:
    return Message(level="error", field=field, text=text, fix={field: value})


def _warning(field: str, text: str, value: Json) -> Message:
    return Message(level="warning", field=field, text=text, fix={field: value})
