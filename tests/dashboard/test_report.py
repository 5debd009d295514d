import json
import re
from html.parser import HTMLParser

import pytest
import recorded
from scored import one_step
from serving import Backend

from backend.contract.records import Series
from dashboard.charts.training import single, training_figure
from dashboard.components.pictures import _whole, png, svg
from dashboard.downloads.report import gather, report

HOSTILE = ["<script>alert(1)</script>", "![x](http://evil.example/x.png)", "\x1b[2J\x00\u202edesrever", "$a$ **b**"]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href") or str(value).startswith("#")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_report_has_the_charts_and_the_widest_groups_and_fetches_nothing(backend: Backend) -> None:
    run_id = recorded.queue(backend.client, "<b>mine</b>", budget={"steps": 4})
    recorded.train(backend.client, run_id, steps=4, total=4, prompts=3, group_size=4)
    page = report(gather(backend.client, run_id))
    parsed = Tags()
    parsed.feed(page)
    assert "<b>mine</b>" in parsed.text
    assert not parsed.tags & {"script", "img", "link", "iframe"}
    assert page.count("<svg") >= 8
    group = backend.client.groups(run_id, step=3, sort="-reward_std", limit=1).items[0]
    assert all(one.text in parsed.text for one in backend.client.group(group.id).completions)
    assert "learning_rate" in parsed.text


@pytest.mark.thorough
def test_a_run_that_ends_with_dead_groups_alone_still_shows_its_widest_live_ones_of_both_ends(backend: Backend) -> None:
    run_id, claim = recorded.started(backend.client)
    half, few, all_right = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0] * 4
    for seq, rewards in enumerate([(all_right, all_right), (few, half), (half, all_right), (all_right, all_right)]):
        groups = [recorded.group_of(index, totals) for index, totals in enumerate(rewards)]
        recorded.report(backend.client, run_id, claim.attempt, seq, groups)
    chosen = {(one.group.step, one.group.index): one.why for one in gather(backend.client, run_id, ["examples"]).groups}
    assert chosen == {
        (1, 1): "widest spread, highest mean of the live ones",
        (1, 0): "lowest mean of the live ones",
        (2, 0): "widest spread, highest mean of the live ones, lowest mean of the live ones",
        (3, 0): "newest dead one",
    }


def test_bookmarked_groups_are_in_the_report_with_their_notes_and_hostile_texts_are_text(backend: Backend) -> None:
    groups = [recorded.group_of(index, [1.0, 0.1, 0.0, 0.9], texts=HOSTILE) for index in range(2)]
    run_id = one_step(backend.client, groups)
    first = backend.client.groups(run_id, sort="index").items[0]
    backend.client.people.bookmark(first.id, "look <i>here</i>")
    parsed = Tags()
    page = report(gather(backend.client, run_id))
    parsed.feed(page)
    assert "look <i>here</i>" in parsed.text
    assert "script" not in parsed.tags
    assert HOSTILE[0] in parsed.text
    assert HOSTILE[1] in parsed.text
    assert not re.search(r"[\x00\x1b\u202e]", page)


@pytest.mark.slow
def test_a_chart_is_a_png_too() -> None:
    figure = training_figure(single("reward"), {}, steps=3, weight=0.0)
    assert png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("scale", [3e-11, 1.26e-300, 1e300])
def test_a_picture_has_small_and_large_numbers_as_they_were_measured(scale: float) -> None:
    values = [scale * (1 + 0.3 * (step % 3)) for step in range(8)]
    series = {"learning_rate": Series(step=list(range(9)), value=[*values, None])}
    figure = training_figure(single("learning_rate"), series, steps=9, weight=0.0)
    rows = json.loads(json.dumps(_whole(figure, 400, "")))["datasets"]["source"]
    assert [row["value"] for row in rows if row["value"] is not None] == values
    assert svg(figure)
