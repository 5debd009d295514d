"""Who may import whom: dashboard -> contract <- worker, backend -> contract, dashboard -> worker.algorithms, server; groupscope -> contract; nothing else."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("backend", "worker", "dashboard", "groupscope")
# package -> what of ours it may import, beside itself
ALLOWED = {
    "backend/contract": ("backend.contract",),
    "backend/bucket": ("backend.bucket",),
    "backend/server": ("backend.server", "backend.contract"),
    "backend/cli.py": ("backend", "groupscope"),  # the command has what waits of recordings sent, too
    "backend": ("backend",),
    "worker/algorithms": ("worker.algorithms", "backend.contract"),
    "worker": ("worker", "backend.contract", "backend.bucket"),
    "groupscope": ("groupscope", "backend.contract"),
    "dashboard": ("dashboard", "backend.contract", "backend.server", "worker.algorithms"),
}
FILES = [path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module in OURS)


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    home = max((package for package in ALLOWED if place == package or place.startswith(f"{package}/")), key=len)
    ours = {name for name in imported(path) if any(below(name, package) for package in OURS) and name not in OURS}
    assert {name for name in ours if not any(below(name, package) for package in ALLOWED[home])} == set()


def room(name: str) -> str:
    """The second level of a package: backend.queue, dashboard.format."""
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("package", OURS)
def test_rooms_import_each_other_in_one_direction(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        here = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        others = {room(name) for name in imported(path) if name.startswith(f"{package}.")}
        graph.setdefault(here, set()).update(others - {here})
    assert list(TopologicalSorter(graph).static_order()), "raises CycleError, with the rooms of the circle"


def test_the_contract_needs_the_base_install_only() -> None:
    used = {name.partition(".")[0] for path in (ROOT / "backend/contract").rglob("*.py") for name in imported(path)}
    base = "pydantic pydantic_settings httpx numpy pyarrow yaml backend"
    assert used - set(sys.stdlib_module_names) == set(base.split())


def loaded_by(statement: str, *unwanted: str) -> list[str]:
    """Which of the unwanted modules a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {unwanted!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_algorithms_imports_no_torch() -> None:
    modules = sorted(path.stem for path in (ROOT / "worker/algorithms").glob("*.py") if path.stem != "__init__")
    assert modules
    statement = "; ".join(f"import worker.algorithms.{module}" for module in modules)
    assert loaded_by(statement, "torch", "transformers") == []


def test_the_package_for_scripts_loads_nothing_large() -> None:
    assert loaded_by("import groupscope", "torch", "transformers", "fastapi", "streamlit", "pyarrow", "numpy") == []


@pytest.mark.slow
def test_the_backend_imports_neither_torch_nor_streamlit() -> None:
    assert loaded_by("import backend.app", "torch", "transformers", "streamlit", "datasets") == []
