"""One's own rewards inside of the process that runs them: the files of a folder, imported from texts that are kept.

What scored a run can be shown and compared only if nothing else ran: a module of the folder is made from the text that was read
once, and none is made after the beginning, whichever way it is imported.
"""

import importlib.util
import inspect
import linecache
import math
import os
import stat
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from backend.contract.answers import ANSWERS

LONGEST_FILE = 2**17
NO_COLUMNS = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids"})
"""Columns of the data that a call leaves out, as TRL's does; at the plural ones TRL fails."""

OF_TRL = frozenset({"trainer_state", "log_extra", "log_metric"})  # which only a trainer of TRL's has
RESERVED = NO_COLUMNS | OF_TRL | {"answer"}
"""Names of parameters that a call fills: with a default or without, no form shows them as settings."""

VERL = "solution_str"
OF_VERL = frozenset({VERL, "data_source", "ground_truth", "extra_info"})
"""What verl calls its `compute_score` with."""

SCORED = ("completion", "completions", VERL)
TAKES = "completion (one text), completions (all of a prompt) or solution_str (one text, as in verl)"


LONGEST_TRACEBACK = 2048
MOST_PASSED_OVER, SHORT = 64, 200  # names with their reasons, in characters


class Refused(Exception):
    """A file that is not run; the message says why."""


def folder_refusal(folder: Path) -> str | None:
    """Why nothing of the folder is run: somebody else could change what runs with the rights of this process."""
    return _refusal(os.lstat(folder), stat.S_ISDIR, "directory")


def _refusal(found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> str | None:
    if not is_kind(found.st_mode):
        return f"it is not a {kind}"
    if found.st_uid != os.geteuid():
        return f"it belongs to another user: chown it to the worker's (number {os.geteuid()})"
    if stat.S_IMODE(found.st_mode) & 0o022:
        return "other users can write to it: chmod go-w it, and set umask 022 for your editor if it makes such files"
    return None


def read(folder: Path, name: str) -> str:
    """The text of a file of the folder. Raises Refused, and OSError if it cannot be read."""
    refusal = folder_refusal(folder)
    if refusal is not None:
        raise Refused(f"The folder {folder} is not used, since {refusal}")
    path = folder / name
    if path.resolve().parent != folder.resolve():
        raise Refused(f"{name} is a link out of the folder: put the file itself there")
    with path.open("rb") as file:
        refusal = _refusal(os.fstat(file.fileno()), stat.S_ISREG, "file")
        content = file.read(LONGEST_FILE + 1)
    if refusal is not None:
        raise Refused(f"{name} is not used, since {refusal}")
    if len(content) > LONGEST_FILE:
        raise Refused(
            f"{name} is longer than {LONGEST_FILE // 1024} KiB, and each run keeps its text: move data elsewhere"
        )
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8 (byte {error.start + 1}): save it as UTF-8") from None


class OwnModules:
    """Imports the files of a folder: from `texts` if they are given, otherwise from the disk. After `close` nothing more is imported.

    A module of the folder that is found by another way, as over `sys.path`, is made here all the same, or refused.
    """

    def __init__(self, folder: Path, texts: Mapping[str, str] | None = None) -> None:
        self.folder, self._given = folder, texts
        self._real = folder.resolve()
        self._open = True
        self.texts: dict[str, str] = {}
        """By file, the text of each module that was imported."""
        self._code: set[CodeType] = set()
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._refuse_other_code)

    def close(self) -> None:
        """What is imported from now on would not be in the run's records, and is refused."""
        self._open = False

    def load(self, file: str) -> ModuleType:
        """The module of a file. Raises Refused; else what its import raises."""
        name = file.removesuffix(".py")
        if not (name.isidentifier() and name.isascii()):
            raise Refused(f"{file} cannot be imported under this name: use the letters a to z, digits and _")
        if self._given is None and not (self.folder / file).is_file() and (self.folder / file).exists():
            raise Refused(f"{file} is not a file, and nothing of it is read: rename or remove it")
        if name not in sys.modules or f"{name}.py" not in self.texts:
            spec = None if name in sys.modules else importlib.util.find_spec(name)
            if name in sys.modules or (spec is not None and spec.origin != str(self.folder / file)):
                raise Refused(
                    f"{file} has the name of a package that is installed here, which would be taken for it: rename the file"
                )
        return importlib.import_module(name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As the import system asks; for a module of the folder, unless something of this name is installed."""
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        found = next((spec for spec in others if spec is not None), None)
        if found is not None and (found.origin is None or not self._holds(found.origin)):
            return found
        file = f"{name}.py"
        if found is not None and Path(str(found.origin)).resolve() != self._real / file:
            self._refuse(str(found.origin))
        if not (file in self._given if self._given is not None else (self.folder / file).is_file()):
            return None
        if not self._open:
            raise ImportError(
                f"import {name} at the top of the file: what a run was scored by is kept before it begins"
            )
        return importlib.util.spec_from_loader(name, self, origin=str(self.folder / file))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """None: the import system makes an empty one."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the text, which a traceback shows even if the file has changed since."""
        file, origin = f"{module.__name__}.py", str(self.folder / f"{module.__name__}.py")
        text = self._given[file] if self._given is not None else read(self.folder, file)
        self.texts[file] = text
        module.__file__ = origin
        linecache.cache[origin] = (len(text), None, text.splitlines(keepends=True), origin)
        code = compile(text, origin, "exec")
        self._code.add(code)
        exec(code, module.__dict__)  # noqa: S102 — the owner's own file, as `read` makes sure

    def _holds(self, origin: str) -> bool:
        """Whether a file lies in the folder, however deep."""
        return Path(origin).is_relative_to(self.folder) or Path(origin).resolve().is_relative_to(self._real)

    def _refuse_other_code(self, event: str, given: tuple[object, ...]) -> None:
        """As the interpreter reports what it does: code of the folder that was compiled by others is not run."""
        if event != "exec" or not isinstance(code := given[0], CodeType) or code in self._code:
            return
        if os.path.isabs(code.co_filename) and self._holds(code.co_filename):
            self._refuse(code.co_filename)

    def _refuse(self, origin: str) -> NoReturn:
        name = Path(origin).relative_to(self.folder) if Path(origin).is_relative_to(self.folder) else origin
        raise ImportError(
            f"{name} would run without being kept with the run: put it right into the folder of rewards as one .py file, and use import"
        )


def describe(modules: OwnModules, file: str) -> dict[str, object]:
    """The fields of a RewardFile: the functions of a file that can score, what was passed over, and what is wrong with it."""
    try:
        module = modules.load(file)
    except Refused as refused:
        return {"name": file, "error": str(refused)}
    except BaseException as error:  # noqa: BLE001 — somebody's module: its import may end in anything
        return {"name": file, "error": error_text(error, modules.folder)}
    functions, passed_over, wrong = [], dict[str, str](), []
    for name, found in vars(module).items():
        if (reason := _why_not(module, name, found)) is None:
            of_it = {"function": f"{file}:{name}", "help": inspect.getdoc(found) or "", **_signature(name, found)}
            functions.append(of_it)
        elif reason:
            if len(passed_over) < MOST_PASSED_OVER:
                passed_over[name[:SHORT]] = reason[:SHORT]
            if _says_reward(name) and _is_of(module, found):
                wrong.append(f"{file}, {reason}")
    if not functions and not wrong:
        wrong.append(f"{file} has no reward: write a function that takes {TAKES}")
    return {"name": file, "functions": functions, "passed_over": passed_over, "error": "\n".join(wrong) or None}


def require_reward(module: ModuleType, name: str) -> None:
    """Raises Refused for what is not offered as a reward: the file's imports are not a configuration's to call."""
    reason = _why_not(module, name, vars(module).get(name))
    if reason is not None:
        reason = reason or f"a reward is a function of the file that takes {TAKES}"
        raise Refused(f"{module.__name__}.py has no reward {name}: {reason}")


def _why_not(module: ModuleType, name: str, found: Any) -> str | None:
    """Why what the module has under this name is not offered as a reward: None if it is, empty of what is not meant as one."""
    if _is_of(module, found) and (_says_reward(name) or not name.startswith("_")):
        try:
            _signature(name, found)
        except (ValueError, TypeError) as error:  # a `__signature__` may be anything
            return f"line {found.__code__.co_firstlineno}: {error}"
        return None
    if not callable(found) or not (_says_reward(name) or _can_score(found)):
        return ""
    if name.startswith("_"):
        return f"{name} begins with _, as what is not for others does: rename it"
    if inspect.isfunction(found):
        return f"{name} comes from {found.__module__}: write a function of this file that calls it"
    return f"{name} is a {type(found).__name__}: write a function (def) that calls it"


def _is_of(module: ModuleType, found: object) -> bool:
    return inspect.isfunction(found) and found.__module__ == module.__name__


def _says_reward(name: str) -> bool:
    return name == "reward" or name.startswith("reward_") or name.endswith("_reward")


def _can_score(found: Callable[..., object]) -> bool:
    try:
        return any(one in inspect.signature(found).parameters for one in SCORED)
    except (ValueError, TypeError):
        return False


def _signature(name: str, function: Callable[..., object]) -> dict[str, object]:
    """How a function is called, its settings, of which a form can show each, and the columns that it takes. Raises ValueError for one that takes nothing to
    score.
    """
    if not name.isascii():
        raise ValueError(f"{name} has letters beyond a to z, which no configuration can name: rename it")
    parameters = inspect.signature(function).parameters
    if any(one.kind == one.POSITIONAL_ONLY for one in parameters.values()):
        raise ValueError(f"{name} takes parameters by their places alone; each is given by its name: leave out the /")
    takes_all = any(it.kind == it.VAR_KEYWORD for it in parameters.values())
    if not any(one in parameters for one in SCORED) and not (takes_all and _says_reward(name)):
        raise ValueError(f"{name} takes neither {TAKES.replace(' or ', ' nor ')}; name a parameter so")
    if theirs := [one for one, it in parameters.items() if one in OF_TRL and it.default is it.empty]:
        raise ValueError(f"{name} takes {theirs[0]}, which only TRL's trainer has: give it a default, None for example")
    numbers = {one: it.default for one, it in parameters.items() if isinstance(it.default, int)}
    if large := next((one for one, value in numbers.items() if abs(value) >= 2**63), None):
        raise ValueError(f"the default of {large} in {name} has too many digits for a form: make it None")
    filled = RESERVED | OF_VERL if VERL in parameters else RESERVED
    settings = {
        one: it.default
        for one, it in parameters.items()
        if one not in filled
        and (isinstance(it.default, bool | int | str) or (isinstance(it.default, float) and math.isfinite(it.default)))
    }
    needs = [
        one
        for one, it in parameters.items()
        if it.default is it.empty
        and it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)
        and one not in filled - {*ANSWERS}
    ]
    alone = "completion" in parameters or (VERL in parameters and "completions" not in parameters)
    unit = "completion" if alone else "group"
    return {"unit": unit, "arguments": settings, "needs": needs}


def error_text(error: BaseException, folder: Path | None) -> str:
    """The error in a line, then the beginning of its traceback."""
    trace = "".join(traceback.format_exception(error))
    return f"{summary(error, folder)}\n{trace:.{LONGEST_TRACEBACK}}"


def summary(error: BaseException, folder: Path | None) -> str:
    """The error in a line, with the file and the line of the folder where it happened, if it happened there.

    A syntax error is named with its own file, wherever that lies.
    """
    return f"{_place(error, folder)}{traceback.format_exception_only(error)[-1].rstrip():.500}"


def _place(error: BaseException, folder: Path | None) -> str:
    """`lengths.py, line 7: `, or nothing."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_absolute():
        path = Path(error.filename)
        return f"{path.name if path.parent == folder else path}, line {error.lineno}: "
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).parent == folder]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
