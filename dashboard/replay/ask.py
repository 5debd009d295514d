"""Explain this step: whether it can be done again exactly, what was explained of it before, and the button."""

from collections.abc import Callable, Mapping

import streamlit as st

from backend.contract.advantage import ESTIMATORS
from backend.contract.base import Json
from backend.contract.records import Run
from backend.contract.replay import Replayed, ReplayOutlook
from dashboard.algorithm.surrogates import WORDS, stored_surrogate
from dashboard.format import counted, plain
from dashboard.leaving import go
from dashboard.session import client, guard, link, queued, run_or_none
from dashboard.status import look
from dashboard.stored import number_at, text_at
from dashboard.wording import in_words

_LISTED = 200


def draw_explain(run: Run, step: int) -> None:
    """A quiet button that opens what there is to say; nothing for a run whose steps do not train on groups."""
    if run.kind != "grpo" or step >= run.progress.step:
        return
    with st.popover("Explain this step", icon=":material/biotech:", type="tertiary"):
        st.markdown(
            f"**Why step {step} moved the policy as it did.** The step is done again exactly, from the newest checkpoint before it, and "
            "taken apart: what each group did to the weights, and which completions rose and fell."
        )
        for earlier in _explained(run.id, step):
            link("run", f"Explanation #{earlier.id}: {look(earlier).word}", icon=":material/biotech:", id=earlier.id)
        outlook = _outlook(run.id, step)
        if outlook.config is None:
            st.info(plain(f"It cannot be done again exactly: {outlook.refusal}."), icon=":material/block:")
            return
        before = step - outlook.config.checkpoint
        where = f"checkpoint {outlook.config.checkpoint}" if outlook.config.checkpoint else "the run's beginning"
        st.caption(
            f"From {where}: {counted(before, 'step')} to do again, then this one, on a worker like the one that trained it "
            f"({plain(outlook.config.device)}). Rewards come from the records."
        )
        if st.button(
            f"Explain step {step}", icon=":material/play_arrow:", type="primary", key=f"explain-{run.id}-{step}"
        ):
            _queue(lambda: client().replay(run.id, step))


def draw_more(found: Replayed) -> None:
    """What else may be asked of the step: a group by completion and token, and the update of another algorithm. Each is a replay."""
    with guard():
        original = run_or_none(found.run_id)
    if original is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="ask-more"):
        with st.popover("Take a group apart", icon=":material/segment:", type="tertiary"):
            ranked = sorted(found.groups, key=lambda part: -abs(part.share))
            group = st.selectbox(
                "Group", [part.index for part in ranked], format_func=lambda index: f"group {index + 1}"
            )
            st.caption("Each completion's part of the update, and each token's share. The step is done again.")
            if st.button("Take it apart", type="primary", key="take-apart"):
                _queue(lambda: client().replay(found.run_id, found.step, group=group))
        with st.popover("Another algorithm", icon=":material/alt_route:", type="tertiary"):
            _draw_other(original, found)


def _draw_other(original: Run, found: Replayed) -> None:
    """The form: another estimator or β, from the same step, and another range of the ratio where one acts."""
    kind = text_at(original.config, "algorithm.advantage.kind")
    kinds = [one for one in ESTIMATORS if one == kind or "gae" not in (one, kind)]
    estimator = st.selectbox("Estimator", kinds, index=kinds.index(kind) if kind in kinds else 0, format_func=in_words)
    own_beta = number_at(original.config, "algorithm.kl.beta", 0.0)
    beta = st.number_input("β of the KL penalty", 0.0, 100.0, own_beta, step=0.01, format="%.4f")
    changed: dict[str, Json] = {} if estimator == kind else {"advantage": {"kind": estimator}}
    changed |= {} if beta == own_beta else {"kl.beta": beta}
    for name, (label, own) in cuts(original.config).items():
        cut = st.number_input(label, 0.0, 100.0, own, step=0.01, format="%.4f")
        changed |= {} if cut == own else {f"surrogate.{name}": cut}
    st.caption(
        "Which update it would have made of the same completions and scores, from the same weights, and what that does to the probes."
    )
    if st.button("Compare", type="primary", key="compare-algorithm", disabled=not changed):
        _queue(lambda: client().replay(found.run_id, found.step, other=changed))


def cuts(config: Mapping[str, Json]) -> dict[str, tuple[str, float]]:
    """The surrogate's settings that say where a ratio is cut, each with its label and value; none act on the first pass on a batch."""
    surrogate = stored_surrogate(config)
    if surrogate is None or number_at(config, "algorithm.updates_per_batch", 1) == 1:
        return {}
    words = WORDS[surrogate.kind]
    return {name: (words.labels[name], getattr(surrogate, name)) for name in words.range}


def _queue(ask: Callable[[], Run]) -> None:
    replay = queued(
        ask, "The backend does not answer; nothing was started. Try again when it is back.", ":material/cloud_off:"
    )
    if replay is not None:
        go("run", id=replay.id)


def as_replayed(run: Run) -> Run:
    """A replay as a page of groups reads it: with the configuration of the run whose step it is, if that is still there."""
    if run.kind != "replay":
        return run
    with guard():
        original = run_or_none(int(number_at(run.config, "run", 0)))
    return run if original is None else run.model_copy(update={"config": original.config})


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def _outlook(run_id: int, step: int) -> ReplayOutlook:
    with guard():
        return client().replay_outlook(run_id, step)


@st.cache_data(ttl=5, max_entries=64, show_spinner=False)
def _explained(run_id: int, step: int) -> list[Run]:
    """The replays of this step, the newest first."""
    with guard():
        replays = client().runs(kind="replay", limit=_LISTED).items
    return [one for one in replays if (one.config.get("run"), one.config.get("step")) == (run_id, step)]
