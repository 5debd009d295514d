"""The editor's companion: a changed reward file scores the sampled groups again, and what that changed is said; and what in the scores looks like a mistake."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial

import numpy as np
import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.records import Run
from dashboard.before_launch import request
from dashboard.components.live import draw_again
from dashboard.form.draft import Draft
from dashboard.form.sections import fetch_workers
from dashboard.format import counted, number, percent, plain, signed
from dashboard.session import client
from dashboard.stored import reward_functions, text_at

TICK = 0.5  # seconds between two looks at the files
LONGER = 0.5  # a correlation with length from which on a score is about length, too
NEARLY_ALL = 0.95  # of the completions
ENOUGH = 8  # scored completions from which something is said
Files = Set[tuple[str, str]]
"""Names and hashes."""


def watch_files(draft: Draft, sample: Run) -> None:
    """Score the sample again once a file that scored it has changed, and can be imported."""
    if request.reward_files(sample.config):
        st.fragment(partial(_look, draft, sample), run_every=TICK)()


def _look(draft: Draft, sample: Run) -> None:
    names = request.reward_files(sample.config)
    try:
        workers, scored = fetch_workers(), _scored_by(sample.id)
    except (ApiError, Unreachable):
        st.caption("The backend does not answer. These completions are scored again once it is back.")
        return
    now = request.files_now(sample.config, workers)
    if draft.sample_files is None:  # a page that was loaded again
        draft.sample_files = now
    broken = [file.error for worker in workers for file in worker.reward_files if file.name in names and file.error]
    if broken:
        st.error(plain(broken[0].partition("\n")[0]), icon=":material/error:")
    elif _is_due(draft, scored, now):
        request.score_again(draft, sample)
        draw_again()
    elif changed(now, scored):
        st.caption(f"{plain(' or '.join(names))} changed since these completions were scored.")
        if st.button("Score again", icon=":material/refresh:", key="score-by-files-of-now"):
            request.score_again(draft, sample)
            draw_again()
    else:
        then = "these completions are scored" if request.has_groups(sample) else "the prompts are sampled"
        st.caption(f"Save {plain(' or '.join(names))} in your editor, and {then} again.")


def _is_due(draft: Draft, scored: Mapping[str, str], now: Files) -> bool:
    """Whether a file was saved since the sample was asked for or opened, and is another than what scored it."""
    is_new = not now <= (draft.sample_files or frozenset())
    return is_new and (not scored or changed(now, scored))  # nothing scored it if it failed before


def changed(now: Files, scored: Mapping[str, str]) -> bool:
    """Whether a file that scored is another now, on every worker that has it: two machines may have two."""
    known = {name for name, _ in now}
    return any(name in known and (name, digest) not in now for name, digest in scored.items())


@st.cache_data(ttl=600, max_entries=16, show_spinner=False)
def _scored_by(sample_id: int) -> dict[str, str]:
    """By file, the hash of what scored a sample that is over."""
    return {file.name: file.sha256 for one in client().rewards(sample_id)[:1] for file in one.files}


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
        f"{counted(turned, 'advantage')} changed sign. Dead or unscored groups: {dead[1]} of {len(after)} ({dead[0]} before)."
    )


def _sign(value: float | None) -> int | None:
    return None if value is None else (value > 1e-9) - (value < -1e-9)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def suspicions(groups: Sequence[GroupScores], config: Mapping[str, Json]) -> list[str]:
    """What in the scores of each reward looks like a mistake, in a sentence each. What could not be scored is said elsewhere."""
    completions = [one for group in groups for one in group.completions]
    found: list[str] = []
    for function in reward_functions(config):
        name, kind = text_at(function, "name"), text_at(function, "kind")
        known = [(one, score.raw) for one in completions for score in one.rewards if score.name == name]
        scored = [(one, raw) for one, raw in known if raw is not None]
        if len(scored) >= ENOUGH:
            found += _of_values(name, kind, scored)
    return found


def _of_values(name: str, kind: str, scored: Sequence[tuple[CompletionScores, float]]) -> list[str]:
    values = [value for _, value in scored]
    low, high = min(values), max(values)
    if low == high:
        return [f"{name} is always {number(low)}: it tells no two completions apart."]
    found = []
    if kind == "python" and (low < 0 or high > 1):  # models have no bounds, and all others keep theirs
        found.append(
            f"{name} goes from {number(low)} to {number(high)}, and other rewards from 0 to 1: it may outweigh them. Is that meant?"
        )
    common = max(Counter(values).values()) / len(values)
    if common >= NEARLY_ALL:
        found.append(f"{name} has one value on {percent(common)} of the completions.")
    lengths = [one.token_count for one, _ in scored]
    if kind != "length" and min(lengths) < max(lengths):
        correlation = float(np.corrcoef(lengths, values)[0, 1])
        if correlation >= LONGER:
            found.append(
                f"{name} is higher the longer a completion is (correlation {signed(correlation)}): a policy may learn to write "
                "more, and nothing else. Is that meant?"
            )
    return found
