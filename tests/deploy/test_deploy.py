"""The files of deploy/, by what their launchers read them with: Kubernetes' published schemas, SkyPilot's and dstack's own parsers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.deploy

DEPLOY = Path(__file__).parents[2] / "deploy"
LAUNCHERS = Path(os.environ.get("GROUPSCOPE_TEST_LAUNCHERS", ".launchers")).resolve()


def judged(
    launcher: str, code: str, what: object, tmp_path: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a launcher's code makes of `what`, in its own environment and with a home of its own."""
    return subprocess.run(
        [LAUNCHERS / launcher / "bin" / "python", "-c", code],
        input=json.dumps(what),
        capture_output=True,
        text=True,
        check=False,
        cwd=DEPLOY.parent,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], **environment},
        timeout=240,
    )


KUBERNETES = """
import json, sys, kubernetes_validate as k
for one in json.load(sys.stdin):
    k.validate(one, k.latest_version(), strict=True)
"""
SKYPILOT = """
import json, os, sys, sky
from sky.catalog.common import get_catalog_path
names = get_catalog_path("common/accelerators.csv")  # which it would fetch
os.makedirs(os.path.dirname(names))
open(names, "w").write("AcceleratorName,Clouds\\nH100,['AWS']\\n")
task = sky.Task.from_yaml_config(json.load(sys.stdin), env_overrides=[("GROUPSCOPE_BACKEND_URL", "http://x")], secrets_overrides=[("GROUPSCOPE_TOKEN", "t")])
task.validate()
print(json.dumps([task.num_nodes, [r.job_recovery for r in task.resources], task.run]))
"""
DSTACK = """
import json, sys
from dstack._internal.core.models.configurations import parse_apply_configuration
read = parse_apply_configuration(json.load(sys.stdin))
print(json.dumps([read.nodes or 1, read.commands, read.retry.duration]))
"""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def pod_templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a RayCluster, as what Kubernetes has a schema of: KubeRay's own says of a template only what this one says."""
    spec = document["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [{"apiVersion": "v1", "kind": "PodTemplate", "template": group["template"]} for group in groups]


@pytest.mark.parametrize("name", ["volume.yaml", "worker.yaml", "nodes.yaml"])
def test_kubernetes_has_every_field(name: str, tmp_path: Path) -> None:
    read = judged("kubernetes-validate", KUBERNETES, documents(f"kubernetes/{name}"), tmp_path)
    assert read.returncode == 0, read.stderr


def test_kubernetes_has_every_field_of_a_ray_clusters_pods(tmp_path: Path) -> None:
    [cluster] = documents("kubernetes/ray.yaml")
    read = judged("kubernetes-validate", KUBERNETES, pod_templates(cluster), tmp_path)
    assert read.returncode == 0, read.stderr


def test_a_field_that_kubernetes_does_not_have_is_noticed(tmp_path: Path) -> None:
    [job] = documents("kubernetes/worker.yaml")
    job["spec"]["template"]["spec"]["terminationGrace"] = 300
    assert "terminationGrace" in judged("kubernetes-validate", KUBERNETES, [job], tmp_path).stderr


@pytest.mark.parametrize(("name", "nodes"), [("worker", 1), ("nodes", 2)])
def test_skypilot_reads_the_task(name: str, nodes: int, tmp_path: Path) -> None:
    [task] = documents(f"skypilot/{name}.yaml")
    read = judged("skypilot", SKYPILOT, task, tmp_path, SKYPILOT_DISABLE_USAGE_COLLECTION="1")
    assert read.returncode == 0, read.stderr
    count, [recovery], run = json.loads(read.stdout.splitlines()[-1])
    assert (count, recovery["recover_on_exit_codes"]) == (nodes, [75, 143])
    assert run == task["run"]


@pytest.mark.parametrize(("name", "nodes"), [("worker", 1), ("nodes", 2)])
def test_dstack_reads_the_task(name: str, nodes: int, tmp_path: Path) -> None:
    [task] = documents(f"dstack/{name}.dstack.yml")
    read = judged("dstack", DSTACK, task, tmp_path)
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout.splitlines()[-1]) == [nodes, task["commands"], 2 * 24 * 3600]
