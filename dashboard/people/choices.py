"""The better of two: two completions side by side as text, one press, and the next two."""

import streamlit as st

from backend.contract.groups import CompletionRecord, Group
from backend.contract.people import Choice
from backend.contract.records import Run
from dashboard.completion_text import as_text
from dashboard.components.address import write
from dashboard.components.live import draw_again
from dashboard.format import counted
from dashboard.people.proposal import Places, next_to_judge, propose
from dashboard.session import carried_out, client, guard, link
from dashboard.text import show_text

_LONG = 700  # characters, from which a text gets a frame of its own to scroll in
_FRAME = 380  # pixels
_SIDES = ("left", "right")


@st.fragment
def draw_choices(run: Run, group: Group) -> None:
    """Two completions without their rewards, a button under each, and what was chosen before. Only this is drawn again."""
    if len({completion.text for completion in group.completions}) < 2:
        st.caption("All completions of this group say the same: there is nothing to choose between.")
        _draw_ways_on(run, group, settled=True)
        return
    with guard():
        choices = client().people.choices(group.id)
    if any(_side(group, side) not in st.session_state for side in _SIDES):
        _show_next(group, choices)
    st.markdown("**Which is better?** :gray[:small[The rewards are hidden here, so that they do not influence you.]]")
    known = {frozenset((choice.better_index, choice.worse_index)): choice for choice in choices}
    left, right = (group.completions[st.session_state[_side(group, side)]] for side in _SIDES)
    made = known.get(frozenset((left.index, right.index)))
    tall = any(len(one.text) > _LONG for one in (left, right))
    for column, side, shown, other in zip(st.columns(2), _SIDES, (left, right), (right, left), strict=True):
        with column:
            _draw_side(group, side, shown, other, made, tall=tall)
    settled = propose(group, choices) is None
    _draw_ways(group, choices, settled=settled)
    _draw_ways_on(run, group, settled=settled)
    if not choices:
        return
    with st.expander("What was chosen"), st.container(horizontal=True):
        for choice in choices:
            st.button(
                f"{choice.better_index + 1} better than {choice.worse_index + 1}",
                icon=":material/close:",
                key=f"choice-{choice.id}",
                help="Take this choice back",
                type="tertiary",
                on_click=_remove,
                args=(choice,),
            )


def _draw_side(
    group: Group, side: str, shown: CompletionRecord, other: CompletionRecord, made: Choice | None, *, tall: bool
) -> None:
    st.selectbox(
        f"Completion on the {side}",
        range(len(group.completions)),
        format_func=lambda place: f"Completion {group.completions[place].index + 1}",
        key=_side(group, side),
        label_visibility="collapsed",
    )
    show_text(as_text(shown) or " ", height=_FRAME if tall else None)
    chosen = made is not None and made.better_id == shown.id
    st.button(
        "Chosen as the better one" if chosen else "This one is better",
        icon=":material/check:" if chosen else None,
        key=f"better-{side}-{group.id}",
        type="primary" if chosen else "secondary",
        shortcut="1" if side == _SIDES[0] else "2",
        width="stretch",
        disabled=shown.text == other.text,
        on_click=_choose,
        args=(group, shown.id, other.id),
    )


def _draw_ways(group: Group, choices: list[Choice], *, settled: bool) -> None:
    """On to the next two, or back."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"choosing-{group.id}"):
        st.button(
            "Undecided",
            icon=":material/skip_next:",
            key=f"skip-{group.id}",
            shortcut="0",
            help="Leaves these two undecided",
            on_click=_skip,
            args=(group, choices),
        )
        st.button(
            "Undo",
            icon=":material/undo:",
            key=f"undo-{group.id}",
            disabled=not choices,
            help="Takes the last choice back and shows its two completions again",
            on_click=_take_back,
            args=(group, choices[-1] if choices else None),
        )
        rest = "; all pairs are judged, and any two can be chosen again" if settled else ""
        st.caption(f"{counted(len(choices), 'choice')} in this group{rest}")


def _draw_ways_on(run: Run, group: Group, *, settled: bool) -> None:
    """On to another group, or back to what all of it came to."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"on-from-{group.id}"):
        if st.button(
            "Next group to judge",
            icon=":material/arrow_forward:",
            key=f"next-from-{group.id}",
            shortcut="n",
            type="primary" if settled else "secondary",
            help="The next live group with pairs left to judge, newest first; after the oldest it starts over",
        ):
            following = next_to_judge(run, group) or next_to_judge(run)
            if following in (None, group.id):
                st.toast("No other group has pairs left to judge\\.", icon=":material/check:")
            else:
                write(id=following)
                draw_again()
        if run.by_groups:  # a sample has no such tab
            link("run", "Back to the judgement", icon=":material/balance:", id=run.id, tab="judgement")


def _side(group: Group, side: str) -> str:
    return f"{side}-of-{group.id}"


def _show(group: Group, left: int, right: int) -> None:
    """Put these two on the sides, by their places in the group."""
    for side, index in zip(_SIDES, (left, right), strict=True):
        st.session_state[_side(group, side)] = next(
            place for place, completion in enumerate(group.completions) if completion.index == index
        )


def _show_next(group: Group, choices: list[Choice]) -> None:
    """The next proposal; those that were skipped come again when nothing else is left, and then those that are settled."""
    skipped: set[Places] = st.session_state.setdefault(f"skipped-{group.id}", set())
    pair = propose(group, choices, skipped)
    if pair is None:
        skipped.clear()
        pair = propose(group, choices) or propose(group, [])
    if pair is not None:
        _show(group, pair[0].index, pair[1].index)


def _choose(group: Group, better: int, worse: int) -> None:
    if carried_out(lambda: client().people.choose(group.id, better=better, worse=worse)):
        for side in _SIDES:
            st.session_state.pop(_side(group, side), None)


def _skip(group: Group, choices: list[Choice]) -> None:
    shown = (group.completions[st.session_state[_side(group, side)]].index for side in _SIDES)
    st.session_state[f"skipped-{group.id}"].add(frozenset(shown))
    _show_next(group, choices)


def _remove(choice: Choice) -> None:
    carried_out(lambda: client().people.remove_choice(choice.id))


def _take_back(group: Group, choice: Choice | None) -> None:
    if choice is not None and carried_out(lambda: client().people.remove_choice(choice.id)):
        _show(group, choice.better_index, choice.worse_index)
