"""All formats, and the runs that lie at a path."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from groupscope.files import art, nemo_rl, openenv, own, prime_rl, tinker, trl, verifiers, verl
from groupscope.files.format import Format, Unreadable

FORMATS: tuple[Format, ...] = (
    *(one.FORMAT for one in (own, trl, verl, prime_rl, verifiers, nemo_rl, tinker, art, openenv)),
    openenv.VERIFIERS,
)
DEEPEST = 4  # folders below a path in which runs are looked for
MOST_FOLDERS = 20_000


def named(name: str) -> Format:
    """The format of that name. Raises Unreadable."""
    for one in FORMATS:
        if one.name == name:
            return one
    raise Unreadable(f"there is no format {name}: it is one of {', '.join(one.name for one in FORMATS)}")


def find(
    path: Path, only: Format | None = None, *, say: Callable[[str], None] = lambda line: None
) -> Iterator[tuple[Path, Format]]:
    """The runs at a path, or else in folders below it. What a link leads to comes once, and what may not be read is said."""

    def format_of(one: Path) -> Format | None:
        return next((each for each in ((only,) if only else FORMATS) if each.recognises(one)), None)

    level = [path]
    seen: set[str] = set()
    folders = 0
    for _ in range(DEEPEST + 1):
        found: dict[Path, Format] = {}
        below: list[Path] = []
        for one in level:
            if (real := os.path.realpath(one)) in seen:
                continue
            seen.add(real)
            try:
                if (format_ := format_of(one)) is not None:
                    found[one] = format_
                elif os.path.isdir(one) and (folders := folders + 1) <= MOST_FOLDERS:
                    below += _inside(one)
            except OSError as error:
                say(f"{one} cannot be read and is left out: {error.strerror or error}")
        # A training that began meanwhile has made one run of a folder that was none, and of what was found in it the parts.
        above = {folder for one in found for folder in one.parents if folder == path or path in folder.parents}
        for folder in sorted(above):
            if (format_ := format_of(folder)) is not None:
                found[folder] = format_
        yield from ((one, format_) for one, format_ in found.items() if found.keys().isdisjoint(one.parents))
        level = [one for one in below if found.keys().isdisjoint(one.parents)]


def _inside(folder: Path) -> list[Path]:
    """Folders, and files that may be a run; links last, as `latest` leads to another run tomorrow. Raises OSError."""
    found = sorted(folder.iterdir(), key=lambda one: (os.path.islink(one), one))
    os.stat(folder / ".")  # refused where names can be read, and not what they name
    return [
        one
        for one in found
        if not one.name.startswith(".") and (os.path.isdir(one) or one.suffix in (".jsonl", ".json", ".parquet"))
    ]


def nothing_at(path: Path) -> Unreadable:
    """The sentence for a path where nothing is recognised."""
    if not path.exists():
        return Unreadable(f"{path} does not exist")
    if path.is_dir() and not any(path.iterdir()):
        return Unreadable(f"{path} is empty: name the folder into which the trainer writes")
    known = "; ".join(one.made_by for one in FORMATS)
    return Unreadable(
        f"{path} has nothing that can be imported. Known are: {known}. docs/import.md says what each needs"
    )
