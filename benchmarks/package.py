"""How long `import groupscope` takes a script, in an environment with the wheel and its base dependencies alone.

python benchmarks/package.py            prints the medians; builds the wheel, and installs it from the package index

Processes in turn import the package, and what records a run; the start of the interpreter is not counted.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from io import BytesIO
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
TIMES = 5
STATEMENTS = ("import groupscope", "from groupscope import start_run")
SCRIPT = "import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"


def main() -> None:
    ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = _installed(Path(folder))
        seconds: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
        for _ in range(TIMES + 1):  # the first one compiles
            for statement, found in seconds.items():
                command = [str(python), "-c", SCRIPT.format(statement=statement)]
                found.append(float(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout))
    for statement, found in seconds.items():
        print(f"{statement}: {median(found[1:]):.3f} s, the median of {TIMES} processes")


def _installed(folder: Path) -> Path:
    """The interpreter of a new environment that has the wheel."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607 — git from the path
    (folder / "source").mkdir()
    with tarfile.open(fileobj=BytesIO(files)) as archive:  # a build leaves files beside its source
        archive.extractall(folder / "source", filter="data")
    subprocess.run([*pip, "wheel", "--no-deps", str(folder / "source")], cwd=folder, check=True)
    [wheel] = folder.glob("groupscope-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel)],
        check=True,
    )
    return python


if __name__ == "__main__":
    main()
