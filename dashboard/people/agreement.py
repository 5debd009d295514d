"""People against the reward, over a run; what people said as a data set, and the run that trains on it."""

import math
from typing import NamedTuple

import streamlit as st

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.people import Agreement, Disagreement
from backend.contract.records import Run, Upload, UploadPreview
from dashboard.components.address import whole
from dashboard.components.table import Column, pick
from dashboard.format import count, counted, number, percent
from dashboard.leaving import go
from dashboard.people.proposal import next_to_judge
from dashboard.session import carried_out, client, guard, link
from dashboard.stored import get, put
from dashboard.text import one_line

WHICH = "which is better?"  # in a group's address: the open panel
CHANCE = 0.5
_Z = 1.959964  # of the central 95 % of the normal distribution
DISAGREEMENT = {
    "step": Column[Disagreement]("step", lambda one: one.step, 60, kind="number"),
    "group": Column("group", lambda one: one.group_index + 1, 60, kind="number"),
    "prompt": Column("prompt", lambda one: one_line(one.prompt), "large"),
    "people": Column("people say", lambda one: f"{one.better_index + 1} better than {one.worse_index + 1}", 130),
    "reward": Column(
        "reward",
        lambda one: (
            f"{one.better_index + 1} gets {number(one.better_reward)}, {one.worse_index + 1} gets {number(one.worse_reward)}"
        ),
        200,
    ),
}


def draw_agreement(run: Run) -> None:
    """Draw the agreement in words, the groups in which the reward says the opposite, and the pairs to download."""
    with guard():
        found = client().people.agreement(run.id)
    if not found.pairs:
        st.info(
            f"{said(found)} Open a group and choose the better of two completions, or give one a thumbs up and another a "
            "thumbs down: this page will then show how often the reward agrees with you, and the pairs to train on.",
            icon=":material/balance:",
        )
        _draw_way_to_judge(run)
        return
    st.markdown(
        in_words(found),
        help="The interval is Wilson's. It treats the pairs as independent; pairs of the same group are not, so the "
        "true uncertainty is larger.",
    )
    with st.container(horizontal=True, vertical_alignment="center", key="said"):
        st.caption(said(found), width="content")
        _draw_way_to_judge(run)
    if shown := found.disagreements:
        newest = f", the newest {count(len(shown))} of {count(found.disagreed)}" if len(shown) < found.disagreed else ""
        st.markdown(f"**Where the reward says the opposite**{newest} :gray[:small[· click a line to open its group]]")
        one = pick(shown, DISAGREEMENT, key=f"disagreements-{run.id}")
        if one is not None:
            go("group", id=one.group_id)
    _draw_data_set(run, found)


def _draw_way_to_judge(run: Run) -> None:
    """Straight to two completions of the newest group that is not settled; from there a button leads on to others."""
    if st.button("Judge the newest groups", icon=":material/thumbs_up_down:", key=f"judge-{run.id}"):
        found = next_to_judge(run)
        if found is not None:
            go("group", id=found, panel=WHICH)
        st.toast("There is nothing to judge: no live group, or all of them are judged\\.", icon=":material/check:")


def in_words(found: Agreement) -> str:
    """The share of pairs on which the reward agrees, its interval, and what is to be made of it."""
    decided = found.agreed + found.disagreed
    if not decided:
        return (
            f"**The reward says nothing about the {counted(found.pairs, 'pair')}**: it is equal for both, or missing."
        )
    low, high = wilson(found.agreed, decided)
    share = found.agreed / decided
    meaning = "so that this agreement may be chance; more choices would tell"
    if low > CHANCE:
        meaning = "more often than chance"
    elif high < CHANCE:
        meaning = "less often than chance: look at what it rewards"
    sentence = (
        f"**The reward agrees with people on {count(found.agreed)} of {counted(decided, 'pair')}**: {percent(share)}, "
        f"95 % interval {percent(low)} to {percent(high)}, {meaning}."
    )
    if found.undecided:
        sentence += (
            f" On {counted(found.undecided, 'more pair')} the reward says nothing: it is equal for both, or missing."
        )
    return sentence


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share of `hits` in `n` > 0 (Wilson, 1927): within 0 and 1, also for 0 or n hits."""
    share = hits / n
    centre = share + _Z * _Z / (2 * n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    scale = 1 + _Z * _Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def said(found: Agreement) -> str:
    """What people did, in numbers."""
    return (
        f"{counted(found.choices, 'choice')}, {counted(found.thumbs_up, 'thumb')} up, "
        f"{counted(found.thumbs_down, 'thumb')} down so far."
    )


def _draw_data_set(run: Run, found: Agreement) -> None:
    """The way from judgements to training."""
    backend, kept = client(), f"kept-preferences-{run.id}"

    def store() -> None:
        st.session_state[kept] = backend.people.keep_preferences(run.id)

    def keep() -> None:
        carried_out(store)

    with st.container(horizontal=True, vertical_alignment="center", key="preferences"):
        st.download_button(
            f"Download {counted(found.trainable, 'pair')} as JSONL",
            lambda: b"".join(backend.people.preferences(run.id)),
            file_name=f"run-{run.id}-preferences.jsonl",
            mime="application/x-ndjson",
            icon=":material/download:",
            key=f"preferences-{run.id}",
            help="One pair a line: prompt, chosen, rejected, and where they come from. Pairs of probes are left out: their "
            "prompts are held out from training.",
            on_click="ignore",
            disabled=not found.trainable,
        )
        st.button(
            "Keep as a data set",
            icon=":material/dataset:",
            key=f"keep-preferences-{run.id}",
            help="Stores the pairs beside your uploads, as they are now, for runs to train on",
            on_click=keep,
            disabled=not found.trainable,
        )
    upload = st.session_state.get(kept)
    if not isinstance(upload, Upload):
        return
    with st.container(horizontal=True, vertical_alignment="center", key="train-on-preferences"):
        st.markdown(
            f":green[:material/check:] Kept: {counted(upload.rows, 'pair')}, `upload:{upload.id}`", width="content"
        )
        for recipe, label, icon in (
            ("reward-model", "Train a reward model on these", ":material/trophy:"),
            ("dpo", "DPO on these", ":material/rocket_launch:"),
        ):
            link("new-run", label, icon=icon, pairs=f"{recipe}@{upload.id}@{run.id}")


class Origin(NamedTuple):
    """What `?pairs=<recipe>@<upload>@<run>` names: how to train, on which upload, and the run that was judged."""

    recipe: str
    upload: int
    run: int


def origin_of(query: str) -> Origin | None:
    """The three; None if the address does not have that form."""
    recipe, *numbers = query.split("@")
    match [whole(each) for each in numbers]:
        case [int(upload), int(run)]:
            return Origin(recipe, upload, run)
    return None


def trained_on(judged: Run, pairs: UploadPreview, recipe: RecipeCard) -> dict[str, Json]:
    """The recipe on these pairs, from the model that the judged run began with; prompts that are texts are taken as they are."""
    model = judged.config.get("model")
    config: Json = recipe.config
    if isinstance(model, dict):
        config = put(config, "model", {**model, "lora": None} if get(config, "kind") == "reward_model" else model)
    texts = any(isinstance(row.get("prompt"), str) for row in pairs.rows)
    source: dict[str, Json] = {
        "kind": "dataset",
        "source": f"upload:{pairs.upload.id}",
        "prompt_format": "raw" if texts else "chat",
    }
    config = put(config, "pairs", source)
    if not isinstance(config, dict):
        raise TypeError("a configuration is an object")
    return config
