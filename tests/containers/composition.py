"""docker-compose.yml's services, as a user starts them, under a name of the tests' own."""

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engine import Engine, Failed
from processes import free_port

PROJECT = "groupscope-test"
SERVICES = ("backend", "worker", "dashboard")
PATIENCE = 180.0


def wait_until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Poll once a second, until the deadline."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience:.0f} s: {what}")
        time.sleep(1)


class Composition:
    """The services, their containers and their data."""

    def __init__(self, engine: Engine, base_image: str) -> None:
        self._engine = engine
        self._port = free_port()
        file = engine.folder / "env"
        models = engine.folder / "models"
        models.mkdir(exist_ok=True)
        lines = {"TOKEN": secrets.token_hex(32), "PORT": self._port, "BASE_IMAGE": base_image, "MODELS": models}
        file.write_text("".join(f"GROUPSCOPE_{name}={value}\n" for name, value in lines.items()))
        build = engine.build_arguments()
        self._compose = ("-p", PROJECT, "--env-file", str(file), f"--podman-build-args={build}")
        self.url = f"http://127.0.0.1:{self._port}"

    def build(self, service: str) -> None:
        """Build a service's image."""
        self._run("build", service, timeout=3600)

    def image(self, service: str) -> dict[str, Any]:
        """What podman knows of a service's image."""
        return self._engine.inspect("image", f"{PROJECT}_{service}")

    def in_image(self, service: str, script: str) -> str:
        """What a shell prints in a container of the image that has nothing else: no network, no data."""
        image = f"{PROJECT}_{service}"
        return self._engine.podman("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script)

    def up(self) -> None:
        """Start every service; what health checks are for, podman's own clock does only under systemd."""
        self._run("up", "--detach", "--no-build", "backend")
        self.wait_for_health("backend")
        self._run("up", "--detach", "--no-build")
        for service in SERVICES:
            self.wait_for_health(service)

    def wait_for_health(self, service: str) -> None:
        wait_until(lambda: self.healthy(service), f"{service} is healthy\n{self.log(service)}")

    def healthy(self, service: str) -> bool:
        """Run the service's health check."""
        try:
            self._engine.podman("healthcheck", "run", self.container(service))
        except Failed:
            return False
        return True

    def container(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def inspect(self, service: str) -> dict[str, Any]:
        return self._engine.inspect("container", self.container(service))

    def exec(self, service: str, *command: str) -> str:
        return self._engine.podman("exec", self.container(service), *command)

    def records(self, run_id: int) -> list[dict[str, Any]]:
        """What `groupscope export` writes of a run, called where the dashboard runs."""
        return [json.loads(line) for line in self.exec("dashboard", "groupscope", "export", str(run_id)).splitlines()]

    def log(self, service: str) -> str:
        return self._engine.log(self.container(service))

    def stop(self) -> dict[str, int]:
        """Stop and remove the containers, and keep their data. How each ended: 137 was killed after its grace period."""
        self._run("stop")
        ended = {service: int(self.inspect(service)["State"]["ExitCode"]) for service in SERVICES}
        self._run("down")
        return ended

    def remove(self) -> None:
        """The data, too; the logs are kept."""
        for service in SERVICES:
            with suppress(Failed):
                (self._engine.folder / f"{service}.log").write_text(self.log(service))
        self._run("down", "--volumes")

    def _run(self, *arguments: str, timeout: float = 300) -> str:
        return self._engine.compose(*self._compose, *arguments, timeout=timeout)
