"""podman with a storage of its own: nothing that the tests make lies among the images and containers of this machine's user."""

import ast
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REAL = "docker.io/library/python:3.11-slim"
STAND_IN = "localhost/groupscope-stand-in:latest"


class Failed(AssertionError):
    """A command of the engine did not work; with what it printed."""


class Engine:
    """podman and podman-compose, by their command lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = os.environ | {
            "TMPDIR": str(folder),  # what pip fetched is kept for the next build
            "CONTAINERS_STORAGE_CONF": str(self._written("storage.conf", _storage(folder))),
            "CONTAINERS_CONF": os.environ.get("CONTAINERS_CONF")
            or str(self._written("containers.conf", _containers(folder))),
        }

    def podman(self, *arguments: str, timeout: float = 300) -> str:
        """What a command printed."""
        return self._run("podman", *arguments, timeout=timeout)

    def compose(self, *arguments: str, timeout: float = 300) -> str:
        """podman-compose on this repository's docker-compose.yml."""
        return self._run(str(Path(sys.executable).with_name("podman-compose")), *arguments, timeout=timeout)

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What podman knows of an image or a container."""
        found: dict[str, Any] = json.loads(self.podman(kind, "inspect", name))[0]
        return found

    def log(self, container: str) -> str:
        """The last lines of a container, most of which came as errors do."""
        return self._run("sh", "-c", f"podman logs --tail 200 {container} 2>&1", timeout=60)

    def base_image(self) -> str:
        """python:3.11-slim itself, or its stand-in."""
        try:
            self.podman("pull", "--quiet", REAL)
        except Failed:
            if not self.podman("images", "--quiet", STAND_IN).strip():
                self._run(str(Path(__file__).with_name("stand_in.sh")), STAND_IN, timeout=1200)
            return STAND_IN
        return REAL

    def build_arguments(self) -> str:
        """Mounts what pip reads on this machine, by its own configuration, so that it finds the same packages inside."""
        known = self._run(sys.executable, "-m", "pip", "config", "list", timeout=60)
        pairs = re.findall(r"^.*?\.([a-z-]+)=(.*)$", known, flags=re.MULTILINE)
        values = {key: " ".join(ast.literal_eval(value).split()) for key, value in pairs}
        lines = ["[global]", *(f"{key} = {value}" for key, value in values.items())]
        mounts = {self._written("pip.conf", "\n".join(lines)): "/etc/pip.conf"}
        words = (word.removeprefix("file://") for value in values.values() for word in value.split())
        folders = (word.removesuffix("/").removesuffix("/simple") for word in words if word.startswith("/"))
        mounts |= {Path(folder): folder for folder in folders if Path(folder).exists()}
        return " ".join(f"--volume {source}:{target}:ro" for source, target in mounts.items())

    def _written(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text + "\n")
        return self.folder / name

    def _run(self, *command: str, timeout: float) -> str:
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{' '.join(command)}\nended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def _storage(folder: Path) -> str:
    return f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"'


def _containers(folder: Path) -> str:
    """No more open files and processes than this machine allows; no systemd where none runs."""
    files, processes = (resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    most = int(Path("/proc/sys/kernel/pid_max").read_text())  # podman lowers its own limit to this one
    limits = [f"nofile={files}:{files}", "nproc={0}:{0}".format(min(processes % 2**64, most))]
    lines = ["[containers]", f"default_ulimits = {json.dumps(limits)}", "[engine]", f'tmp_dir = "{folder}/tmp"']
    if not Path("/run/systemd/system").exists():
        lines += ['cgroup_manager = "cgroupfs"', 'events_logger = "file"']
    return "\n".join(lines)
