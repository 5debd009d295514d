"""The editor's companion: a changed reward file scores the sampled groups again, and what that changed is said; and what in the scores looks like a mistake."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.records import Run, Worker
from backend.contract.reward import BOUNDED, file_of
from dashboard.before_launch import request
from dashboard.components.live import draw_again
from dashboard.form.draft import Draft
from dashboard.form.sections import workers_now
from dashboard.format import counted, number, percent, plain, signed
from dashboard.session import client
from dashboard.stored import reward_functions, text_at

TICK = 1.0  # seconds between two looks at the files
LONGER = 0.5  # a correlation with length from which on a score is about length, too
ENOUGH = 8  # scored completions from which something is said


def watch_files(draft: Draft, sample: Run) -> None:
    """Score the sample again once a file that scored it has changed, and can be imported."""
    if any(file_of(text_at(one, "function")) for one in reward_functions(sample.config)):
        scored = _scored_by(sample.id)
        st.fragment(partial(_look, draft, sample, scored), run_every=TICK)()


def _look(draft: Draft, sample: Run, scored: Mapping[str, str]) -> None:
    workers = workers_now()
    names = [file for one in reward_functions(sample.config) if (file := file_of(text_at(one, "function")))]
    broken = [file.error for worker in workers for file in worker.reward_files if file.name in names and file.error]
    if broken:
        st.error(plain(broken[0].partition("\n")[0]), icon=":material/error:")
    elif changed(workers, scored):
        request.score_again(draft, sample)
        draw_again()
    else:
        st.caption(f"Save {plain(' or '.join(names))} in your editor, and these completions are scored again.")


def changed(workers: Sequence[Worker], scored: Mapping[str, str]) -> bool:
    """Whether a file that scored is another now."""
    now = {name: digest for worker in workers for file in worker.reward_files for name, digest in file.texts.items()}
    return any(now.get(name, digest) != digest for name, digest in scored.items())


@st.cache_data(ttl=600, max_entries=16, show_spinner=False)
def _scored_by(sample_id: int) -> dict[str, str]:
    """By file, the hash of what scored a finished sample; nothing while nobody answers."""
    try:
        return {file.name: file.sha256 for one in client().rewards(sample_id)[:1] for file in one.files}
    except (ApiError, Unreachable):
        return {}


def difference(before: Sequence[GroupScores], after: Sequence[GroupScores]) -> str:
    """What scoring again changed: rewards, the signs of advantages, and groups that died or came to life."""
    pairs = [
        (old, new)
        for group, other in zip(before, after, strict=True)
        for old, new in zip(group.completions, other.completions, strict=True)
    ]
    moved = sum(old.reward != new.reward for old, new in pairs)
    if not moved:
        return "No reward changed."
    turned = sum(_sign(old.advantage) != _sign(new.advantage) for old, new in pairs)
    dead = [sum(group.state != "live" for group in groups) for groups in (before, after)]
    means = [_mean([one.reward for group in groups for one in group.completions]) for groups in (before, after)]
    return (
        f"{moved} of {counted(len(pairs), 'reward')} changed: the mean went from {number(means[0])} to {number(means[1])}, "
        f"{counted(turned, 'advantage')} changed sign, and {dead[1]} of {counted(len(after), 'group')} "
        f"{'is' if dead[1] == 1 else 'are'} dead or unscored ({dead[0]} before)."
    )


def _sign(value: float | None) -> int | None:
    return None if value is None else (value > 1e-9) - (value < -1e-9)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def suspicions(groups: Sequence[GroupScores], config: Mapping[str, Json]) -> list[str]:
    """What in the scores of each reward looks like a mistake, in a sentence each."""
    completions = [one for group in groups for one in group.completions]
    found: list[str] = []
    for function in reward_functions(config):
        name, kind = text_at(function, "name"), text_at(function, "kind")
        scores = [(one, score) for one in completions for score in one.rewards if score.name == name]
        known = [(one, score.raw) for one, score in scores if score.raw is not None]
        failed = len(scores) - len(known)
        if failed:
            found.append(f"{name} scored {failed} of {counted(len(scores), 'completion')} not at all.")
        found += _of_values(name, known, bounded=kind in BOUNDED)
    return found


def _of_values(name: str, known: Sequence[tuple[CompletionScores, float]], *, bounded: bool) -> list[str]:
    if len(known) < ENOUGH:
        return []
    values = [value for _, value in known]
    if min(values) == max(values):
        return [f"{name} is always {number(values[0])}: it tells no two completions apart."]
    found = []
    beyond = sum(not 0 <= value <= 1 for value in values)
    if bounded and beyond:
        found.append(f"{name} left its bounds of 0 and 1 on {counted(beyond, 'completion')}.")
    common = max(values.count(value) for value in set(values)) / len(values)
    if common >= 0.95:
        found.append(f"{name} has one value on {percent(common)} of the completions.")
    lengths = [one.token_count for one, _ in known]
    if min(lengths) < max(lengths):
        correlation = float(np.corrcoef(lengths, values)[0, 1])
        if math.isfinite(correlation) and abs(correlation) >= LONGER:
            which = "longer" if correlation > 0 else "shorter"
            found.append(
                f"{name} is higher the {which} a completion is (correlation {signed(correlation)}): is that meant?"
            )
    return found
