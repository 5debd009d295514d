"""A Slurm of two nodes on this machine: munge, the controller and two node daemons, in a folder of their own."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from processes import death_of, free_port, kill, wait_until, watch

ROOT = Path(__file__).parents[2]
NODES = ("node1", "node2")
# A job that waits again is not started before its old credential has expired, which takes two minutes by default.
_CONF = """
ClusterName=groupscope
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
MpiDefault=none
SlurmdParameters=config_overrides
GresTypes=gpu
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=8000 Gres=gpu:1\n"
_PARTITIONS = """
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


class Cluster:
    """Its daemons, while it is entered, and Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state", "munge", *NODES):
            (folder / name).mkdir(parents=True, mode=0o700)
        host = socket.gethostname().partition(".")[0]
        conf = _CONF.format(folder=folder, host=host, port=free_port())
        conf += "".join(_NODE.format(name=name, host=host, port=free_port()) for name in NODES)
        (folder / "slurm.conf").write_text(conf + _PARTITIONS)
        (folder / "gres.conf").write_text("Name=gpu File=/dev/zero\n")
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._forget = dict[str, Callable[[], None]]()

    def __enter__(self) -> "Cluster":
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_all(self) -> None:
        munge = self.folder / "munge"
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._start("munged", "--foreground", "--force", *(f"--{name}={munge / file}" for name, file in files.items()))
        wait_until((munge / "socket").exists, "munged listens")
        self._start("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)

    def __exit__(self, *_: object) -> None:
        for name in reversed([*self.daemons]):
            self.kill(name)

    def start_node(self, node: str) -> None:
        """A node's daemon; returns when Slurm gives it jobs."""
        self._start(node, "-D", "-N", node, program="slurmd")
        wait_until(lambda: self.command("sinfo", "-hNn", node, "-o", "%t").split()[:1] == ["idle"], f"{node} is idle")

    def _start(self, name: str, *arguments: str, program: str | None = None) -> None:
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen([program or name, *arguments], env=self.environment, stdout=out, stderr=out)
        self.daemons[name] = process
        self._forget[name] = watch(lambda: death_of(process, log))

    def kill(self, name: str) -> None:
        """A daemon and, of a node, all that runs there, as when a machine loses its power."""
        self._forget.pop(name)()
        daemon = self.daemons.pop(name)
        kill(daemon)
        for process in self._jobs(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _jobs(self, node: str) -> list[psutil.Process]:
        """What the jobs on a node run, and Slurm's processes over it, which have no parent."""
        found = list[psutil.Process]()
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                environment = process.environ()
                if (
                    environment.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                    and environment.get("SLURMD_NODENAME") == node
                ):
                    over = process.parent()
                    found += [over, process] if over is not None and "slurmstepd" in over.name() else [process]
        return found

    def command(self, *command: str, **environment: str) -> str:
        """What one of Slurm's commands prints; what went wrong if it fails."""
        ran = subprocess.run(command, env=self.environment | environment, capture_output=True, text=True, check=False)
        return ran.stdout if ran.returncode == 0 else ran.stderr

    def submit(self, *job: str, **environment: str) -> str:
        """Submit a job as a person would, with Groupscope's command in the path; its number."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        printed = self.command("sbatch", "--parsable", *job, PATH=path, PYTHONPATH=str(ROOT), **environment).strip()
        assert printed.isdigit(), printed
        return printed

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job: JobState, ExitCode, Restarts, BatchHost …"""
        words = self.command("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)
