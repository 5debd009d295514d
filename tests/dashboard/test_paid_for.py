"""The tab that says what the reward pays for, against a real backend."""

from acting import GRPO
from hostile import SCRIPT, STREAMLIT
from on_screen import Open, shown, texts
from planted import trained
from serving import Backend


def paid_for_a_phrase(text: str, _place: int) -> float:
    return float("expert" in text)


def test_the_sentence_names_what_is_paid_for_over_a_window_of_the_address_or_says_that_there_is_too_little(
    open_page: Open, backend: Backend
) -> None:
    phrase = trained(backend, paid_for_a_phrase)
    at = open_page("run", id=phrase, tab="paid for")
    assert "the total reward goes most with the phrase “as an expert”" in texts(at)
    assert "got 1.00 more (the same in all groups)" in texts(at)
    assert next(iter(at.dataframe[0].value["property"])) == "the phrase “as an expert”"
    assert "expert" in at.code[0].value
    assert "expert" not in at.code[1].value

    at = open_page("run", id=phrase, tab="paid for", reward="truth", window_from=4, window_to=11)
    assert "Over steps 4 to 11" in texts(at)
    assert "32 groups" in texts(at)
    at.number_input(key="window_to").set_value(7).run()
    assert "Over steps 4 to 7" in texts(at)

    run = trained(backend, paid_for_a_phrase, steps=1)
    assert "Too little to say" in shown(open_page("run", id=run, tab="paid for"))
    empty = backend.client.create_run(GRPO).id
    assert "No groups yet" in shown(open_page("run", id=empty, tab="paid for"))


def test_what_a_model_wrote_is_never_markup(open_page: Open, backend: Backend) -> None:
    hostile = f"{SCRIPT} {STREAMLIT}"
    run = trained(
        backend,
        lambda text, _: float(hostile in text),
        phrase=hostile,
        steps=24,
        expert=lambda step: max(0.0, (step - 4) / 20),
        truth=lambda *_: 0.0,
    )
    at = open_page("run", id=run, tab="paid for")
    said = "\n".join(str(one.value) for kind in (at.markdown, at.caption, at.info) for one in kind)
    assert "takes over what is rewarded" in said
    assert not [text for text in (SCRIPT, STREAMLIT, "<script>", ":red[alarm]") if text in said]
    assert any(hostile in str(one.value) for one in at.code)
