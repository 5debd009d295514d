import io
import unicodedata
import zipfile
from collections.abc import Callable, Iterator

import hostile
import pandas as pd
import pytest
import recorded
import yaml
from serving import Backend, one_for_all
from starlette.applications import Starlette
from starlette.testclient import TestClient

from backend.contract.trl_parser import read_trl
from dashboard.charts.comparison import View, comparison_figure
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_spec
from dashboard.charts.outcome import Group, Member, Stroke
from dashboard.charts.training import single, training_figure
from dashboard.components import pictures
from dashboard.components.pictures import Offered, offer, png, svg
from dashboard.downloads.routes import ROUTES, address, model_address

backend = pytest.fixture(one_for_all)  # what one test saves, no other reads


@pytest.fixture
def served(backend: Backend, dashboard_of: Callable[[str], None]) -> Iterator[TestClient]:
    dashboard_of(backend.url)
    with TestClient(Starlette(routes=ROUTES)) as client:
        yield client


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    made = recorded.queue(shared_backend.client)
    recorded.train(shared_backend.client, made, steps=2, total=2, prompts=2, group_size=4)
    return made


def test_tables_tokens_configuration_and_script_of_a_run_are_passed_on_as_the_backend_made_them(
    served: TestClient, backend: Backend, run_id: int
) -> None:
    assert yaml.safe_load(served.get(address(run_id, "configuration")).text) == backend.client.run(run_id).config

    for name, column in (("tokens", "token_logprob"), ("groups", "advantage")):
        answer = served.get(address(run_id, name))
        assert answer.content == b"".join(backend.client.export_table(run_id, name))
        assert column in set(pd.read_parquet(io.BytesIO(answer.content)))
    assert answer.headers["content-disposition"] == f'attachment; filename="run-{run_id}-groups.parquet"'

    answer = served.get(address(run_id, "trl"))
    assert answer.headers["content-disposition"] == f'attachment; filename="run-{run_id}-trl.py"'
    assert read_trl(answer.text, {}) == (backend.client.run(run_id).config, [])


def test_a_model_is_passed_on_as_it_arrives_and_one_that_the_backend_does_not_reach_says_where_it_lies(
    served: TestClient, backend: Backend, run_id: int
) -> None:
    store = (backend.home / "checkpoints").resolve()
    saved = recorded.checkpoint_of(1, 2, run_id)
    backend.client.checkpoint(run_id, saved.model_copy(update={"store": str(store)}))
    model = store / f"run-{run_id}" / "2" / "model"
    model.mkdir(parents=True)
    (model / "weights").write_bytes(b"w" * 3_000_000)
    with served.stream("GET", model_address(run_id, 2)) as answer:
        assert "content-length" not in answer.headers  # nobody has had the whole of it
        zipped = zipfile.ZipFile(io.BytesIO(answer.read()))
    assert zipped.read("weights") == b"w" * 3_000_000
    assert answer.headers["content-disposition"] == f'attachment; filename="run-{run_id}-step-2.zip"'

    elsewhere = recorded.queue(backend.client)
    recorded.train(backend.client, elsewhere, steps=2, total=2, prompts=1, group_size=2)
    saved = recorded.checkpoint_of(1, 2, elsewhere)
    backend.client.checkpoint(elsewhere, saved.model_copy(update={"store": "/of/another/machine"}))
    answer = served.get(model_address(elsewhere, 2))
    assert (answer.status_code, answer.headers["content-type"]) == (409, "text/plain; charset=utf-8")
    assert "lies in /of/another/machine" in answer.text
    assert "copy it from the worker's machine" in answer.text
    assert "content-disposition" not in answer.headers  # a browser shows it, instead of a failed download


def test_a_run_that_is_gone_or_of_a_backend_that_is_down_and_a_link_of_another_dashboard_give_no_file(
    served: TestClient, run_id: int, dashboard_of: Callable[[str], None]
) -> None:
    for link in (
        model_address(run_id, 2).replace(pictures.TICKET, "x" * 22),
        address(run_id, "lines").replace(pictures.TICKET, "x" * 22),
        f"/downloads/{pictures.TICKET}/{run_id}/token",
    ):
        assert served.get(link).status_code == 404

    answer = served.get(address(999, "lines"))
    assert (answer.status_code, "run 999" in answer.text) == (404, True)
    assert served.get(address(999, "trl")).status_code == 404

    dashboard_of("http://127.0.0.1:9")
    assert served.get(address(1, "lines")).status_code == 503


def test_a_page_offers_the_chart_that_it_drew_last_and_those_that_were_drawn_longest_ago_are_forgotten(
    served: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST", 2)
    figure = training_figure(single("reward"), {}, steps=3, weight=0.0)
    links = [offer(f"chart {place}", Offered(figure, "first", "reward"))["svg"] for place in range(4)]
    assert [served.get(link).status_code for link in links] == [404, 404, 200, 200]
    again = offer("chart 3", Offered(figure, "second", "reward"))
    answer = served.get(again["svg"])
    assert ">second</text>" in answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="reward.svg"'
    assert served.get(again["png"]).content.startswith(b"\x89PNG")


@pytest.mark.thorough
@pytest.mark.slow
def test_no_text_in_a_chart_can_end_the_process() -> None:
    invisible = (chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp"))
    rows = ["".join(invisible), "\ufdd0\ufffe\uffff\U0001fffe\U0010ffff"]
    names = [hostile.stored(name) for name in (*rows, *hostile.TEXTS)]
    table = pd.DataFrame({"x": 0.0, "value": 1.0, "smooth": 1.0, "label": names, "metric": names, "step": 0})
    figure = Figure(line_spec(Look(colours=tuple((name, "#4e79a7") for name in names))), table)
    assert svg(figure, title=hostile.stored(hostile.SHORT)).startswith("<svg")
    assert png(figure, title=names[0]).startswith(b"\x89PNG")


def test_a_picture_says_which_line_is_which_and_does_not_say_its_title_twice(backend: Backend, run_id: int) -> None:
    metrics = backend.client.metrics(run_id)
    lines = [
        Group(label, number, Stroke(colour), (Member(0, True, metrics, 8),))
        for number, (label, colour) in enumerate({"mine #1": "#4e79a7", "<b>\x1b theirs #2": "#f28e2b"}.items())
    ]
    compared = svg(
        comparison_figure("reward", lines, View("step", 0.0, log=False, steps=2, by_run=True), {0, 1}), title="Reward"
    )
    assert ">mine #1</text>" in compared
    assert ">&lt;b&gt;␛ theirs #2</text>" in compared
    assert ">step</text>" in compared
    alone = svg(training_figure(single("reward"), metrics.series, steps=2, weight=0.0), title="Reward")
    assert alone.count(">Reward</text>") == 1
