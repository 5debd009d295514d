"""A completion's card as HTML: its numbers are the stored ones, and its text is text."""

import re
from html import unescape

import pytest
import recorded
from answers import completion_of, stored

from backend.contract.conversation import Turn as StoredTurn
from backend.contract.conversation import joined
from backend.contract.groups import CompletionRecord, Group, RewardScore
from backend.contract.grpo import GrpoConfig
from dashboard.completion_text import FOLDED_LINES, TextLook, as_text, text_html
from dashboard.group.cards import card_html, equal_ones, look_at, order_of
from groupscope import Turn

CONFIG = GrpoConfig().model_dump(mode="json")


def shown(html: str) -> str:
    """What a person reads: without the elements, and with references resolved."""
    return unescape(re.sub("<[^>]*>", "", html))


def card(**changes: object) -> str:
    """The card of a completion of which this is known, alone in its group."""
    group = with_text("text")
    one = group.completions[0].model_copy(update=changes)
    return card_html(one, look_at(group.model_copy(update={"completions": [one]}), CONFIG), TextLook())


def with_text(text: str) -> Group:
    return stored(recorded.group_of(0, [1.0, 0.1], texts=[text, "other"]))


def bars(html: str) -> list[tuple[float, float]]:
    """Left end and width of each bar, in per cent."""
    return [(float(left), float(width)) for left, width in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", html)]


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</div></details><style>*{display:none}</style>",
    "**bold** $x^2$ :red[red] ![b](http://evil.example/b.png)",
    "&lt;already&gt; &#10; &amp;",
    "end of line spaces  \n   \n\ttab",
    "\u05e9\u05dc\u05d5\u05dd and \u0645\u0631\u062d\u0628\u0627",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_shown_letter_by_letter(text: str) -> None:
    html = text_html(with_text(text).completions[0], TextLook())
    assert shown(html) == text
    assert re.findall("<[^>]*>", html) == ['<div class="model-text">', "</div>"]
    assert "\n" not in html  # a line of spaces alone would lose them on its way to the browser


@pytest.mark.parametrize("control", ["\x1b[31m", "\x07", "\u202e", "\u2066", "\u200b", "\u2028", "\x7f", "\ud800"])
def test_what_cannot_be_seen_has_a_sign(control: str) -> None:
    completion = with_text("text").completions[0].model_copy(update={"text": f"a{control}b"})
    html = text_html(completion, TextLook())
    assert control[0] not in html
    assert len(shown(html)) > 2
    html.encode()


def test_equal_completions_without_numbers_announce_none() -> None:
    group = with_text("text")
    numbers = ("kl_mean", "entropy_mean", "ratio_mean", "clipped_share", "logprob_sum", "logprob_sum_after")
    nothing = dict.fromkeys(numbers)
    look, one = look_at(group, CONFIG), group.completions[0]
    assert "numbers of completion 1" in shown(card_html(one, look, TextLook(), alike=(0, 1)))
    assert "numbers of" not in shown(card_html(one.model_copy(update=nothing), look, TextLook(), alike=(0, 1)))


def test_a_hostile_name_or_error_is_text_too() -> None:
    score = RewardScore(name="<b>name</b>", raw=None, weight=1.0, error="<i>boom</i>\u202e")
    html = card(rewards=[score], reward=None)
    assert not any(raw in html for raw in ("<b>name", "<i>boom", "\u202e"))
    assert "<b>name</b> could not score this" in shown(html)
    assert "<i>boom</i>⟦RLO⟧" in shown(html)


def test_a_card_spells_out_reward_and_advantage_and_its_bars_are_as_long_as_their_parts_of_the_weight() -> None:
    group = stored(recorded.group_of(0, [1.0, 0.1]))
    right, wrong = (card_html(one, look_at(group, CONFIG), TextLook()) for one in group.completions)
    assert shown(right).startswith("1 · best reward 1.00 A +1.00")
    assert "correctness1 × 0.90.9format1 × 0.10.1total1" in shown(right)
    assert "(1 − 0.55) / (0.45 + 1e-08) = +1" in shown(right)
    assert "ended by itself" in shown(right)
    assert bars(right) == [(0, 100), (0, 11.11)]
    assert bars(wrong) == [(0, 0), (0, 11.11)]


def test_a_penalty_goes_to_the_left_of_zero() -> None:
    scores = [RewardScore(name="exact", raw=1, weight=1), RewardScore(name="kl_penalty", raw=-5, weight=0.05)]
    html = card(rewards=scores, reward=0.75)
    assert bars(html) == [(20, 80), (0, 20)]
    assert "KL penalty" in shown(html)
    assert "−5 × 0.05" in shown(html)
    assert 'class="zero" style="left:20.00%"' in html


def test_unscored_has_no_number_and_cut_is_said_in_words() -> None:
    group = stored(recorded.group_of(0, [None, 1.0, 0.0]))
    text = shown(card_html(group.completions[0], look_at(group, CONFIG), TextLook()))
    assert text.startswith("1 unscored")
    assert "reward" not in text.partition("correctness")[0]
    assert "not scored" in text
    assert "Traceback: the verifier gave up" in text
    assert "cut at the token limit" in text


def test_log_prob_before_and_after_the_update_stand_side_by_side() -> None:
    moved = shown(card(logprob_sum=-3.1, logprob_sum_after=-2.8))
    assert "after this update: log-prob (sum) −3.10 → −2.80 (+0.300)" in moved
    assert "after this update" not in shown(card(logprob_sum=-3.1, logprob_sum_after=None))


def test_a_long_text_is_folded_in_its_middle_and_keeps_every_letter() -> None:
    text = "\n".join(f"line {place} of a long text that goes on and on" for place in range(60)) + "\n<answer>1</answer>"
    html = text_html(with_text(text).completions[0], TextLook())
    begins, _, rest = html.partition("<details>")
    summary, _, rest = rest.partition("</summary>")
    middle, _, ends = rest.partition("</details>")
    assert shown(begins) + shown(middle) + shown(ends) == text
    assert "more characters" in summary
    assert shown(ends).endswith("<answer>1</answer>")
    assert shown(begins).count("\n") <= FOLDED_LINES // 2
    assert "<details>" not in text_html(with_text(text).completions[0], TextLook(full=True))


@pytest.mark.parametrize("text", ["x" * 3000, "a\n" * 300, "short\n" + "y" * 3000, " " * 2000, "word " * 600])
def test_folding_loses_nothing_whatever_the_lines_are_like(text: str) -> None:
    html = re.sub("<summary>.*?</summary>", "", text_html(with_text(text).completions[0], TextLook()))
    assert shown(html) == text
    assert "<details>" in html


def test_the_most_reinforced_come_first_and_those_without_advantage_last() -> None:
    given = [completion_of(place, 1.0, advantage) for place, advantage in enumerate((None, -1.0, 0.5, 0.0))]
    assert [one.index for one in order_of(given, by_advantage=True)] == [2, 3, 1, 0]
    assert order_of(given, by_advantage=False) == given


def conversation(*said: Turn) -> CompletionRecord:
    kept = [
        StoredTurn(role=one.role, length=len(one.stretch), tool=one.tool, trained=one.is_trained, failed=one.failed)
        for one in said
    ]
    text = joined(one.stretch for one in said)
    return with_text("a").completions[0].model_copy(update={"text": text, "turns": kept})


@pytest.mark.parametrize("text", HOSTILE)
def test_a_turn_is_shown_letter_by_letter_with_who_said_it(text: str) -> None:
    html = text_html(
        conversation(Turn("assistant", "I look."), Turn("tool", text, text[:200], failed=True)), TextLook(full=True)
    )
    assert shown(html) == f"assistantI look.tool {text} · error · not trained on{text}"
    assert set(re.findall("<[^>]*>", html)) == {
        '<div class="model-text turns">', '<div class="turn">', '<div class="turn untrained failed">',
        '<div class="who">', "</div>",
    }  # fmt: skip


def test_the_middle_of_a_long_conversation_is_folded() -> None:
    said = [Turn(role, f"turn {place}") for place in range(25) for role in ("assistant", "tool")]
    html = text_html(conversation(*said), TextLook())
    assert "⋯ 44 more turns ⋯" in html
    before, _, after = html.partition("<details>")
    assert before.count('class="turn') == 2
    assert after.partition("</details>")[2].count('class="turn') == 4
    assert text_html(conversation(*said), TextLook(full=True)).count('class="turn') == 50


def test_equal_texts_by_different_roles_are_not_equal() -> None:
    one, other = conversation(Turn("assistant", "a")), conversation(Turn("tool", "a"))
    assert [len(same) for same in equal_ones([one, other, one])] == [2, 1]


def test_a_conversation_is_compared_with_its_speakers() -> None:
    said = conversation(Turn("assistant", '{"a": 1}', "add"), Turn("tool", "2", "add"))
    assert as_text(said) == '── assistant calls add\nadd({"a": 1})\n── tool add\n2'


def test_a_card_without_weights_shows_the_advantage_and_the_total_or_says_that_it_is_missing() -> None:
    right, short = (RewardScore(name=name, raw=0.75, weight=None) for name in ("right", "short"))
    words = shown(card(rewards=[right], reward=None, advantage=0.5, token_count=0))
    for said in ("reward not recorded", "A +0.5", "0.75, weight not recorded", "length not recorded"):
        assert said in words
    assert "unscored" not in words
    for rewards, said in (([right], "right0.750.75total0.75"), ([right, short], "0.75, weight not recorded–total0.75")):
        words = shown(card(rewards=rewards, reward=0.75, advantage=0.5))
        assert "reward 0.75" in words
        assert said in words
