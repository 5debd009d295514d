"""The command `groupscope`. Importing it needs the base install only: each command imports what it runs."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from pydantic import ValidationError

from backend.contract import yaml_text
from backend.contract.base import Json
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.connection import Connection
from backend.contract.grpo import GrpoConfig
from backend.contract.home import CannotStart, load, system_words, token_in
from backend.contract.records import MOST_PARTS
from backend.contract.trl_parser import is_trl, read_trl
from backend.contract.trl_script import script_of, trl_script

if TYPE_CHECKING:
    from backend.operations.backup import BackedUp
    from groupscope.files.tally import Tally

_ASKED = 3  # exit code: only a person can say which column is what
_SHOWN_EVERY = 0.5  # seconds, of an import's progress

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Groupscope: configure, queue and train GRPO runs, and see every sampled group.",
)

What = Literal["all", "groups", "tokens", "metrics", "report", "trl"]
Backend = Annotated[str | None, typer.Option(help="The backend's address (GROUPSCOPE_BACKEND_URL).")]
# no option takes the token itself: every user of a machine can read its command lines
TokenFile = Annotated[
    Path | None, typer.Option(help="A file with the backend's token (GROUPSCOPE_TOKEN, else <home>/token).")
]
Home = Annotated[Path | None, typer.Option(help="The data directory (GROUPSCOPE_HOME, else ./.groupscope).")]


@app.command()
def up(
    port: Annotated[int, typer.Option(help="The dashboard's port.", min=1, max=65_535)] = 8501,
    backend_port: Annotated[
        int | None, typer.Option(help="The backend's port (GROUPSCOPE_BACKEND_PORT, else 8000).", min=1, max=65_535)
    ] = None,
    home: Home = None,
    browser: Annotated[bool, typer.Option(help="Open the dashboard.")] = True,
    quickstart: Annotated[bool, typer.Option(help="Queue a first run where there is none.")] = True,
) -> None:
    """Start backend, worker and dashboard on this machine; one Ctrl-C stops all three."""
    _require("backend", "uvicorn")
    _require("worker", "torch")
    _require("dashboard", "streamlit")
    from backend.settings import Settings
    from backend.up import Up, run

    _export(home=home, backend_port=backend_port)
    with _plain_errors():
        run(Up(load(Settings), port, browser, quickstart), typer.echo)


@app.command()
def view(
    path: Annotated[Path, typer.Argument(help="The folder, or file, into which another trainer writes.", exists=True)],
    port: Annotated[
        int | None, typer.Option(help="The dashboard's port; 8501 if it is free, else another.", min=1, max=65_535)
    ] = None,
    backend_port: Annotated[
        int | None, typer.Option(help="The backend's port; 8000 if it is free, else another.", min=1, max=65_535)
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(help="The data directory; by default one for this folder, in ~/.local/share/groupscope/view."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the dashboard.")] = True,
) -> None:
    """Show the runs in a folder of another trainer, and follow them: backend and dashboard, without a worker."""
    _require("backend", "uvicorn")
    _require("dashboard", "streamlit")
    from backend.settings import Settings
    from backend.up import Up, free_port, run, view_home

    with _plain_errors():
        _export(home=home or view_home(path), backend_port=backend_port or free_port(8000))
        run(Up(load(Settings), port or free_port(8501), browser, quickstart=False, viewed=path.resolve()), typer.echo)


@app.command()
def backend(
    host: Annotated[str | None, typer.Option(help="The address to listen on (GROUPSCOPE_BACKEND_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="The port (GROUPSCOPE_BACKEND_PORT).", min=1, max=65_535)] = None,
    home: Home = None,
) -> NoReturn:
    """Run the backend alone."""
    _require("backend", "uvicorn")
    _export(backend_host=host, backend_port=port, home=home)
    _become("backend.app")


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
def worker(options: Annotated[list[str] | None, typer.Argument()] = None) -> NoReturn:
    """Run a worker, on this machine or any other that reaches the backend; `groupscope worker --help` lists its options."""
    _require("worker", "torch")
    _become("worker.main", *options or ())


@app.command()
def dashboard(
    port: Annotated[int, typer.Option(help="The port to serve on.", min=1, max=65_535)] = 8501,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> NoReturn:
    """Run the dashboard alone."""
    _require("dashboard", "streamlit")
    from backend.supervisor import dashboard_command

    _export(token_file, backend_url=backend, home=home)
    command = dashboard_command(port, host)
    os.execv(command[0], command)  # noqa: S606 — an argument list, no shell


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A run's configuration, as the form exports it.", metavar="RUN.YAML")],
    name: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> None:
    """Check a configuration and queue a run, with columns as the rows show them where it names none; exit code 3 asks which."""
    with _client(backend, token_file, home) as client:
        config = _read_config(file)
        preflight = client.preflight(config)
        for message in preflight.messages:
            where = f"{message.field}: " if message.field else ""
            typer.echo(_plain(f"{message.level:<7}  {where}{message.text}"), err=True)
        if not preflight.ok:
            asked = any(
                (message.field or "").endswith("_column") for message in preflight.messages if message.level == "error"
            )
            _fail(f"{file} was not submitted", _ASKED if asked else 1)
        run = client.create_run(config, name=name)
        typer.echo(f"run {run.id} ({_plain(run.name)}) is {run.status}: {preflight.total_completions:,} completions")


@app.command()
def upload(
    paths: Annotated[
        list[Path],
        typer.Argument(help="CSV, TSV, JSON, JSON lines, Parquet or Arrow; of a folder, all its files.", exists=True),
    ],
    name: Annotated[str | None, typer.Option(help="The data set's name; else the first file's.")] = None,
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> None:
    """Store rows for runs to train on; several files become one data set. Files are read as they are sent."""
    found = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    files = [file for file in found if file.is_file() and (file in paths or not file.name.startswith("."))]
    if not 0 < len(files) <= MOST_PARTS:
        _fail(f"there are {len(files):,} files to upload; a data set is made of 1 to {MOST_PARTS:,}")
    with _client(backend, token_file, home) as client:
        made = client.upload_files([(file.name, file) for file in files], name, on_sent=_show_sent)
        columns = _plain(", ".join(made.columns))
        typer.echo(f"upload:{made.id} ({_plain(made.name)}) has {made.rows:,} rows with the columns {columns}")
        for note in made.notes:
            typer.echo(_plain(note), err=True)


def _show_sent(name: str, whole: int, sent: int) -> None:
    """Show on a terminal how much of a file is on its way."""
    if sys.stderr.isatty():
        shown = f"{_plain(name)}: {sent / 2**20:,.0f} of {whole / 2**20:,.0f} MiB"
        typer.echo(f"\r{shown}", err=True, nl=sent >= whole)


@app.command()
def runs(
    status: Annotated[str | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most.", min=1, max=200)] = 20,
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> None:
    """List the newest runs with the mean reward of their last ten steps; samples of the form and of checkpoints are not among them."""
    with _client(backend, token_file, home) as client:
        found = client.runs(kind="training", status=status, limit=limit).items
        typer.echo(f"{'id':>6}  {'status':<9} {'step':>11} {'reward':>7}  name")
        for run in found:
            reward, steps = run.recent_reward, f"{run.progress.step}/{run.progress.total_steps}"
            scored = "" if reward is None else f"{reward:.3f}"
            typer.echo(f"{run.id:>6}  {run.status:<9} {steps:>11} {scored:>7}  {_plain(run.name)}")


@app.command()
def export(
    run_id: Annotated[int, typer.Argument(help="The run's number.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to the next program.")
    ] = None,
    what: Annotated[
        What,
        typer.Option(
            help="all: the run with its groups and metrics as JSON lines; groups, metrics: a Parquet file; tokens: groups with the values of each "
            "token; report: an HTML page that opens without a server; trl: its configuration as a script for TRL."
        ),
    ] = "all",
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> None:
    """Write a run to a file: with all its groups and metrics, as a report, or as a script for TRL."""
    if output is None and sys.stdout.isatty():  # what models wrote would steer the terminal
        _fail(f"run {run_id} is not shown in a terminal: write it to a file with -o, or send it to a program (| less)")
    if output is not None and output.is_dir():
        _fail(f"{output} is a directory: name a file in it")
    with _client(backend, token_file, home) as client:
        if what == "report":
            client.run(run_id)  # refused in plain words
            chunks = _report(run_id)
        elif what == "trl":
            chunks = iter([script_of(client, run_id).encode()])
        else:
            chunks = client.export(run_id) if what == "all" else client.export_table(run_id, what)
        if output is None:
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        partial = output.with_name(f"{output.name}.partial")  # so that a broken transfer is never taken for a whole one
        try:
            with partial.open("wb") as file:
                file.writelines(chunks)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)


@app.command("import")
def import_(
    path: Annotated[
        Path, typer.Argument(help="A file or a folder that another trainer wrote; docs/import.md lists what is known.")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Stay, and import what is written from now on.")] = False,
    name: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of the run; may be given several times.")] = None,
    format: Annotated[
        str | None, typer.Option(help="Whose files these are, should they be taken for another's.")
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(help="Completions of a prompt, if the files do not say it (TRL's num_generations).", min=1),
    ] = None,
    from_step: Annotated[
        int | None,
        typer.Option(help="Import anew from this step on, counted from 0; the run's older record is replaced.", min=0),
    ] = None,
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
) -> None:
    """Record what another trainer left on the disk as runs. Again and again: only what is new is sent."""
    from groupscope.files.catalog import named
    from groupscope.files.delivery import Labels
    from groupscope.files.format import Options, Unreadable
    from groupscope.files.importer import Importer

    with _client(backend, token_file, home) as client:
        try:
            importer = Importer(
                client,
                path,
                options=Options(group_size),
                labels=Labels(name, tag or ()),
                only=named(format) if format else None,
                from_step=from_step,
                say=lambda line: typer.echo(_plain(line)),
                show=_Progress(),
            )
            if follow:
                with _until_asked_to_end() as asked:
                    importer.follow(asked)
            else:
                importer.once()
        except Unreadable as error:
            _fail(str(error))
        if importer.failed:
            raise typer.Exit(1)


class _Progress:
    """Shows on a terminal how far an import is."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()

    def __call__(self, tally: "Tally", step: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._shown > _SHOWN_EVERY:
            self._shown = now
            completions = tally.totals[2]
            pace = completions / (now - self._began)
            typer.echo(f"\rstep {step:,}: {completions:,} completions, {pace:,.0f} a second ", err=True, nl=False)


@contextmanager
def _until_asked_to_end() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for an end; whether one of them came."""
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda one, _: asked.append(one)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command()
def convert(
    file: Annotated[
        Path,
        typer.Argument(
            help="A run's configuration (YAML), or one of TRL's: a Python script, which is read and never run, JSON or YAML.",
            exists=True,
            dir_okay=False,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to the next program.")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(help="A run's configuration with what TRL's does not say: model, task and rewards.", exists=True),
    ] = None,
) -> None:
    """Turn a run's configuration into a script for TRL, or one of TRL's into a run's; what has no counterpart is said line by line."""
    with _plain_errors():
        text = _text_of(file)
        try:
            if is_trl(text):
                rest = GrpoConfig().model_dump(mode="json") if base is None else _read_config(base)
                config, remarks = read_trl(text, rest)
                written = yaml_text.write(config)
            else:
                remarks = []
                written = trl_script(GrpoConfig.model_validate(_read_config(file)).model_dump(mode="json"), file.stem)
        except yaml_text.Unreadable as error:
            _fail(f"{file} cannot be read: {error}")
        except ValidationError as error:
            first = error.errors()[0]
            _fail(f"{file} is not a run's configuration: {'.'.join(map(str, first['loc']))}: {first['msg']}")
        for remark in remarks:
            typer.echo(_plain(remark), err=True)
        if output is None:
            typer.echo(written, nl=False)
        else:
            output.write_text(written, encoding="utf-8")


@app.command()
def sync(backend: Backend = None, token_file: TokenFile = None, home: Home = None) -> None:
    """Send what recordings of other trainers' runs left on this disk while the backend was away."""
    from groupscope.outbox import deliver, left_over

    with _client(backend, token_file, home) as client:
        waiting, refused = list(left_over(load(Connection).home)), False
        for about in waiting:
            try:
                sent = deliver(about, client)
            except (ApiError, ValueError) as error:  # the others may be taken
                typer.echo(f"{about.stem}: {error}", err=True)
                refused = True
                continue
            if sent is None:
                typer.echo(f"{about.stem}: its program still runs, and sends by itself")
            else:
                claim, count = sent
                typer.echo(f"run {claim.run_id}, {_plain(claim.name)}: {count} message{'s' if count != 1 else ''} sent")
        if not waiting:
            typer.echo("nothing waits")
        if refused:
            raise typer.Exit(1)


@app.command()
def backup(
    output: Annotated[
        Path | None, typer.Argument(help="The archive to write; groupscope-<time>.tar here if it is not named.")
    ] = None,
    home: Home = None,
) -> None:
    """Copy a home that may be in use: the database, uploads, token traces and checkpoints, as one file."""
    from backend.operations.backup import back_up
    from backend.operations.place import Place

    _export(home=home)
    with _plain_errors():
        output = output or Path(f"groupscope-{datetime.now():%Y-%m-%d-%H%M%S}.tar")
        connection = load(Place)
        if connection.database_url is not None:
            _fail(
                "GROUPSCOPE_DATABASE_URL says that the records lie elsewhere: copy that database with its own tool, and the "
                f"folders uploads, traces and checkpoints of {connection.home}"
            )
        made = back_up(connection.home, output, _say_beside)
        for name in made.vanished:
            typer.echo(f"left out, since it was deleted meanwhile: {_plain(name)}", err=True)
        typer.echo(
            f"{output}: {_contents(made)}, {made.size_bytes / 2**20:,.1f} MiB. It holds the token, the settings and all data: "
            "keep it where you would keep both"
        )


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="What `groupscope backup` wrote.", exists=True, dir_okay=False)],
    home: Home = None,
) -> None:
    """Make a home of a backup. The home must be empty, or not exist yet; nothing is put there unless the archive is whole."""
    from backend.operations.backup import restore as restore_home

    _export(home=home)
    with _plain_errors():
        place = load(Connection).home
        made = restore_home(archive, place, _say_beside)
        typer.echo(f"{place}: {_contents(made)}. Start it: groupscope up --home {place}")


@app.command()
def new_reward(
    name: Annotated[str, typer.Argument(help="The reward's name, which is its file's, too.")],
    group: Annotated[bool, typer.Option(help="A reward of all completions of a prompt at once.")] = False,
    home: Home = None,
) -> None:
    """Write a template for a reward of your own into the folder of rewards."""
    from backend.operations import new_reward as rewards

    _export(home=home)
    with _plain_errors():
        file = rewards.new_reward(load(Connection).home, name, group=group)
        typer.echo(f"{file}: edit it; the form offers it as {file.name}:reward while a worker of this home runs")


@app.command()
def doctor(
    backend: Backend = None,
    token_file: TokenFile = None,
    home: Home = None,
    thorough: Annotated[bool, typer.Option(help="Read every byte of the database and of its files.")] = False,
) -> None:
    """Say what is wrong with this installation, and what to do. Exit code 1 if anything is."""
    from backend.operations.doctor import Installation, report
    from backend.operations.place import Place

    _export(token_file, backend_url=backend, home=home)
    with _plain_errors():
        if not report(Installation(load(Place), thorough), lambda line: typer.echo(_plain(line))):
            raise typer.Exit(1)


def _contents(made: "BackedUp") -> str:
    """What an archive holds: 1 run, 12 files."""
    return f"{made.runs} run{'s' if made.runs != 1 else ''}, {made.files} file{'s' if made.files != 1 else ''}"


def _say_beside(line: str) -> None:
    """Progress, kept apart from results."""
    typer.echo(line, err=True)


def _report(run_id: int) -> Iterator[bytes]:
    """The page, made by the dashboard's code in a process of its own: the command line knows the contract alone."""
    _require("dashboard", "vl_convert")
    made = subprocess.run(
        [sys.executable, "-m", "dashboard.downloads.report", str(run_id)], stdout=subprocess.PIPE, check=False
    )
    if made.returncode:
        _fail(f"the report of run {run_id} was not made; the messages above say why")
    yield made.stdout


def _require(extra: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        _fail(f"the {extra} is not installed here: pip install 'groupscope[{extra}]'")


def _export(token_file: Path | None = None, **settings: object) -> None:
    """Hand options to the program as the settings of the same name."""
    if token_file is not None:
        with _plain_errors():
            settings["token"] = token_in(token_file)
    for name, value in settings.items():
        if value is not None:
            os.environ[f"GROUPSCOPE_{name.upper()}"] = str(value)


def _become(module: str, *arguments: str) -> NoReturn:
    """Replace this process, so that signals and exit codes are the program's own."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 — an argument list, no shell


@contextmanager
def _client(backend: str | None, token_file: Path | None, home: Path | None) -> Iterator[Client]:
    _export(token_file, backend_url=backend, home=home)
    with _plain_errors(), load(Connection).client() as client:
        yield client


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What can go wrong outside this program becomes one line and exit code 1."""
    try:
        yield
    except ApiError as error:
        _fail(f"{error.message} ({error.code})")
    except (Unreachable, CannotStart) as error:
        _fail(str(error))
    except BrokenPipeError:  # the next program has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(system_words(error))


def _fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(f"groupscope: {_plain(message)}", err=True)
    raise typer.Exit(code)


def _text_of(file: Path) -> str:
    """The text of a configuration, of a longer one its beginning."""
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(yaml_text.MOST_LETTERS + 1)
    except UnicodeDecodeError as error:
        _fail(f"{file} is not readable YAML, which is text in UTF-8: {error}")


def _read_config(file: Path) -> dict[str, Json]:
    try:
        config = yaml_text.read(_text_of(file))
    except yaml_text.Unreadable as error:
        _fail(f"{file} is not readable YAML: {error}")
    if not isinstance(config, dict):
        _fail(f"{file} does not hold a run's configuration: names and values such as the form exports")
    return config


def _plain(text: str) -> str:
    """Without characters that would steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


if __name__ == "__main__":
    app()
