"""The list of mutants names code that stands in the product, each once, and tests that exist."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
from mutation import NotOnce, definitions, mutated

ROOT = Path(__file__).parents[2]
MUTANTS = tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]


def test_each_mutant_names_code_that_stands_once_and_changes_it() -> None:
    among, wrong = definitions(ROOT), list[str]()
    for mutant in MUTANTS:
        try:
            ast.parse(mutated(mutant, among)[1])
            assert ast.dump(ast.parse(mutant["code"])) != ast.dump(ast.parse(mutant["instead"])), "it changes nothing"
        except (NotOnce, SyntaxError, AssertionError) as error:
            wrong.append(f"{mutant['name']}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_tests_of_each_mutant_exist() -> None:
    missing = [f"{one['name']}: {test}" for one in MUTANTS for test in one["test"].split() if marks(test) is None]
    assert not missing, "\n".join(missing)


def test_each_protection_is_listed_once() -> None:
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)


def test_the_first_ring_kills_at_least_300_mutants() -> None:
    """A parameter is named only if the first ring leaves it out (scripts/mutants.py)."""
    killed = [
        mutant["name"]
        for mutant in MUTANTS
        if any("[" not in test and "thorough" not in (marks(test) or "") for test in mutant["test"].split())
    ]
    assert len(killed) >= 300


@cache
def marks(test: str) -> str | None:
    """The marks of a test, its classes and its module, as they are written; None: there is no such test."""
    path, *names = test.partition("[")[0].split("::")
    if not (ROOT / path).is_file():
        return "" if (ROOT / path).is_dir() else None
    body = ast.parse((ROOT / path).read_text()).body
    assigned = (ast.unparse(node) for node in body if isinstance(node, ast.Assign))
    written = [assignment for assignment in assigned if assignment.startswith("pytestmark =")]
    for name in names:
        inside = {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if name not in inside:
            return None
        decorators = map(ast.unparse, inside[name].decorator_list)
        # A mark of some parameters leaves the others in the first ring.
        written += [mark for mark in decorators if not mark.startswith("pytest.mark.parametrize")]
        body = inside[name].body
    return " ".join(written)


LEASE = """
class Lease:
    def extend(self, now: float) -> None:
        if "ü" in self.notes and self.until < now:  # too late
            log("over")
            raise Lost("a", f"{self.until < now} over")
        log("extended")
"""
LATE = {"function": "Lease.extend", "code": "self.until < now", "instead": "False or 0"}


def mutant_of(folder: Path, mutant: dict[str, str], **modules: str) -> tuple[Path, str]:
    """The mutant of a product that has these modules."""
    for name, text in modules.items():
        path = folder / "worker" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return mutated(mutant, definitions(folder))


@pytest.mark.parametrize("function", ["Lease.extend", "lease.Lease.extend", "Lease", "lease"])
@pytest.mark.parametrize("code", ["self.until < now", "(self\n.until<now)  # another"], ids=["same", "otherwise"])
def test_a_mutant_changes_only_the_value_that_it_names(tmp_path: Path, function: str, code: str) -> None:
    _, text = mutant_of(tmp_path, LATE | {"function": function, "code": code}, lease=LEASE)
    assert text == LEASE.replace("self.until < now", "(False or 0)", 1)


def test_a_mutant_changes_statements_however_they_are_written(tmp_path: Path) -> None:
    mutant = LATE | {"code": "log('over')\nraise Lost('a', f'{self.until < now} over')", "instead": "if now:\n    pass"}
    source = LEASE.replace('log("over")', "log(  # a comment\n                'over'\n            )")
    _, text = mutant_of(tmp_path, mutant, lease=source)
    ahead, behind = LEASE.split('log("over")\n            raise Lost("a", f"{self.until < now} over")')
    assert text == f"{ahead}if now:\n                pass{behind}"


def test_a_mutant_outlives_a_move_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "backend/queue").mkdir(parents=True)
    (tmp_path / "backend/queue/lease.py").write_text(LEASE)
    mutant = LATE | {"function": "lease.Lease.extend"}
    before, text = mutated(mutant, definitions(tmp_path))
    (tmp_path / "groupscope").mkdir()
    (tmp_path / before).rename(tmp_path / "groupscope/lease.py")
    assert mutated(mutant, definitions(tmp_path)) == (Path("groupscope/lease.py"), text)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"function": "Lease.renew"}, "Nothing in the product is called Lease.renew: write the name"),
        ({"function": "Lease"}, "worker/a.py and worker/b.py: write the module before it"),
        ({"function": "a.Lease", "code": "self.since < now"}, "0 times, not once; write what protects there now"),
        ({"function": "a.Lease", "code": "log"}, "2 times, not once; write more of what stands around it"),
    ],
    ids=["lost", "two", "changed", "twice"],
)
def test_what_stands_nowhere_or_twice_is_named_with_what_to_do(
    tmp_path: Path, change: dict[str, str], advice: str
) -> None:
    with pytest.raises(NotOnce, match=advice):
        mutant_of(tmp_path, LATE | change, a=LEASE, b=LEASE)
