"""What docker-compose.yml and the files of deploy/ say agrees with the programs. Containers are started by `make test-containers`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings
from serving import TOKEN, Backend
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from typer.main import get_command

import backend.settings
import dashboard.settings
import worker.settings
from backend.cli import app
from backend.contract import protocol as p
from dashboard.server import Door
from worker import main

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTINGS: dict[str, type[BaseSettings]] = {
    "backend": backend.settings.Settings,
    "worker": worker.settings.Settings,
    "worker-gpu": worker.settings.Settings,
    "dashboard": dashboard.settings.Settings,
}
EACH = pytest.mark.parametrize("name", sorted(SERVICES))


@EACH
def test_the_command_is_one_that_groupscope_has_and_every_variable_a_setting_of_its_process(name: str) -> None:
    program, command, *options = SERVICES[name]["command"]
    assert program == "groupscope"
    known = get_command(app).commands[command]  # type: ignore[attr-defined]
    context = known.make_context(command, list(options))  # parses the options, runs nothing
    for option, value in zip(options[::2], options[1::2], strict=True):
        assert str(context.params[option.removeprefix("--")]) == value
    environment = SERVICES[name]["environment"]
    settings = {f"GROUPSCOPE_{field.upper()}" for field in SETTINGS[name].model_fields}
    assert {key for key in environment if key.startswith("GROUPSCOPE_")} <= settings
    assert environment["GROUPSCOPE_TOKEN"].startswith("${GROUPSCOPE_TOKEN:?"), "the token is required"


def stages() -> dict[str, str]:
    """The Dockerfile's stages by name, each without its first line."""
    return dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


@EACH
def test_the_image_is_a_stage_that_takes_only_what_was_installed_elsewhere_and_runs_without_rights(name: str) -> None:
    target = SERVICES[name]["build"]["target"]
    assert f"'.[{target}]'" in stages()[f"{target}-build"]
    needs, package, install, user, command = stages()[target].strip().splitlines()
    assert needs == f"COPY --from={target}-build /opt/groupscope /opt/groupscope"
    assert package == "COPY --from=package /package /package"
    assert install == "RUN pip install --no-deps --force-reinstall /package/*.whl"
    assert (user, command.split()[0]) == ("USER groupscope", "CMD")
    assert "apt-get" not in stages()[target] + stages()["base"]
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    arguments = SERVICES[name]["build"]["args"]
    assert set(arguments) == set(re.findall(r"^ARG (\w+)", DOCKERFILE, flags=re.MULTILINE))
    assert all(value.startswith("${") for value in arguments.values()), "what a build needs of its machine"


def test_there_is_a_service_for_each_process_and_only_the_dashboard_is_published_and_on_this_machine_only() -> None:
    assert set(SERVICES) == set(SETTINGS)
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["worker-gpu"], "it is on demand"
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"dashboard": ["127.0.0.1:${GROUPSCOPE_PORT:-8501}:8501"]}


def test_worker_and_dashboard_reach_the_backend_under_the_name_and_port_it_serves() -> None:
    options = SERVICES["backend"]["command"]
    port = options[options.index("--port") + 1]
    assert SERVICES["backend"]["environment"]["GROUPSCOPE_BACKEND_ALLOWED_HOSTS"] == "backend"
    for name in ("worker", "worker-gpu", "dashboard"):
        assert SERVICES[name]["environment"]["GROUPSCOPE_BACKEND_URL"] == f"http://backend:{port}"
        assert SERVICES[name]["depends_on"]["backend"]["condition"] == "service_healthy"


@EACH
def test_data_outlives_the_container_and_a_crash_is_repaired(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or source.startswith(("$", "."))


def check(name: str, environment: dict[str, str], replace: tuple[str, str] = ("", "")) -> int:
    """The exit code of a service's health check."""
    kind, program, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    command = [sys.executable, *(argument.replace(*replace) for argument in arguments)]
    known = os.environ | environment
    return subprocess.run(command, env=known, check=False, timeout=60, capture_output=True).returncode


def test_the_backends_health_check_tells_an_answering_backend_from_none(backend: Backend) -> None:
    assert check("backend", {}, ("http://127.0.0.1:8000", backend.url)) == 0
    assert check("backend", {}, ("http://127.0.0.1:8000", "http://127.0.0.1:9")) == 1


@pytest.mark.slow
def test_the_workers_health_check_asks_whether_the_backend_hears_from_it(backend: Backend) -> None:
    reach = {"GROUPSCOPE_BACKEND_URL": backend.url, "GROUPSCOPE_TOKEN": TOKEN}
    assert check("worker", reach) == 1
    name = f"{os.uname().nodename}-1"
    backend.client.ask(p.ClaimRequest(worker=p.WorkerInfo(name=name, device="CPU", store="/data")))
    assert check("worker", reach) == 0


def test_the_context_of_the_images_has_what_they_copy_and_no_data() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, flags=re.MULTILINE))
    assert {name for names in copied for name in names.split()} == allowed


@pytest.mark.parametrize(("given", "names"), [("", ()), ("box.lan, gpu.example", ("box.lan", "gpu.example"))])
def test_the_dashboard_answers_under_the_names_of_the_env_file_and_under_none_without_it(
    monkeypatch: pytest.MonkeyPatch, given: str, names: tuple[str, ...]
) -> None:
    value = SERVICES["dashboard"]["environment"]["GROUPSCOPE_DASHBOARD_ALLOWED_HOSTS"]
    assert value == "${GROUPSCOPE_DASHBOARD_ALLOWED_HOSTS:-}"
    monkeypatch.setenv("GROUPSCOPE_DASHBOARD_ALLOWED_HOSTS", given)
    allowed = dashboard.settings.Settings().dashboard_allowed_hosts
    assert allowed == names
    door = Door(Starlette(routes=[Route("/", lambda _: PlainTextResponse("ours"))]), names=allowed)
    with TestClient(door) as client:
        hosts = ("127.0.0.1", "box.lan", "evil.lan")
        statuses = {host: client.get("/", headers={"Host": host}).status_code for host in hosts}
    assert statuses == {"127.0.0.1": 200, "box.lan": 200 if names else 400, "evil.lan": 400}


# ---- deploy/

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def commands(path: Path) -> list[list[str]]:
    """The options of each `groupscope worker` in a file."""
    text = re.sub(r"\\\n|\n +(?=--)", " ", re.sub(r"#.*", "", path.read_text()))
    if path.parent.name == "kubernetes":
        pods = re.findall(r"args: \[groupscope, worker, (.*?)\]", text)
        return [[str(word) for word in yaml.safe_load(f"[{words}]")] for words in pods]
    return [shlex.split(words.replace("'", "")) for words in re.findall(r"groupscope worker (.*)", text)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_option_and_every_setting_is_there(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"GROUPSCOPE_{name.upper()}" for name in worker.settings.Settings.model_fields}
    assert set(re.findall(r"\bGROUPSCOPE_\w+", path.read_text())) <= names
    monkeypatch.setenv("GROUPSCOPE_HOME", str(tmp_path))
    for options in commands(path):
        # What a launcher fills in: numbers, and a host with a port.
        hosts = r"\$\(echo .*\)|\$\(POD_IP\)|\$SLURM_LAUNCH\w+|\$DSTACK_MASTER\w+"
        filled = [re.sub(r"\$\(?\{?\w+\}?\)?", "1", re.sub(hosts, "host", word)) for word in options]
        if "--node-rank" in filled and "--nodes" not in filled:
            filled += ["--nodes", "2"]
        if "--nodes" in filled:
            filled[filled.index("--nodes") + 1] = "2"
            filled += [] if "--rendezvous" in filled else ["--rendezvous", "host:1"]
        settings, _ = main._settings(filled)
        assert settings.once == ("--once" in options)
    assert commands(path) or path.name == "volume.yaml"
