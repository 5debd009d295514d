"""Every setting, route, metric and choice of an algorithm has its docs entry, and no entry is about what is gone."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr
from test_client import ROUTES

import dashboard.settings
import worker.settings
from backend.app import create_app
from backend.contract.algorithm import Algorithm
from backend.operations.place import Place
from backend.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMPOSE = set(re.findall(r"\$\{(GROUPSCOPE_\w+)", (ROOT / "docker-compose.yml").read_text()))
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def test_every_setting_has_a_heading() -> None:
    models = (Settings, Place, worker.settings.Settings, dashboard.settings.Settings)
    settings = {f"GROUPSCOPE_{name.upper()}" for model in models for name in model.model_fields}
    headings = re.findall(r"^### `(\w+)`$", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    assert sorted(headings) == sorted(settings | COMPOSE)


def test_every_route_has_a_line() -> None:
    lines = re.findall(r"^\| `((?:GET|POST|PATCH|PUT|DELETE) [^`]+)` \|", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(ROUTES | {"GET /healthz", "GET /metrics", "GET /api/v1/openapi.json"})


def test_every_metric_for_prometheus_has_a_line_and_alerts_name_no_other(tmp_path: Path) -> None:
    app = create_app(Settings(home=tmp_path, token=SecretStr("t" * 40)))
    app.build_middleware_stack()  # which counts requests
    families = [family for family in app.state.registry.collect() if family.name.startswith("groupscope_")]
    suffix = {"counter": "_total", "info": "_info"}
    known = {family.name + suffix.get(family.type, "") for family in families}
    page = (DOCS / "operations.md").read_text()
    table = "\n".join(line for line in page.splitlines() if line.startswith("| `groupscope_"))
    assert set(re.findall(r"`(groupscope_\w+)", table)) == known
    assert set(re.findall(r"groupscope_[a-z_]+", page)) <= known


def test_the_map_of_algorithms_names_every_choice_of_every_field_and_only_functions_that_there_are() -> None:
    page = (DOCS / "algorithms.md").read_text()
    schema = Algorithm.model_json_schema()
    fields = [field for model in (schema, *schema["$defs"].values()) for field in model["properties"].values()]
    choices = {word for field in fields for word in (*field.get("enum", []), field.get("const")) if word}
    named = set(re.findall(r"`(?:algorithm\.|kl\.)?(\w+)`", page))
    assert choices | set(schema["properties"]) <= named
    code = "".join(path.read_text() for path in (ROOT / "worker" / "algorithms").glob("*.py"))
    tables = re.findall(r"^\| name \|.*\| function \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)
    assert len(tables) == 2
    functions = {name for row in "".join(tables).splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[4])}
    assert functions <= set(re.findall(r"def (\w+)\(", code))


def test_decisions_are_numbered_and_say_what_was_rejected() -> None:
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for path in decisions:
        text = path.read_text()
        assert text.startswith((f"# {path.name[:4]} ", f"# {path.name[:4]}: "))
        assert all(part in text for part in ("**Context.**", "**Choice.**", "**Rejected.**")), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_are_there(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?://|#)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        there = page.parent / path
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), flags=re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target
    for named in re.findall(r"`((?:backend|worker|dashboard|tests|docs|scripts|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / named).exists(), named
