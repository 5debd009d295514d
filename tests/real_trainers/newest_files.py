"""Files by the writers of the newest verl, verifiers and tinker-cookbook, and the newest TRL: python newest_files.py FOLDER

The tests of these formats read them (make test-formats). It says which releases these are, and ends with 1 if a writer has moved.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import foreign_files as files

NEWEST = {  # what is installed, whether without what it needs, and how files are made with it
    "verl": (("verl", "orjson"), True, files.verl),
    "verifiers": (("verifiers",), False, files.verifiers),
    "tinker": (("tinker-cookbook", *files.TINKER[1:]), True, files.tinker),
    "trl": (("trl",), True, None),  # its trainer writes while the tests run
}


def one(name: str, place: Path) -> None:
    requirements, alone, make = NEWEST[name]
    shutil.rmtree(place / name, ignore_errors=True)  # of the last time
    sources = files.installed(*requirements, alone=alone)(place / name)
    for folder in sorted(sources.glob(f"{requirements[0].replace('-', '_')}-*.dist-info")):
        print("newest:", folder.name.removesuffix(".dist-info"), flush=True)  # noqa: T201 — what the person asked
    if make is not None:
        folder = place / "files" / name
        expected = json.dumps(make(folder, sources), ensure_ascii=False)
        (folder / "expected.json").write_text(expected)


def main(place: Path) -> None:
    """All of them, in a copy of those that are here, each in a process of its own, as each has its own packages."""
    shutil.copytree(files.FOREIGN, place / "files", dirs_exist_ok=True)
    moved = [
        name for name in NEWEST if subprocess.run([sys.executable, __file__, str(place), name], check=False).returncode
    ]
    if moved:
        sys.exit(
            f"the writers of {', '.join(moved)} have moved, as the messages above say; their files are those of before"
        )


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    one(sys.argv[2], folder) if sys.argv[2:] else main(folder)
