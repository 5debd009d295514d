"""What the images carry, and what they do not."""

import json
import subprocess
from collections.abc import Callable

import pytest
from composition import SERVICES, Composition
from engine import ROOT, Engine

COMPILERS = "cc c++ gcc g++ c99 cpp clang clang++ tcc make cmake ninja ld as ar rustc cargo go"
LIMIT = 1500.0  # MB beside torch
SITE = "/opt/groupscope/lib/python3*/site-packages"
TORCH = f"{SITE}/torch {SITE}/torch-*.dist-info {SITE}/nvidia* {SITE}/triton* {SITE}/cuda*"
pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]  # the first of them builds the images

EACH = pytest.mark.parametrize("service", SERVICES)

FIND_COMPILERS = (
    f"for name in {COMPILERS}; do command -v $name; done; find / -xdev -name 'cc1*' -o -xdev -name 'libc.a'"
)


def test_the_image_that_they_are_built_on_has_no_compiler_either(engine: Engine, base_image: str) -> None:
    assert engine.podman("run", "--rm", "--network", "none", base_image, "sh", "-c", f"{FIND_COMPILERS}; true") == ""


@EACH
def test_a_final_stage_has_no_compiler_and_is_under_1500_mb_beside_torch(
    composition: Composition, service: str, figure: Callable[[str], None]
) -> None:
    assert composition.in_image(service, f"{FIND_COMPILERS}; true") == ""

    whole = composition.image(service)["Size"] / 1e6
    torch = float(composition.in_image(service, f"du -scB1 {TORCH} 2>/dev/null | tail -n 1 | cut -f 1")) / 1e6
    figure(f"{service}: {whole - torch:.0f} MB beside torch, torch {torch:.0f} MB")
    assert (torch > 0) == (service == "worker")
    assert whole - torch < LIMIT


@EACH
def test_an_image_runs_as_a_user_without_rights_whose_data_nobody_else_reads(
    composition: Composition, service: str
) -> None:
    shown = composition.in_image(service, "id -u; stat -c '%u %a' /data; touch /opt/groupscope/x 2>&1 || true")
    user, data, touched = shown.splitlines()
    assert (user, data) == ("10001", "10001 700")
    assert "Permission denied" in touched


@EACH
def test_an_image_has_every_file_of_the_repository_and_nothing_of_the_machine_that_built_it(
    composition: Composition, service: str
) -> None:
    command = ["git", "ls-files", "backend", "worker", "dashboard", "groupscope"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # git from the path
    installed = composition.in_image(
        service, f"cd {SITE} && find backend worker dashboard groupscope -type f"
    ).splitlines()
    assert set(listed.stdout.split()) - set(installed) == set()

    """Neither pip's configuration, which may hold a password, nor a build's variables."""
    assert (
        composition.in_image(service, "cat /etc/pip.conf 2>/dev/null; ls -A /source /root/.cache 2>/dev/null; true")
        == ""
    )
    environment = composition.image(service)["Config"]["Env"]
    assert not [line for line in environment if line.startswith(("PIP_ARGS", "GROUPSCOPE_TOKEN"))], json.dumps(
        environment
    )
