"""The worker's settings: from GROUPSCOPE_* in the environment or `<home>/.env`, or from its command line."""

import fcntl
import os
import secrets
import socket
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backend.bucket.bucket import COPIES, Address
from backend.contract.home import DEFAULT, LISTED, OWN_REWARDS, Token, load, stored_token
from backend.contract.reward import Name, PythonFunction


class JudgeSettings(BaseModel):
    """An endpoint as the operator names it; requests go to <url>/chat/completions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: AnyHttpUrl
    model: Annotated[str, Field(min_length=1, max_length=200)]
    api_key_env: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0, le=1_000_000)] = 60.0
    max_concurrent: Annotated[int, Field(ge=1, le=64)] = 4
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0

    def shared_by(self, processes: int) -> "JudgeSettings":
        """One process's share of the limits."""
        concurrent, rate = max(1, self.max_concurrent // processes), self.requests_per_minute / processes
        return self.model_copy(update={"max_concurrent": concurrent, "requests_per_minute": rate})


# They hold secrets, or may: an address can hold a password.
_OF_EACH_MACHINE = ("judges", "vllm_url", "vllm_weights", "vllm_api_key")


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an `_Address`; one of IPv6 may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _of_a_port(address: str) -> str:
    if not 0 < host_and_port(address)[1] < 2**16:
        raise ValueError("a port is a number from 1 to 65535")
    return address


_Address = Annotated[str, Field(pattern=r"^[^/\s]+:\d+$"), AfterValidator(_of_a_port)]


class Settings(BaseSettings):
    """What a worker needs to know before it can ask for work; an empty variable counts as unset."""

    model_config = SettingsConfigDict(  # hides a wrong value: a judge's address may hold a password
        env_prefix="GROUPSCOPE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    home: Path = Field(DEFAULT, description="Data directory: checkpoints, spool, converted models.")
    backend_url: str = Field("http://127.0.0.1:8000", description="Where the backend answers.")
    token: Token | None = Field(None, description="The backend's token; the file <home>/token where it is not given.")
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] | None = Field(
        None,
        description="Where to compute: cpu, mps, cuda, or one card as cuda:1. Without it: the first card that no other worker of "
        "this machine has, else Apple's GPU, else the CPU.",
    )
    processes: Annotated[int, Field(ge=1, le=1024)] = Field(
        1,
        description="With as many processes this worker can train one run; with GPUs, each takes a card that no other worker has.",
    )
    once: bool = Field(False, description="End after one run; samples do not count.")
    idle_exit: Annotated[float, Field(ge=0)] | None = Field(
        None,
        description="End when nothing could be claimed for this many seconds; without it, the worker waits for work for ever.",
    )
    nodes: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="On as many machines it trains one run: each has a worker, with the same GROUPSCOPE_PROCESSES."
    )
    node_rank: Annotated[int, Field(ge=0)] = Field(
        0, description="Which of them this one is. Node 0 claims the runs; the others follow it."
    )
    rendezvous: _Address | None = Field(
        None, description="Where they meet: the name of node 0's machine and a port that is free there, as host:port."
    )
    executor: Literal["local", "ray"] = Field(
        "local", description="Where runs are trained: by this worker itself, or as jobs of a Ray cluster."
    )
    ray_address: _Address | None = Field(
        None, description="Where the Ray cluster answers, as host:port; 6379 is Ray's default port."
    )
    model_root: Path | None = Field(None, description="The folder below which local:<folder> models may lie.")
    spool_cap_bytes: int = Field(
        2 * 2**30, ge=2**20, description="The run fails when more than this waits for an absent backend."
    )
    loading_seconds: Annotated[float, Field(gt=0)] = Field(
        3600.0, description="A run fails when its task, its model or its rewards take longer to load."
    )
    silence_seconds: Annotated[float, Field(gt=0)] = Field(
        3600.0, description="A training run without a sign of life for longer goes on from its last checkpoint."
    )
    stop_seconds: Annotated[float, Field(gt=0)] = Field(
        30.0, description="A run that does not answer a stop for longer is ended, with the worker's process."
    )
    reward_functions: Annotated[tuple[PythonFunction, ...], NoDecode, LISTED, Field(max_length=256)] = Field(
        (), description="Python functions that rewards may name, as module:function, separated by commas."
    )
    reward_path: Path | None = Field(None, description="A folder that their modules are imported from.")
    judges: dict[Name, JudgeSettings] = Field(
        default_factory=dict,
        max_length=64,
        description="Judges that rewards may name: JSON, from a name to its endpoint.",
    )
    checkpoints: Address | None = Field(
        None, description="The bucket that checkpoints lie in, s3://bucket/prefix; the home by default."
    )
    checkpoint_copies_bytes: int = Field(
        50 * 2**30, ge=0, description="How much of the bucket this worker keeps on its disk, beside what its run needs."
    )
    vllm_url: AnyHttpUrl | None = Field(None, description="The vLLM server that runs may sample with.")
    vllm_weights: Path | None = Field(
        None, description="The folder through which it gets the weights; both see it under this path."
    )
    vllm_api_key: str | None = Field(None, description="What the server was started with as --api-key.")

    @model_validator(mode="after")
    def _vllm_gets_its_weights(self) -> "Settings":
        if self.vllm_url is not None and self.vllm_weights is None:
            raise ValueError(
                "GROUPSCOPE_VLLM_URL needs GROUPSCOPE_VLLM_WEIGHTS, the folder through which weights go there"
            )
        return self

    @model_validator(mode="after")
    def _ray_has_an_address(self) -> "Settings":
        if self.executor == "ray" and self.ray_address is None:
            raise ValueError("GROUPSCOPE_EXECUTOR=ray needs GROUPSCOPE_RAY_ADDRESS, as in head.example:6379")
        return self

    def to_send(self) -> "Settings":
        """These settings without secrets, and with a home that other machines find if they have the same folder."""
        kept = (*_OF_EACH_MACHINE, "token", "backend_url")
        plain = {name: Settings.model_fields[name].get_default(call_default_factory=True) for name in kept}
        return self.model_copy(update={**plain, "home": self.home.resolve()})

    def as_received(self) -> "Settings":
        """Settings that were sent, with those that did not come along from this machine's environment or `<home>/.env`.

        Raises CannotStart if they cannot be read.
        """
        own = load(Settings, home=self.home)
        return self.model_copy(update={name: getattr(own, name) for name in _OF_EACH_MACHINE})

    @model_validator(mode="after")
    def _nodes_meet(self) -> "Settings":
        if self.node_rank >= self.nodes:
            raise ValueError(f"GROUPSCOPE_NODE_RANK is {self.node_rank}, and the {self.nodes} nodes count from 0")
        if self.nodes * self.processes > 1024:
            raise ValueError(
                f"{self.nodes} nodes with GROUPSCOPE_PROCESSES={self.processes} are more than 1024 processes"
            )
        if self.nodes > 1 and self.rendezvous is None:
            raise ValueError("GROUPSCOPE_NODES needs GROUPSCOPE_RENDEZVOUS, as in node0.example:29400")
        if self.executor == "ray" and (self.nodes > 1 or self.once or self.idle_exit is not None):
            raise ValueError(
                "GROUPSCOPE_NODES, GROUPSCOPE_ONCE and GROUPSCOPE_IDLE_EXIT are for workers that train by themselves: leave them out, or "
                "GROUPSCOPE_EXECUTOR"
            )
        return self

    @property
    def own_store(self) -> Path:
        """The store in the home, used or not: this worker's name comes from it, too."""
        return self.home.resolve() / "checkpoints"

    @property
    def store(self) -> Path:
        """The folder of checkpoints: the store itself, or copies of what lies in the bucket."""
        return self.own_store if self.checkpoints is None else self.home.resolve() / COPIES

    @property
    def models(self) -> Path:
        """Where models that had to be converted are kept."""
        return self.home.resolve() / "models"

    @property
    def own_rewards(self) -> Path:
        """Where a person's own rewards lie."""
        return self.home.resolve() / OWN_REWARDS

    @property
    def judge_cache(self) -> Path:
        """What judges replied."""
        return self.home.resolve() / "judge-cache.sqlite"

    def read_token(self) -> str:
        """The token, from the settings or the home directory. Raises CannotStart if neither has one."""
        return self.token.get_secret_value() if self.token is not None else stored_token(self.home)


_LABEL = "store-id"


def store_name(checkpoints: Path) -> str:
    """The store's name: its path and a random id that lies in it.

    Two machines may use the same path for different disks, and only one of them can resume what lies there.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    label = checkpoints / _LABEL
    if not label.exists():
        partial = checkpoints / f".store-id.{secrets.token_hex(8)}.partial"
        partial.write_text(secrets.token_hex(4))
        try:
            os.link(partial, label)  # whole at once: a worker that starts beside this one reads the same
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    return f"{checkpoints}#{label.read_text().strip()}"


def is_store(checkpoints: Path, store: str) -> bool:
    """Whether the store of this name lies there."""
    try:
        return store.endswith(f"#{(checkpoints / _LABEL).read_text().strip()}")
    except OSError:
        return False


def take_name(home: Path, store: str) -> tuple[str, IO[str]]:
    """A worker name that nobody else has now, and the lock that holds it: the machine, its store, a number.

    It is the same after a restart, so that a worker stays one line on the screen and finds its own spool.
    """
    folder = home / "workers"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        lock = (folder / f"{number}.lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return f"{socket.gethostname()}-{store[-4:]}-{number}", lock
    raise RuntimeError(f"a thousand workers hold locks in {folder}")
