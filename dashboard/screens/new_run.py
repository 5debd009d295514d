"""New run: recipe cards, the form, and beside it what the run would do."""

from contextlib import suppress
from functools import partial
from typing import cast

import streamlit as st

from backend.contract.catalog import Catalog, RecipeCard
from backend.contract.client import ApiError, Unreachable
from backend.contract.model import checkpoint_of
from backend.contract.preflight import Message, Preflight
from dashboard.before_launch.panel import draw_before_launch
from dashboard.before_launch.request import SAMPLE, ask, restore
from dashboard.before_launch.results import measured
from dashboard.components.address import number_in_address, read, whole, write_only
from dashboard.components.synced import one_of
from dashboard.form import draft as drafts
from dashboard.form.draft import Draft, on_change, show_files
from dashboard.form.fields import Form
from dashboard.form.model import models_for
from dashboard.form.own_rewards import follow, own_rewards
from dashboard.form.preflight import check, show_estimates, show_verdict
from dashboard.form.preflight import follow as follow_verdict
from dashboard.form.schema import fields_of
from dashboard.form.sections import elsewhere, show_essentials, show_sections, suggestions, workers_now
from dashboard.form.start import rewarded_by, show_recipes
from dashboard.format import plain
from dashboard.leaving import ask_before_unload, go
from dashboard.people.agreement import origin_of, trained_on
from dashboard.session import client, fetch_catalog, guard, link, queued
from dashboard.text import one_line

_CATALOG = "catalog"  # this session's last one, for while the backend is away
PART, FORM, BEFORE_LAUNCH = "part", "Form", "Before launch"


def fill_from_address(draft: Draft, catalog: Catalog) -> None:
    """Take the start that the address names, once: a clone, a fork, a checkpoint, a reward model, judged pairs, or a recipe."""
    names = ("clone", "fork", "from", "reward", "pairs", "recipe")
    origin = next((f"{name}={value}" for name in names if (value := read(name))), None)
    if draft.config and origin in (None, draft.origin):
        return
    unwritten, draft.origin = not draft.config, origin
    if unwritten and (sample_id := number_in_address(SAMPLE)) is not None:  # a page that is loaded again
        with suppress(ApiError):  # the sample was deleted
            if restore(draft, client().run(sample_id)):
                return
    kind, _, value = (origin or "").partition("=")
    start = checkpoint_of(f"run:{value}") if kind in ("from", "fork", "reward") else None
    judged = origin_of(value) if kind == "pairs" else None
    if judged is not None:
        pairs, recipe = client().preview_upload(judged.upload), recipe_of(catalog, judged.recipe)
        draft.fill(trained_on(client().run(judged.run), pairs, recipe))
        draft.parent_id = judged.run
    elif start is not None and kind == "reward":
        draft.fill(rewarded_by(client().run(start[0]), start[1], catalog.recipes[0]))
        draft.parent_id = start[0]
    elif start is not None and kind == "fork":
        draft.fill_from_run(client().run(start[0]), fork_at=start[1])
    elif start is not None:
        draft.fill_from_run(client().run(start[0]), checkpoint=start[1])
    elif kind == "clone" and (cloned := whole(value)) is not None and (run := client().run(cloned)).from_form:
        draft.fill_from_run(run)
    else:
        choose_recipe(draft, catalog, value if kind == "recipe" else None)


def choose_recipe(draft: Draft, catalog: Catalog, recipe_id: str | None) -> None:
    """Fill the form with a recipe; the first one where no such recipe is known."""
    draft.fill(recipe_of(catalog, recipe_id).config)
    draft.parent_id = draft.fork_at = None


def recipe_of(catalog: Catalog, recipe_id: str | None) -> RecipeCard:
    """The recipe of that id; the first one where no such recipe is known."""
    return next((one for one in catalog.recipes if one.id == recipe_id), catalog.recipes[0])


def show_page() -> None:
    """Lay the page."""
    draft = drafts.current()
    with guard():
        try:
            st.session_state[_CATALOG] = fetch_catalog()
        except Unreachable:  # what somebody writes must not vanish
            if _CATALOG not in st.session_state:
                raise
        catalog = cast(Catalog, st.session_state[_CATALOG])
        fill_from_address(draft, catalog)
    schema = fields_of(draft.config)

    def pick(recipe_id: str) -> None:
        choose_recipe(draft, catalog, recipe_id)
        draft.origin = f"recipe={recipe_id}"
        write_only(recipe=recipe_id)

    ask_before_unload(unsaved=draft.config != draft.kept)
    workers = workers_now()
    own = own_rewards(draft, workers)
    written, beside = st.columns([2.5, 1], gap="medium")
    with beside, st.container(key="preflight", border=True):
        preflight = check(draft)
        # one place, whatever it says: if the name's field moved, what is being typed there would be lost
        with st.container():
            if preflight is not None:
                show_verdict(draft, preflight)
        show_start(draft, preflight)
        if preflight is not None:
            show_estimates(draft, preflight, measured(draft))
        follow_verdict(draft, preflight)
    with written:
        follow(draft, workers)
        if show_heading(draft) == BEFORE_LAUNCH:
            draw_before_launch(draft)
            return
        recipe = draft.get("recipe")
        show_recipes(catalog.recipes, recipe if isinstance(recipe, str) else None, pick)
        show_origin(draft)
        messages: dict[str, list[Message]] = {}
        for message in preflight.messages if preflight else []:
            if message.field:
                messages.setdefault(message.field, []).append(message)
        for path, found in own.problems.items():
            messages.setdefault(path, []).extend(found)
        form = Form(draft, messages, suggestions(draft), elsewhere(draft), own.records, own.consequences)
        show_essentials(form, schema, models_for(draft))
        show_sections(form, schema)


def show_heading(draft: Draft) -> str:
    """The page's title, what of it to see, and the way out of and into a file; returns the chosen view."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.subheader("New run", width="content", anchor=False)
        view = FORM
        if draft.get("kind") == "grpo":
            view = one_of("View", (FORM, BEFORE_LAUNCH), key=PART)
        if st.button(
            "YAML, TRL", icon=":material/swap_vert:", help="Export or import the configuration: YAML, or TRL's"
        ):
            show_files(draft)
    return view


def show_origin(draft: Draft) -> None:
    """Where the form's values come from, if from another run, and what could not be taken over."""
    if draft.fork_at is not None:
        link(
            "run",
            f"Fork of run {draft.parent_id} at step {draft.fork_at}",
            icon=":material/fork_right:",
            id=draft.parent_id,
        )
        st.caption(
            "It goes on from there with the optimizer and the draws, and shares the steps before it. Everything may change but "
            "the model, its adapters, and whether there is a critic: the weights have their shapes."
        )
    elif draft.parent_id is not None:
        link("run", f"Filled from run {draft.parent_id}", icon=":material/content_copy:", id=draft.parent_id)
    if draft.left_out:
        names = ", ".join(draft.left_out)
        st.info(plain(f"This version does not know these fields, and left them out: {names}"), icon=":material/info:")
    if draft.remarks:
        said = "\n".join(f"- {plain(one.replace('`', ''))}" for one in draft.remarks)
        st.info(f"Read from a configuration of TRL's. To see to:\n{said}", icon=":material/info:")


def show_start(draft: Draft, preflight: Preflight | None) -> None:
    """Name, tags, and the button; when it cannot be pressed, the reason."""
    name, tags = st.columns(2)
    # as they are now: another field's change in the same run of the page gives the draft new keys
    name_key, tags_key = draft.key("name"), draft.key("tags")

    name.text_input(
        "Name",
        draft.name,
        max_chars=200,
        key=name_key,
        placeholder="optional",
        on_change=on_change(name_key, draft.name, partial(setattr, draft, "name")),
    )
    tags.multiselect(
        "Tags",
        draft.tags,
        default=draft.tags,
        key=tags_key,
        accept_new_options=True,
        format_func=one_line,
        placeholder="type a tag, Enter",
        on_change=on_change(tags_key, draft.tags, partial(setattr, draft, "tags")),
    )
    errors = sum(message.level == "error" for message in preflight.messages) if preflight else 0
    ready = preflight is not None and preflight.ok and not errors
    if st.button("Start run", type="primary", icon=":material/play_arrow:", width="stretch", disabled=not ready):
        start(draft)
    if preflight is not None and not ready:
        st.markdown(f":small[:red[Correct the {'error' if errors == 1 else f'{errors} errors'} first]]")
    if draft.get("kind") == "grpo":  # what a sample and a sweep can take from the form
        st.button(
            "Sample before launch",
            icon=":material/casino:",
            width="stretch",
            key="sample-before-launch",
            help="Samples a few groups from the model before training and scores them with these rewards, to show what the run would learn from\\.",
            on_click=sample_now,
            args=(draft,),
        )
        recipe = str(draft.get("recipe") or "")
        link("sweep", "Add to a sweep…", icon=":material/stacked_line_chart:", base="form", recipes=recipe)


def sample_now(draft: Draft) -> None:
    """Ask for the sample, and look at it."""
    st.session_state[PART] = BEFORE_LAUNCH
    ask(draft)


def start(draft: Draft) -> None:
    """Queue the run and go to its page; a refusal leaves the form as it is."""
    run = queued(
        lambda: client().create_run(
            draft.config,
            name=draft.name.strip() or None,
            tags=draft.tags,
            parent_id=draft.parent_id,
            fork_at=draft.fork_at,
            idempotency_key=draft.submission_key(),
        ),
        "The backend does not answer. Press Start again once it is up: it makes one run, not two.",
    )
    if run is not None:
        drafts.discard()
        go("run", id=run.id)


show_page()
