"""A JSON lines file whose lines are read group by group, wherever they stand."""

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from groupscope.files.format import MALFORMED, Lines
from groupscope.recording import Completion, Group

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


class GroupedLines(Generic[Key]):
    """The places of a file's lines by their group: the file is read twice, and only one group of it is in the memory."""

    def __init__(self, path: Path, key: Callable[[Any], Key], *, called: str, final: bool) -> None:
        """`key` says of which group a line's object is, or raises one of MALFORMED; `called` is what a line should be: "row of NeMo-RL"."""
        self._lines, self._called, self._final = Lines(path), called, final
        self.wrong: list[str] = []
        """Of each line that cannot be read one sentence."""
        self._places: dict[Key, list[tuple[int, int]]] = {}
        before = self._lines.place
        for at, line in self._lines.new(final=final):
            place, before = before, self._lines.place
            if isinstance(line, ValueError):
                self.wrong.append(str(line))
                continue
            try:
                self._places.setdefault(key(line), []).append(place)
            except MALFORMED as error:
                self._say(at, error)
        if final and not self._places and not self.wrong and path.is_file():
            self.wrong.append(f"{path.name} is empty")

    @property
    def keys(self) -> list[Key]:
        """The groups in their order."""
        return list(self._places)

    def read(self, key: Key, make: Callable[[Any], T]) -> Iterator[T]:
        """What is made of each line of a group. `make` may raise one of MALFORMED. A group that is not there has no lines."""
        for at, line in self._of(key):
            try:
                yield make(line)
            except MALFORMED as error:
                self._say(at, error)

    def group(self, key: Key, make: Callable[[Any], tuple[str, Completion]], *, evaluated: bool) -> list[Group]:
        """The group of which `make` finds the prompt and a completion in each line; none if no line can be read."""
        made = list(self.read(key, make))
        return [Group(made[0][0], [completion for _, completion in made], evaluated=evaluated)] if made else []

    def _of(self, key: Key) -> Iterator[tuple[int, Any]]:
        for place in self._places.get(key, ()):
            self._lines.place = place
            found = next(self._lines.new(final=self._final), None)
            if found is None:
                self._say(place[1] + 1, ValueError("it is not there any more"))
            elif isinstance(found[1], ValueError):
                self.wrong.append(str(found[1]))
            else:
                yield found

    def _say(self, at: int, error: Exception) -> None:
        """A line cannot be read after all."""
        reason = str(error) if type(error) is ValueError else f"no {self._called} ({type(error).__name__}: {error})"
        self.wrong.append(f"{self._lines.path.name}, line {at}: {reason}")
