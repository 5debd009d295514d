"""Text that other people or models wrote is shown as it is: it lands in code, text and table cells, never in markup."""

import re
from collections.abc import Iterator

import pytest
import recorded
from on_screen import Open
from serving import Backend
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block, Element

from backend.contract import protocol as p
from backend.contract.records import RunError
from dashboard.text import marked, one_line, unturned

SCRIPT, IMAGE, MATHS, COLOUR = "<script>alert(1)</script>", "![x](http://evil.example/x.png)", "$x^2$", ":red[alarm]"
HOSTILE = f"{SCRIPT} {IMAGE} {MATHS} {COLOUR} \x1b[31mred\x1b[0m \u202etxet desrever\u202c\n# heading"
PLAIN = {"code", "text", "dataframe", "arrow_data_frame", "text_area", "multiselect"}


def elements(node: Block | Element) -> Iterator[Block | Element]:
    yield node
    if isinstance(node, Block):
        for child in node.children.values():
            yield from elements(child)  # type: ignore[arg-type]


def hostile_places(at: AppTest) -> set[str]:
    """The kinds of elements in which hostile text stands unescaped."""
    places = set()
    for element in elements(at._tree):  # AppTest has no public walk over every kind of element
        data = element.proto.SerializeToString() if getattr(element, "proto", None) is not None else b""
        if any(text.encode() in data for text in (SCRIPT, IMAGE, MATHS, COLOUR)):
            places.add(element.type)
    return places


@pytest.fixture
def run_id(backend: Backend) -> int:
    """A failed run in which everything that can be hostile is."""
    made, claimed = recorded.started(backend.client, HOSTILE[:190])
    group = recorded.group_of(0, [1.0, 0.1, None, 0.0], texts=[HOSTILE] * 4, prompt=HOSTILE)
    broken = group.completions[2]
    score = broken.rewards[0].model_copy(update={"error": HOSTILE})
    completions = [*group.completions[:2], broken.model_copy(update={"rewards": [score]}), group.completions[3]]
    group = group.model_copy(update={"answer": HOSTILE, "completions": completions})
    logs = [p.LogLine(level="error", message=HOSTILE)]
    report = p.Report(attempt=claimed.attempt, seq=0, step=0, groups=[group], logs=logs, metrics={"reward": 0.5})
    backend.client.report(made, report)
    backend.client.checkpoint(made, recorded.checkpoint_of(claimed.attempt, 1, made))
    recorded.fail(backend.client, made, claimed, RunError(code="reward_errors", message=HOSTILE, details=HOSTILE))
    return made


def test_no_page_renders_what_others_wrote_nor_passes_a_message_of_a_log_for_a_line_of_its_own(
    open_page: Open, backend: Backend, run_id: int
) -> None:
    for tab in ("overview", "groups", "configuration", "log", "checkpoints"):
        places = hostile_places(open_page("run", id=run_id, tab=tab))
        assert {"text", "code"} <= places <= PLAIN, tab  # the name and the error are there, as they are
    head = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d  ")
    codes = [code.value for code in open_page("run", id=run_id, tab="log").code]
    [shown] = [code.splitlines() for code in codes if head.match(code)]
    others = [line for line in shown if not head.match(line)]
    assert len(shown) - len(others) == len(backend.client.logs(run_id).items)
    assert others != []
    assert all(line.startswith(" " * 20) for line in others)

    at = open_page("group", id=backend.client.groups(run_id).items[0].id)
    places = hostile_places(at)
    assert places == {"code", "text", "html"}  # the prompt; the run's name; the cards, which escape
    for element in (*at.code, *at.get("html")):
        assert not {"\u202e", "\x1b"} & set(element.value)
    assert not any(SCRIPT in element.value or "\n#" in element.value for element in at.get("html"))

    # a chart's legend and tooltip write labels as text; the specification alone carries them
    assert hostile_places(open_page("compare", runs=run_id)) <= PLAIN | {"vega_lite_chart"}


def test_control_characters_lose_their_power_and_letters_of_every_alphabet_stay_as_they_are() -> None:
    assert unturned("a\x1b[0m\u202eb\n\tc") == "a␛[0m⟦RLO⟧b\n\tc"
    assert marked("a b\r\n") == "a·b␍⏎\n"
    assert one_line("a\r\nb\tc\x7f") == "a⏎b⇥c␡"

    text = "naïve Ελλάδα שלום 漢字 👩‍🔬"
    assert unturned(text) == one_line(text) == text
