"""A look at every pair before step 0: each is rendered and counted, and what the model cannot read is named, or left out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from backend.contract.preference import DatasetPairs, SampledPairs
from worker.errors import RunFailure
from worker.policy.chat import THINK, error_line
from worker.policy.policy import Policy
from worker.preferences.objective import Objective
from worker.preferences.pairs import Pair, Pairs

EVERY = 64  # pairs between two looks at whether somebody asked to end
MOST_NAMED = 5
STRIPPED = "the chat template would leave the thoughts out of an answer: answers stand behind their prompts, whole"


def fit(
    pairs: Pairs, source: DatasetPairs | SampledPairs, objective: Objective, show: Callable[[int, int], None]
) -> tuple[Pairs, list[str]]:
    """The pairs that the model can read, and what the log should say of them and of the others.

    `show` gets the pairs done and their total, and may raise. Raises RunFailure `pairs_unfit` where nothing may be left out, or
    nothing would be left.
    """
    every, unfit = [*pairs.train, *pairs.held_out], dict[int, str]()
    for at, pair in enumerate(every):
        if at % EVERY == 0:
            show(at, len(every))
        if why := _why_not(pair, objective):
            unfit[at] = why
    trained = objective.trained
    stripped = (
        isinstance(trained, Policy)
        and trained.chat.strips_thoughts
        and any(THINK in one.text for pair in every for one in (pair.chosen, pair.rejected))
    )
    said = [STRIPPED] if stripped else []
    if not unfit:
        return pairs, said
    gone = {id(every[at]) for at in unfit}
    train, held_out = ([pair for pair in part if id(pair) not in gone] for part in (pairs.train, pairs.held_out))
    named = []
    for pair, why in ((every[at], why) for at, why in islice(unfit.items(), MOST_NAMED)):
        row = "" if pair.row is None else f"row {pair.row}, "
        named.append(f"{row}“{' '.join(pair.question.split())[:60]}”: {why}")
    wanted = isinstance(source, DatasetPairs) and source.leave_out_unfit
    if not wanted or not train or bool(held_out) != bool(pairs.held_out):
        raise _refusal(named, len(unfit), len(every), may_leave_out=isinstance(source, DatasetPairs) and not wanted)
    left_out = f"{len(unfit):,} of {len(every):,} pairs are left out; the first: {named[0]}"
    return replace(pairs, train=train, held_out=held_out), [*said, left_out]


def _refusal(named: Sequence[str], unfit: int, of: int, *, may_leave_out: bool) -> RunFailure:
    more = f"; and {unfit - MOST_NAMED:,} more" if unfit > MOST_NAMED else ""
    way = ", or set pairs.leave_out_unfit to leave them out" if may_leave_out else ""
    which = f"{unfit:,} of {of:,} pairs cannot be read by this model. {'; '.join(named)}{more}."
    return RunFailure("pairs_unfit", f"{which} Mend them, or choose another model{way}.")


def _why_not(pair: Pair, objective: Objective) -> str:
    try:
        longest, context = max(objective.lengths(pair)), objective.trained.context
    except RunFailure as failure:
        return failure.message
    except Exception as error:  # noqa: BLE001 — a template is somebody's program
        return f"the model's chat template refuses it: {error_line(error)}"
    if context is None or longest <= context:
        return ""
    return f"a prompt with its completion has {longest:,} tokens, and the model was made for {context:,}"
