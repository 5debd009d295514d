"""The command line: what people type, and the one clear line when it cannot be done."""

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from acting import GRPO, SAMPLE, Actor, group
from serving import TOKEN, Backend
from typer.testing import CliRunner, Result

from backend.cli import app
from backend.contract.grpo import GrpoConfig

ROOT = Path(__file__).parents[2]
COMMANDS = ("up", "backend", "dashboard", "submit", "upload", "runs", "export", "backup", "restore", "doctor")


def groupscope(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def asked(backend: Backend, *arguments: object) -> Result:
    """What a command answers that reaches this backend with its token."""
    return groupscope(*arguments, "--backend", backend.url, "--token-file", "token")


def refused(ran: Result, words: str) -> None:
    assert (ran.exit_code, words in ran.output) == (1, True), ran.output


def environment(backend: Backend) -> dict[str, str]:
    """Of a process whose commands reach this backend."""
    reach = {"GROUPSCOPE_TOKEN": TOKEN, "GROUPSCOPE_BACKEND_URL": backend.url}
    return os.environ | reach | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from any .env and data directory; what a command exports is taken back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "wrong").write_text("wrong")
    for name in ("HOME", "TOKEN", "BACKEND_URL", "BACKEND_PORT"):
        monkeypatch.setenv(f"GROUPSCOPE_{name}", "")


@pytest.mark.parametrize("address", ["http://a:x", "http://[::1", f"http://{'a' * 300}", "http://xn--", "ftp://x"])
def test_an_address_that_cannot_be_one_is_named_in_one_line(address: str, tmp_path: Path) -> None:
    ran = groupscope("runs", "--token-file", tmp_path / "token", "--backend", address)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("groupscope: the backend")
    assert address in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.slow
def test_importing_the_command_line_needs_the_base_install_only() -> None:
    heavy = "fastapi sqlalchemy uvicorn torch transformers streamlit numpy pandas"
    code = f"import sys, backend.cli; print([name for name in {heavy.split()!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    assert groupscope(command, "--help").exit_code == 0


def test_a_worker_gets_its_options_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[list[str]]()
    monkeypatch.setattr(os, "execv", lambda program, arguments: ran.append(arguments[1:]))
    for options in (["--help"], ["--once", "--idle-exit", "30", "--token-file", "token"], []):
        assert groupscope("worker", *options).exit_code == 0
        assert ran.pop() == ["-m", "worker.main", *options]


def test_a_yaml_file_becomes_a_run_and_a_wrong_one_is_told_field_by_field(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kind: grpo\nsampling: {group_size: 4}\noptimizer: {learning_rate: 1e-4}\n")
    said = asked(backend, "submit", file, "--name", "mine")
    assert said.exit_code == 0, said.output
    [run] = backend.client.runs().items
    assert run.name == "mine"
    assert GrpoConfig.model_validate(run.config).sampling.group_size == 4
    assert "run 1 (mine) is queued: 6,400 completions" in said.output
    file.write_text("kind: grpo\nsampling: {group_size: 0}\nbudget: {steps: 0}\n")
    said = asked(backend, "submit", file)
    refused(said, "sampling.group_size: must be at least 1 (got 0)")
    assert "budget.steps: must be at least 1" in said.output
    assert backend.client.runs().items == [run]


def test_columns_are_taken_as_the_rows_show_them_and_what_only_a_person_knows_is_asked_with_a_code_of_its_own(
    backend: Backend, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    for names, code, words in (
        (("Frage", "Antwort"), 0, "prompt_column is Frage; answer_column is Antwort"),
        (("a", "b"), 3, "task.prompt_column: Which column holds the prompts? It may be a, b: choose one."),
    ):
        rows = [{names[0]: f"Was ist {n} und {n}?", names[1]: f"Es ist {2 * n}", "c": n} for n in range(20)]
        upload = backend.client.upload("x.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        file.write_text(f"kind: grpo\ntask: {{kind: dataset, source: 'upload:{upload.id}'}}\n")
        said = asked(backend, "submit", file)
        assert (said.exit_code, words in said.output) == (code, True), said.output
    [run] = backend.client.runs().items
    assert run.config["task"]["prompt_column"] == "Frage"  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "not readable YAML"),
        (b"- 1", "does not hold"),
        (b"a: 2020-01-01", "put the date 2020-01-01 in quotes"),
        (b"a: &a [*a]", "write that part out"),
        (b"a: " + b"[" * 3000, "flatten it"),
        (b"\xff", "YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_said_to_be_none(
    backend: Backend, tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    refused(asked(backend, "submit", file), words)


def test_runs_are_listed_without_samples_and_what_would_steer_the_terminal(backend: Backend) -> None:
    backend.client.create_run({"kind": "grpo"}, name="red \x1b[31m")
    backend.client.create_run(SAMPLE, name="tried before the launch")
    said = asked(backend, "runs")
    assert "\x1b" not in said.output
    assert "queued" in said.output
    assert "0/100" in said.output
    assert "tried" not in said.output


def test_an_export_is_no_text_for_a_terminal(backend: Backend) -> None:
    ours, theirs = pty.openpty()
    told = environment(backend)
    run = backend.client.create_run({"kind": "grpo"}, name="red \x9b31m")
    command = [sys.executable, "-m", "backend.cli", "export", str(run.id)]
    ended = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=told, text=True, check=False)
    os.close(theirs)
    with pytest.raises(OSError, match="Input/output"):  # nothing was written there
        os.read(ours, 1)
    os.close(ours)
    assert ended.returncode == 1
    assert "with -o" in ended.stderr
    piped = subprocess.run(command, capture_output=True, env=told, text=True, check=True)
    assert json.loads(piped.stdout.splitlines()[0])["run"]["name"] == "red \x9b31m"


@pytest.mark.slow
def test_an_export_is_whole_or_not_there(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.client.create_run({"kind": "grpo"}, name="mine")

    def exported(name: str, *what: object) -> bytes:
        said = asked(backend, "export", 1, *what, "-o", tmp_path / name)
        assert said.exit_code == 0, said.output
        return (tmp_path / name).read_bytes()

    assert all(isinstance(json.loads(line), dict) for line in exported("run.jsonl").splitlines())
    assert exported("m.parquet", "--what", "metrics").startswith(b"PAR1")
    assert b"</html>" in exported("r.html", "--what", "report")
    refused(asked(backend, "export", 2, "-o", tmp_path / "none.jsonl"), "There is no run 2")
    refused(asked(backend, "export", 1, "-o", tmp_path), "name a file in it")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, b""))
    broken = asked(backend, "export", 1, "--what", "report", "-o", tmp_path / "broken.html")
    refused(broken, "the report of run 1 was not made")
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "m.parquet", "r.html", "token", "wrong", "home"}


@pytest.mark.slow
def test_a_program_that_reads_the_beginning_of_an_export_ends_it_quietly(backend: Backend) -> None:
    actor = Actor(backend.client, "one")
    backend.client.create_run(GRPO)
    actor.begin()
    for step in range(40):
        actor.report(step, groups=[group(index, prompt_id="x" * 200) for index in range(40)])
    command = f"{sys.executable} -m backend.cli export 1 | head -c 10"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(backend), check=False)  # noqa: S607
    assert (len(ended.stdout), ended.stderr) == (10, b"")


def test_without_a_token_a_wrong_one_or_a_backend_one_line_says_what_to_do(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"a\0b")
    for arguments, words in (
        ((), "no token"),
        (("--backend", backend.url, "--token-file", "wrong"), "needs the backend's token"),
        (("--backend", "http://127.0.0.1:9", "--token-file", "token"), "does not answer"),
        (("--token-file", "none"), "holds no token"),
    ):
        said = groupscope("runs", *arguments)
        refused(said, words)
        assert len(said.output.strip().splitlines()) == 1
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "token").write_text(f"{TOKEN}\n")
    assert groupscope("runs", "--backend", backend.url, "--home", "there").exit_code == 0, "the file of the home"


@pytest.mark.parametrize("option", ["--port", "--backend-port"])
def test_up_says_which_port_is_taken(tmp_path: Path, option: str) -> None:
    other = {"--port": "--backend-port", "--backend-port": "--port"}[option]
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as spare:
        free = spare.getsockname()[1]
        spare.close()
        port = taken.getsockname()[1]
        said = groupscope("up", option, port, other, free, "--home", tmp_path / "home", "--no-browser")
    refused(said, f"port {port} cannot be used")
    assert option in said.output


@pytest.mark.slow
def test_a_folder_of_files_becomes_one_data_set_whose_rows_know_their_file(backend: Backend, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "easy.csv").write_text("question,answer\n1 + 1,2\n")
    (folder / "hard.jsonl").write_text('{"question": "17 * 23", "answer": "391"}\n')
    (folder / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    ran = asked(backend, "upload", folder, "--name", "sums")
    assert ran.stdout == "upload:3 (sums) has 2 rows with the columns source, question, answer\n"
    [upload] = backend.client.uploads()
    rows = backend.client.preview_upload(upload.id).rows
    assert [row["source"] for row in rows] == ["easy.csv", "hard.jsonl"]
    (folder / "odd.pdf").write_bytes(b"%PDF-1.7")
    ran = asked(backend, "upload", folder)
    advice = "Save it as CSV, JSON lines or Parquet, unpacked. (invalid)"
    assert (ran.exit_code, ran.stderr) == (1, f"groupscope: odd.pdf: The file is a PDF. {advice}\n")
    assert backend.client.uploads() == [upload]


@pytest.mark.slow
def test_of_a_folder_of_the_datasets_library_the_rows_are_taken_and_what_else_lies_there_is_said(
    backend: Backend, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    data = pa.table({"question": ["1 + 1"], "image": [{"bytes": b"\x89PNG", "path": "p"}]})
    for name in ("data-00000-of-00002.arrow", "data-00001-of-00002.arrow", "cache-1f.arrow"):
        with pa.ipc.new_stream(folder / name, data.schema) as file:
            file.write_table(data)
    (folder / "state.json").write_text(
        '{"_data_files": [{"filename": "data-00000-of-00002.arrow"}], "_fingerprint": "x"}'
    )
    (folder / "dataset_info.json").write_text("{}")
    ran = asked(backend, "upload", folder)
    assert ran.stdout.endswith(" has 2 rows with the columns question\n")
    beside = "Left out, since they hold no rows of their own: cache-1f.arrow, dataset_info.json, state.json"
    notes = [beside, "Left out, since they hold bytes, as of images or sounds: image"]
    assert ran.stderr.splitlines() == backend.client.uploads()[0].notes == notes
    alone = asked(backend, "upload", folder / "data-00001-of-00002.arrow")
    assert "Only 1 of the 2 files of the data set are here" in alone.stderr


def test_a_configuration_becomes_a_script_for_trl_and_one_again(tmp_path: Path) -> None:
    ours, theirs, back = (tmp_path / name for name in ("run.yaml", "script.py", "back.yaml"))
    ours.write_text("kind: grpo\nsampling: {group_size: 4}\nalgorithm: {dead_groups: resample}\n")
    assert groupscope("convert", ours, "-o", theirs).output == ""
    assert groupscope("convert", theirs, "-o", back).output == ""
    whole = GrpoConfig.model_validate(yaml.safe_load(ours.read_text())).model_dump(mode="json")
    assert yaml.safe_load(back.read_text()) == whole
    theirs.write_text("x = GRPOConfig(max_steps=5, min_p=\\\n0.5, temperature=hot())")
    said = groupscope("convert", theirs, "--base", back)
    assert "`temperature` is computed in line 2: set it here\n`min_p` 0.5 has no counterpart here" in said.stderr
    assert yaml.safe_load(said.stdout)["budget"]["steps"] == 5


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GRPOConfig(", "line 1: '(' was never closed; is it Python?"),
        (b"kind: grpo\nsampling: {group_size: 0}", "sampling.group_size: Input should be greater than or equal to 1"),
        (b"\xff", "text in UTF-8"),
    ],
)
def test_what_cannot_be_converted_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    refused(groupscope("convert", file), words)
