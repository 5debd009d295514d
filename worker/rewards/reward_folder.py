"""What the folder of rewards offers: watched, and each file looked into by a process of its own, which may hang or die."""

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.records import MOST_REWARD_FILES, RewardFile
from worker.rewards.child_process import Child, ChildNotReady

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
AT_ONCE = 2
RESTLESS = 3
"""After how many interrupted imports of a file that changed meanwhile its changes interrupt nothing any more."""
Stamp = tuple[int, ...]
"""What changes when a file does: its times, size, owner and rights."""


class _Outdated(Exception):
    """The folder is another now, or nobody wants to know any more."""


class RewardFolder:
    """Looks at the folder four times a second while it is entered; `files` is what was found."""

    def __init__(self, folder: Path, path: Path | None = None) -> None:
        self._folder = folder
        self._path: list[Json] = [str(path.resolve())] if path else []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="own-rewards", daemon=True)
        self._described: dict[str, tuple[Mapping[str, Stamp], RewardFile]] = {}  # with the files that it depends on
        self._tried: dict[str, set[Stamp]] = {}  # by file, the state in which it was last imported, whatever came of it
        self._own_changes: Counter[str] = Counter()  # how often a file changed while it was itself imported
        self.files: list[RewardFile] = []

    def __enter__(self) -> "RewardFolder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with ThreadPoolExecutor(AT_ONCE, "own-rewards") as pool:
            while True:
                try:
                    self._look(pool)
                except _Outdated:
                    pass
                except Exception:  # the folder is looked at again, whatever it was
                    log.exception("the folder of rewards cannot be looked at")
                if self._ended.wait(LOOK_SECONDS):
                    return

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """Describe what is new or has changed."""
        stamps = self._stamps()
        names = sorted(name for name in stamps if not name.startswith(("_", ".", "/")))
        self._described = {name: known for name, known in self._described.items() if name in stamps}
        stale = [name for name in names[:MOST_REWARD_FILES] if self._is_stale(name, stamps)]
        stale.sort(key=lambda name: self._urgency(name, stamps), reverse=True)
        self._show(names)
        for look in as_completed([pool.submit(self._describe, name, stamps) for name in stale]):
            described = look.result()
            # What does not import may do so once any other file is there, or is another.
            read = stamps.keys() if described.error else _own_files(described) & stamps.keys()
            seen = {file: stamps[file] for file in read}
            if self._is_restless(described.name) and self._is_as_described(described):
                seen = {file: stamp for file, stamp in self._stamps().items() if file in read}
            self._described[described.name] = (seen, described)
            self._show(names)

    def _show(self, names: Sequence[str]) -> None:
        """Offer what is known of these files by now: another one may take minutes to import."""
        self.files = [self._described[name][1] for name in names[:MOST_REWARD_FILES] if name in self._described]
        if len(names) > MOST_REWARD_FILES and self.files:
            text = f"{names[MOST_REWARD_FILES]} and those after it are not offered: the folder may have {MOST_REWARD_FILES} files"
            self.files[-1] = self.files[-1].model_copy(update={"error": text})

    def _is_stale(self, name: str, stamps: Mapping[str, Stamp]) -> bool:
        if name not in self._described:
            return True
        seen, described = self._described[name]
        return seen != stamps if described.error else any(stamps.get(file) != stamp for file, stamp in seen.items())

    def _urgency(self, name: str, stamps: Mapping[str, Stamp]) -> tuple[bool, bool, bool, int]:
        """What was edited comes first, and what hung before comes last. Of equals, one that failed waits, and the latest change leads."""
        described = self._described[name][1] if name in self._described else None
        is_edited = self._tried.get(name) != self._own_stamps(name, stamps)
        hung = not is_edited and (described is None or "reward_timeout" in (described.error or ""))
        failed = described is not None and described.error is not None
        latest = max(max(stamp[:2]) for stamp in self._own_stamps(name, stamps))
        return is_edited and not self._is_restless(name), not hung, not failed, latest

    def _own_stamps(self, name: str, stamps: Mapping[str, Stamp]) -> set[Stamp]:
        files = _own_files(self._described[name][1]) if name in self._described else {name}
        return {stamps[file] for file in files & stamps.keys()}

    def _is_restless(self, name: str) -> bool:
        """Whether its import changes the file itself, so that it would interrupt itself and all others for ever."""
        return self._own_changes[name] >= RESTLESS

    def _is_as_described(self, described: RewardFile) -> bool:
        try:
            content = (self._folder / described.name).read_bytes()
        except OSError:
            return False
        return described.texts.get(described.name) == hashlib.sha256(content).hexdigest()

    def _stamps(self) -> dict[str, Stamp]:
        """Of every Python file of the folder, by name and with the folder's own rights, and of the path, by path."""
        stamps: dict[str, Stamp] = {}
        with suppress(OSError):
            own = self._folder.lstat()
            for file in self._folder.glob("*.py"):
                with suppress(OSError):
                    stamps[file.name] = (*_stamp(file), own.st_mode, own.st_uid)
        for folder in self._path:
            for file in Path(str(folder)).glob("*.py"):
                with suppress(OSError):
                    stamps[str(file)] = _stamp(file)
        return stamps

    def _describe(self, name: str, stamps: Mapping[str, Stamp]) -> RewardFile:
        """What a file offers, imported as a run does it. Raises _Outdated."""

        def go_on() -> None:
            now = self._stamps()
            changed = {file for file, _ in stamps.items() ^ now.items() if not self._is_restless(file)}
            if self._ended.is_set() or changed:
                self._own_changes[name] += name in changed
                raise _Outdated

        go_on()
        self._tried[name] = self._own_stamps(name, stamps)
        settings: dict[str, Json] = {"functions": [], "path": self._path, "own": str(self._folder), "texts": None}
        try:
            child = Child({**settings, "describe": name}, waiting=go_on)
        except ChildNotReady as reason:
            return RewardFile(name=name, error=f"{name} cannot be imported: {reason}")
        child.close()
        answer = child.ready if isinstance(child.ready, dict) else {}
        try:
            return RewardFile.model_validate(answer.get("described"))
        except ValidationError as error:
            return RewardFile(name=name, error=f"{name} offers what no form can show: {error}")


def _own_files(described: RewardFile) -> set[str]:
    """The file and what it imported of the folder."""
    return {described.name, *described.texts}


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
