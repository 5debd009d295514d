"""What the files of deploy/ ask of `groupscope worker`, it can do."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from worker import main
from worker.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
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
    names = {f"GROUPSCOPE_{name.upper()}" for name in Settings.model_fields}
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
