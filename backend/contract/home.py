"""The data directory that the processes share: who can read it, where its settings and its token lie, and what is said if it cannot be used."""

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationError

S = TypeVar("S")
DEFAULT = Path(".groupscope")
# What lies in it:
DATABASE, TOKEN, SETTINGS, OWN_REWARDS = "groupscope.db", "token", ".env", "rewards"
LEAST_TOKEN = 16  # characters, of a token that guards more than this machine


class CannotStart(Exception):
    """Something stands in the way of a process: the message says what, and what to do."""


def _readable(token: SecretStr) -> SecretStr:
    if not (text := token.get_secret_value()).isascii() or not text.isprintable() or " " in text or not text:
        text = "a token has letters, digits and signs of ASCII, and no spaces; openssl rand -hex 32 makes one"
        raise ValueError(text)
    return token


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Token = Annotated[SecretStr, AfterValidator(_readable)]
LISTED = BeforeValidator(_split)  # of a setting with several values, separated by commas


def load(settings: Callable[..., S], **given: object) -> S:
    """The settings of a process: from what was given, else from the environment, else from `<home>/.env`. Raises CannotStart.

    No file of the directory where one stands is read: it may be anybody's, and would say where the token is sent.
    """
    given = {name: value for name, value in given.items() if value is not None}
    home = Path(str(given.get("home") or os.environ.get("GROUPSCOPE_HOME") or DEFAULT))
    file = home / SETTINGS
    try:
        there = os.path.isfile(file)  # pathlib's raises where another user owns the home
        if there:
            status = home.stat()
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
                text = f"the settings in {file} are not read, since other users can write there: chmod 700 {home}, if it is yours"
                raise CannotStart(text)
        return settings(_env_file=file if there else None, **given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])).upper()
        raise CannotStart(f"the setting GROUPSCOPE_{name} is wrong: {first['msg']}" if name else first["msg"]) from None
    except ValueError as error:  # a variable that should be JSON, or a file that is not text
        raise CannotStart(f"the settings cannot be read, from the environment or {file}: {error}") from None
    except OSError as error:
        raise CannotStart(f"the settings in {file} cannot be read: {error.strerror}") from None


@contextmanager
def in_words() -> Iterator[None]:
    """Around what a process does before it can work: what stands in the way is one line, and the exit code is 1."""
    try:
        yield
    except CannotStart as error:
        sys.exit(f"groupscope: {error}")
    except OSError as error:
        sys.exit(f"groupscope: {system_words(error)}")


def system_words(error: OSError) -> str:
    """What the operating system refused: the file, and why."""
    return f"{error.filename or 'the system'}: {error.strerror or error}"


@contextmanager
def alone(lock: Path, who: str, refusal: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock, which the kernel lets go however this process ends; `who` this is stands in the file.

    Raises CannotStart with the words that `refusal` makes of who else has it.
    """
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise CannotStart(refusal(file.read().strip())) from None
        except OSError as error:
            raise CannotStart(
                f"{lock} cannot be locked ({error.strerror}): the data directory must lie on a disk that has locks; "
                "name another with --home"
            ) from None
        file.truncate(0)
        with suppress(OSError):  # on a full disk the lock is held all the same
            os.write(file.fileno(), f"{who}\n".encode())
        yield


def make_private(home: Path) -> None:
    """Make the directory if it is not there, and keep it and all that this process writes from other users. Raises CannotStart."""
    os.umask(0o077)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if stat.S_IMODE(home.stat().st_mode) & 0o077:
            home.chmod(0o700)
    except (FileExistsError, NotADirectoryError):
        raise CannotStart(f"the data directory {home} is a file, or lies below one: name another with --home") from None
    except OSError as error:
        raise CannotStart(
            f"the data directory {home} cannot be used ({error.strerror}): make it yours, or name another with --home"
        ) from None
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise CannotStart(f"the data directory {home} cannot be written: make it yours, or name another with --home")


def store_address(name: str) -> str:
    """Where a store of checkpoints lies, a path or s3://bucket/prefix. A worker names it <address>#<id>, since two machines may use one
    path for different disks."""
    return name.rpartition("#")[0] or name  # a path may have this sign, too


def store_path(name: str) -> Path:
    """The same as a path."""
    return Path(store_address(name))


def stored_token(home: Path) -> str:
    """The token in `<home>/token`. Raises CannotStart."""
    file = home / TOKEN
    try:
        return token_in(file, "remove it, and the backend makes another at its next start")
    except OSError as error:
        raise CannotStart(
            f"no token: {file} cannot be read ({error.strerror}); run this where `groupscope up` runs, name its directory "
            "with --home or GROUPSCOPE_HOME, or set GROUPSCOPE_TOKEN"
        ) from None


def token_in(file: Path, advice: str = "name the file <home>/token of the backend, or a copy") -> str:
    """The token that a file holds. Raises CannotStart, with the advice, if it holds none; OSError if it cannot be read."""
    try:
        return _readable(SecretStr(file.read_text("ascii").strip())).get_secret_value()
    except ValueError:
        raise CannotStart(f"{file} holds no token: {advice}") from None
