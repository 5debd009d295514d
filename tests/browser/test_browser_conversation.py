"""A conversation of fifty turns and some 20,000 tokens, with tools and errors: opened, read by token, searched, compared, taken along."""

import re

import pytest
from on_page import Open
from playwright.sync_api import expect
from processes import TOKEN
from stack import Stack

import groupscope
from dashboard.downloads.report import gather, report
from groupscope import Completion, Group, Recording, Tokens, Turn

pytestmark = pytest.mark.thorough

TURNS = 50
WORDS = 405  # of a turn, each of them a token
NEEDLE = "the needle of turn 31"


def turn(place: int, ending: str) -> Turn:
    said = " ".join(f"w{place}x{word}" for word in range(WORDS - 1))
    if place == 31:
        said = f"{said} {NEEDLE}"
    if place == TURNS - 1:
        said = f"{said} {ending}"
    match place % 3:
        case 0:
            return Turn("assistant", said, reward=0.25 if place == 30 else None, policy_version=f"{place // 10}")
        case 1:
            return Turn("assistant", said, "find")
        case _:
            return Turn("tool", said, "find", failed=place == 5)


def completion(ending: str, reward: float) -> Completion:
    turns = [turn(place, ending) for place in range(TURNS)]
    pieces = [(one.is_trained, piece) for one in turns for piece in re.findall(r"\S+\s*", f"{one.stretch}\n")]
    tokens = Tokens(
        list(range(len(pieces))),
        [piece.encode() for _, piece in pieces],
        trained=[trained for trained, _ in pieces],
        old_logprob=[-0.5 if trained else None for trained, _ in pieces],
        entropy=[(place % 7) / 7 if trained else None for place, (trained, _) in enumerate(pieces)],
    )
    return Completion(turns=turns, reward=reward, advantage=2 * reward - 1, rewards={"found": reward}, tokens=tokens)


@pytest.fixture(scope="module")
def recording(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPSCOPE_TOKEN", TOKEN)
        home = tmp_path_factory.mktemp("scripts")
        with groupscope.start_run("a long talk", backend=stack.site.url, home=home) as one:
            said = [completion("It is here.", 1.0), completion("It is nowhere.", 0.0)]
            one.log_groups([Group("Where is it?", said)], 0)
    assert one.run_id is not None
    return one


def group_of(stack: Stack, recording: Recording) -> int:
    [group] = stack.client.groups(recording.run_id or 0).items
    return group.id


def test_a_conversation_is_shown_by_its_ends_then_whole_found_by_its_words_and_reported_with_its_turns(
    open_page: Open, stack: Stack, recording: Recording
) -> None:
    page = open_page(f"/group?id={group_of(stack, recording)}")
    card = page.locator("[class*='st-key-card-']").first
    expect(card.locator(".turn:visible")).to_have_count(6)
    card.get_by_text("⋯ 44 more turns ⋯").click()
    expect(card.locator(".turn:visible")).to_have_count(TURNS)
    expect(card.locator(".turn.failed .who")).to_have_text("tool find · error · not trained on")
    expect(card.locator(".measures").first).to_contain_text("50 turns · ")

    card.get_by_role("button", name="tokens").click()
    opened = page.locator("[class*='st-key-opened-']").first
    expect(opened.locator(".turn")).to_have_count(TURNS)
    expect(opened.locator(".turn", has_text="reward +0.25")).to_have_count(1)
    spans = page.get_by_role("listbox").get_by_role("option", include_hidden=True)
    expect(spans.first).to_be_attached()
    trace = stack.client.tokens(stack.client.group(group_of(stack, recording)).completions[0].id)
    assert len(trace.token_ids) >= 20_000
    expect(spans).to_have_count(len(trace.token_ids))
    expect(page.locator(".tokens .untrained")).to_have_count((trace.trained or []).count(False))
    page.get_by_role("listbox").press("End")
    expect(page.locator(".panel .place")).to_contain_text(f"token {len(trace.token_ids):d} of")
    page.locator(".tokens .untrained").nth(0).scroll_into_view_if_needed()
    page.locator(".tokens .untrained").nth(0).hover()
    expect(page.locator(".panel .place")).to_contain_text("not trained on")

    run_id = recording.run_id or 0
    found = stack.client.completions(run_id, search=NEEDLE).items
    assert [NEEDLE in hit.excerpt for hit in found] == [True, True]
    text = report(gather(stack.client, run_id))
    assert text.count('class="turn untrained') >= 2 * 2
    assert NEEDLE in text


def test_two_conversations_are_compared_turn_by_turn(open_page: Open, stack: Stack, recording: Recording) -> None:
    page = open_page(f"/group?id={group_of(stack, recording)}&diff=1,2")
    marks = page.locator(".two-sides mark")
    expect(marks).to_have_text(["here", "nowhere"])
    expect(page.get_by_text(re.compile("They share 99 % of their words"))).to_be_visible()
