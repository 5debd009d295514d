"""A person's own rewards: what a folder offers, what is refused, how functions are called, and what a failure costs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from scorers import error, raws

from backend.contract.records import RewardFile
from backend.contract.reward import Python, Rewards
from backend.operations.new_reward import COMPLETION, GROUP, new_reward
from worker.rewards.resources import RewardResources, RewardUnavailable
from worker.rewards.reward_folder import RewardFolder
from worker.rewards.scoring import RewardScorer, Sample, Scores
from worker.tasks.items import Item

pytestmark = pytest.mark.slow  # each starts a process

CHAT = Item(
    "dataset:1", "And 2 + 2?", ({"role": "user", "content": "And 2 + 2?"},), "4", {"kind": "exact"}, {"level": 3}
)
RAW = Item("dataset:2", "2 + 2 = ", None, "4", {"kind": "exact"}, {"prompt": "2 + 2 = ", "answer": 4})
GOOD = "def reward(completion):\n    return len(completion)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "rewards"
    folder.mkdir()
    return folder


def offered(folder: Path, until: Callable[[list[RewardFile]], object] = bool) -> list[RewardFile]:
    """What the folder offers, once that is so."""
    with RewardFolder(folder) as own:
        return await_files(own, until)


def await_files(own: RewardFolder, condition: Callable[[list[RewardFile]], object]) -> list[RewardFile]:
    """What a folder under watch offers, once that is so: long before a file that hangs is given up, after 120 s."""
    wait_until(lambda: condition(own.files), f"{own.files} are other files", 60)
    return own.files


def scorer_of(folder: Path, *names: str, time_limit: float = 5.0, **python: object) -> RewardScorer:
    """By functions of the folder's `own.py`."""
    functions = [
        Python.model_validate({"name": one, "function": f"own.py:{one}", **python}) for one in names or ("reward",)
    ]
    return RewardScorer(
        Rewards(functions=functions, max_unscored=1.0, time_limit=time_limit), RewardResources(own=folder)
    )


def scored(folder: Path, item: Item, *texts: str, ids: tuple[int, ...] | None = (5, 6), **python: Any) -> Scores:
    with scorer_of(folder, **python) as scorer:
        scorer.load_own()
        return scorer.score([[Sample(text, 2, item, ids) for text in texts]])


def test_an_import_that_hangs_ends_even_if_the_worker_is_gone(folder: Path) -> None:
    (folder / "own.py").write_text("while True:\n    pass\n")
    code = "from worker.rewards import process; process.START_LIMIT = 0; process.main('worker.rewards.functions')"
    settings = {"functions": [], "time_limit": 1, "path": [], "own": str(folder), "texts": None, "describe": "own.py"}
    left = subprocess.run([sys.executable, "-c", code], input=json.dumps(settings) + "\n", text=True, timeout=60)
    assert left.returncode == -signal.SIGALRM


# ---- what is offered


def test_functions_are_offered_with_help_settings_and_the_unit_of_a_call(folder: Path) -> None:
    (folder / "own.py").write_text(
        "import json\nfrom shared import reward as imported_reward\n"
        "def reward(completion, answer=None, *, most=3, share=0.5, word='x', strict=True, other=None, end=float('inf')):\n"
        '    """Short ones."""\n    return 1\n'
        "def rare_reward(completions, topic, *, prompts, answer, log_metric=None, **columns):\n    return [1] * len(completions)\n"
        "def helper(completion):\n    return 0\ndef lower(text):\n    return text\nclass Judge:\n    def __call__(self, completions):\n        return []\n"
        "reward_by = Judge()\n_hidden = lambda completion: 1\n"
    )
    (folder / "shared.py").write_text(GOOD)
    own, shared = offered(folder, lambda files: len(files) == 2)
    assert own.error is None
    assert [one.model_dump() for one in own.functions] == [
        {
            "function": "own.py:reward",
            "help": "Short ones.",
            "unit": "completion",
            "arguments": {"most": 3, "share": 0.5, "word": "x", "strict": True},
            "needs": [],
        },
        {"function": "own.py:rare_reward", "help": "", "unit": "group", "arguments": {}, "needs": ["topic", "answer"]},
        {"function": "own.py:helper", "help": "", "unit": "completion", "arguments": {}, "needs": []},
    ]
    assert own.passed_over == {
        "imported_reward": "imported_reward comes from shared: write a function of this file that calls it",
        "lower": "line 10: lower takes neither completion (one text), completions (all of a prompt) nor solution_str (one text, as in verl); name a parameter so",
        "reward_by": "reward_by is a Judge: write a function (def) that calls it",
        "_hidden": "_hidden begins with _, as what is not for others does: rename it",
    }
    assert [one.function for one in shared.functions] == ["shared.py:reward"]


WRONG = [
    ("def reward(:\n", ", line 1: SyntaxError"),
    ("\nimport no_such_package\n", ", line 2: ModuleNotFoundError: No module named 'no_such_package'"),
    ("def f():\n    1 / 0\nf()\n", ", line 2: ZeroDivisionError"),
    ("raise SystemExit(3)\n", ", line 1: SystemExit: 3"),
    ("import os\nos._exit(3)\n", " cannot be imported: reward_crash: it ended its process (exit code 3)"),
    ("x = 1\n", " has no reward: write a function that takes completion (one text),"),
    ("def reward_é(completion):\n    return 1\n", ", line 1: reward_é has letters beyond a to z"),
    (f"def reward(completion, most=0x{'f' * 5000}):\n    return 1\n", ", line 1: the default of most in reward has too many digits"),
    ("def reward(completion):\n    return 1\nreward.__signature__ = 'none'\n", ", line 1: unexpected object 'none' in __signature__"),
    ("def reward(text):\n    return 1\n", ", line 1: reward takes neither completion"),
    ("def reward(completions, trainer_state):\n    return []\n", ", line 1: reward takes trainer_state, which only TRL's trainer has"),
    ("eval('1 +')\n", ", line 1: SyntaxError"),
    ("x = '\ud800'\n", " is not UTF-8 (byte 6)"),
    (f"x = '{'x' * 2**17}'\n", " is longer than 128 KiB"),
    ("def reward(completion, /):\n    return 1\n", ", line 1: reward takes parameters by their places alone; each is given by its name: leave out the /"),
]  # fmt: skip


def test_what_is_wrong_with_a_file_is_said_with_its_line_and_costs_no_other(folder: Path) -> None:
    names = [f"own_{place:02}.py" for place in range(len(WRONG))]
    for name, (text, _) in zip(names, WRONG, strict=True):
        (folder / name).write_bytes(text.encode(errors="surrogatepass"))
    (folder / "well.py").write_text(f"\ufeff{GOOD}")  # a byte order mark is not wrong
    *wrong, well = offered(folder, lambda files: len(files) == len(WRONG) + 1)
    for file, name, (_, says) in zip(wrong, names, WRONG, strict=True):
        assert (file.error or "").startswith(name + says)
        assert not file.functions
    assert [one.function for one in well.functions] == ["well.py:reward"]


def test_what_is_called_like_a_file_and_is_none_or_like_a_package_is_refused_with_the_reason(folder: Path) -> None:
    (folder / "a_folder.py").mkdir()
    os.mkfifo(folder / "a_pipe.py")
    packages = ["json.py", "numpy.py", "pydantic.py", "worker.py"]
    for name in packages:
        (folder / name).write_text(GOOD)
    found = {one.name: one.error for one in offered(folder, lambda files: len(files) == 6)}
    no_file = {
        name: f"{name} is not a file, and nothing of it is read: rename or remove it"
        for name in ("a_folder.py", "a_pipe.py")
    }
    taken = "has the name of a package that is installed here, which would be taken for it: rename the file"
    assert found == no_file | {name: f"{name} {taken}" for name in packages}


def test_an_edit_a_repaired_import_and_a_removal_are_seen(folder: Path) -> None:
    (folder / "own.py").write_text("import shared\n" + GOOD)
    with RewardFolder(folder) as own:
        await_files(own, lambda files: files and files[0].error)
        (folder / "shared.py").write_text(GOOD)
        await_files(own, lambda files: len(files) == 2 and not files[0].error)
        first = own.files[0].texts
        assert set(first) == {"own.py", "shared.py"}
        (folder / "shared.py").write_text(GOOD + "\nmore = 1\n")
        await_files(own, lambda files: files[0].texts != first)
        (folder / "own.py").unlink()
        await_files(own, lambda files: [one.name for one in files] == ["shared.py"])


def test_a_module_of_a_runs_path_is_named_with_its_line_until_it_is_mended(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    (path / "words_of_all.py").write_text("WORDS = 3\nmore = (\n")
    (folder / "own.py").write_text("import json\nfrom words_of_all import WORDS\n" + GOOD)
    with RewardFolder(folder, path) as own:
        await_files(own, bool)
        assert (own.files[0].error or "").startswith(f"{path / 'words_of_all.py'}, line 2: SyntaxError")
        (path / "words_of_all.py").write_text("WORDS = 3\n")
        await_files(own, lambda files: not files[0].error)
        assert [one.function for one in own.files[0].functions] == ["own.py:reward"]


def test_a_file_is_imported_by_a_run_within_the_bounds_in_which_it_was_described(folder: Path) -> None:
    (folder / "own.py").write_text(f"bytearray(8 * 2**30)\n{GOOD}")
    [own] = offered(folder)
    assert (own.error or "").startswith("own.py, line 1: MemoryError")
    with pytest.raises(RewardUnavailable, match=r"^own\.py cannot be imported: own\.py, line 1: MemoryError"):
        scored(folder, RAW, "a")


HANGS = "while True: pass\n"


def change_last(file: Path) -> None:
    """Its change is the latest of all, whatever is changed after it."""
    later = time.time_ns() + 10**12
    os.utime(file, ns=(later, later))


def test_a_file_that_hangs_keeps_no_other_waiting_and_is_read_again_once_it_is_edited(folder: Path) -> None:
    (folder / "hangs.py").write_text(HANGS)
    with RewardFolder(folder) as own:
        (folder / "well.py").write_text(GOOD)
        await_files(own, lambda files: [one.name for one in files] == ["well.py"])
        (folder / "hangs.py").write_text(GOOD)
        await_files(own, lambda files: [one.name for one in files] == ["hangs.py", "well.py"])


@pytest.mark.thorough
def test_two_files_that_hang_keep_no_new_edited_or_mended_one_waiting(folder: Path, tmp_path: Path) -> None:
    """As many as are read at once."""
    (folder / "mended.py").write_text("def reward(:\n")
    (folder / "well.py").write_text(GOOD)
    with RewardFolder(folder) as own:
        await_files(own, lambda files: len(files) == 2)
        for name in "ab":
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w')\n{HANGS}")
            change_last(folder / f"{name}.py")
        await_files(own, lambda _: (tmp_path / "a").exists() and (tmp_path / "b").exists())
        (folder / "new.py").write_text(GOOD)
        await_files(own, lambda files: [one.name for one in files] == ["mended.py", "new.py", "well.py"])
        earlier = own.files[2].texts
        (folder / "well.py").write_text(f"more = 1\n{GOOD}")
        await_files(own, lambda files: files[2].texts != earlier)
        (folder / "mended.py").write_text(GOOD)
        await_files(own, lambda files: files[0].error is None)


@pytest.mark.thorough
def test_files_that_failed_and_hang_now_wait_for_all_others(folder: Path, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        hangs_later = f"while pathlib.Path({str(tmp_path / 'hang')!r}).exists(): pass\nraise ValueError\n"
        (folder / name).write_text(f"import pathlib\n{hangs_later}")
    (folder / "well.py").write_text(GOOD)
    with RewardFolder(folder) as own:
        await_files(own, lambda files: len(files) == 3)
        (tmp_path / "hang").touch()
        for name in ("a.py", "b.py"):
            change_last(folder / name)
        earlier = own.files[2].texts
        (folder / "well.py").write_text(f"more = 1\n{GOOD}")
        await_files(own, lambda files: files[2].texts != earlier)


def test_an_error_of_the_system_ends_no_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    started = subprocess.Popen

    def no_processes_at_first(*given: Any, **named: Any) -> Any:
        begun.append("")
        if len(begun) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return started(*given, **named)

    monkeypatch.setattr(subprocess, "Popen", no_processes_at_first)
    (folder / "own.py").write_text(GOOD)
    [own] = offered(folder)
    assert own.error is None
    assert len(begun) == 2


# ---- what is refused


def a_link_out(folder: Path) -> None:
    (folder / "own.py").unlink()
    (folder.parent / "elsewhere.py").write_text(GOOD)
    (folder / "own.py").symlink_to(folder.parent / "elsewhere.py")


def a_linked_folder(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


REFUSALS: list[tuple[Callable[[Path], None], str]] = [
    (
        lambda folder: folder.chmod(0o777),
        "/rewards is not used, since other users can write to it: chmod go-w it, and set umask 022",
    ),
    (lambda folder: (folder / "own.py").chmod(0o664), "own.py is not used, since other users can write to it"),
    (a_link_out, "own.py is a link out of the folder"),
    (a_linked_folder, "is not used, since it is not a directory"),
    (lambda folder: os.chown(folder / "own.py", 12345, -1), "own.py is not used, since it belongs to another user"),
]


@pytest.mark.parametrize(("spoil", "says"), REFUSALS if os.geteuid() == 0 else REFUSALS[:-1])
def test_what_others_could_change_is_not_run(folder: Path, spoil: Callable[[Path], None], says: str) -> None:
    (folder / "own.py").write_text(f"open({str(folder.parent / 'ran')!r}, 'w')\n" + GOOD)
    spoil(folder)
    [own] = offered(folder)
    assert says in (own.error or "")
    with pytest.raises(RewardUnavailable) as caught:
        scored(folder, CHAT, "a")
    assert says in caught.value.message
    assert caught.value.message.startswith(("The folder /", "own.py "))
    assert not (folder.parent / "ran").exists()


# ---- how a function is called


TWO_CHATS = {
    "prompts": [[{"role": "user", "content": "And 2 + 2?"}]] * 2,
    "completions": [[{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "b"}]],
    "completion_ids": [[5, 6], [5, 6]],
    "level": [3, 3],
}
TWO_TEXTS = {"prompts": ["2 + 2 = "] * 2, "completions": ["a", "b"], "completion_ids": [[5, 6]] * 2, "answer": [4, 4]}
WHOLE = (
    "def reward(**given):\n    return [float(list(given.items()) == list({!r}.items()))] * len(given['completions'])\n"
)
NAMED = (
    "def reward(completion, prompt, answer, level, *, bonus=1.0):\n"
    "    assert (prompt, answer, level) == ('And 2 + 2?', '4', 3)\n    return len(completion) + bonus\n"
)
LENGTHS = (
    "def reward(completions, **columns):\n    return [len(one) * len(columns['prompts']) for one in completions]\n"
)
ANSWERED = "def reward(completion, answer):\n    return answer == {!r}\n"
NO_ANSWER = Item("dataset:4", "2 + 2 = ", None, None, {"kind": "exact"}, {"answer": 7})
CALLED_LIKE_A_CALL = replace(RAW, columns={"completions": "a cell", "prompts": "", "answer": 4})


VERL = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info) == ("gsm8k", {"index": 3})
    return {"score": float(solution_str == ground_truth), "acc": 1}
"""
OF_VERL = replace(CHAT, columns={"data_source": "gsm8k", "extra_info.index": 3})
UNSLOTH = """def check_answer(prompts, completions, answer, **kwargs):
    asked, said = prompts[0][-1]["content"], [one[0]["content"] for one in completions]
    return [3.0 if one == right else -1.5 for one, right in zip(said, answer)]
"""
AS_GROUP: dict[str, Any] = {"unit": "group"}
CALLS: dict[str, tuple[str, Item, str, dict[str, Any], list[float | None]]] = {
    "what it names": (NAMED, CHAT, "a bb", {"arguments": {"bonus": 0.5}}, [1.5, 2.5]),
    "a group as TRL calls it": (WHOLE.format(TWO_CHATS), CHAT, "a b", AS_GROUP, [1.0, 1.0]),  # takes any, and so lists
    "a group of texts": (WHOLE.format(TWO_TEXTS), RAW, "a b", AS_GROUP, [1.0, 1.0]),
    "a coroutine": ("async def reward(completions):\n    return [3.0] * 3\n", CHAT, "a b c", AS_GROUP, [3.0] * 3),
    "an array": ("def reward(completions):\n    import numpy; return numpy.arange(2)\n", CHAT, "a b", AS_GROUP, [0, 1]),
    "no score for some": (
        "def reward(completions):\n    return (1, None, float('nan'))\n", CHAT, "a b c", AS_GROUP, [1.0, None, None]
    ),
    "the reference answer": (ANSWERED.format("4"), replace(NO_ANSWER, answer="4"), "a", {}, [1.0]),
    "else the column answer": (ANSWERED.format(7), NO_ANSWER, "a", {}, [1.0]),
    "a column wins over a setting": (
        "def reward(completion, *, level=0):\n    return level\n", CHAT, "a", {"arguments": {"level": 7}}, [3.0]
    ),
    "columns called like a call": (LENGTHS, CALLED_LIKE_A_CALL, "four a", AS_GROUP, [8.0, 2.0]),
    "a byte order mark": (f"\ufeff{GOOD}", RAW, "abc", {}, [3.0]),
    "as verl": (VERL, OF_VERL, "4 5", {"function": "own.py:compute_score"}, [1.0, 0.0]),
    "as Unsloth": (UNSLOTH, CHAT, "4 5", AS_GROUP | {"function": "own.py:check_answer"}, [3.0, -1.5]),
    "the answer by another name": ("def reward(completion, label, target=None):\n    return label == target == '4'\n", CHAT, "a", {}, [1.0]),
    "its group": ("def reward(completions, solution, **_):\n    return [float(one) for one in solution]\n", CHAT, "a b", AS_GROUP, [4.0, 4.0]),
    "a setting called like an answer": ("def reward(completion, *, target=3):\n    return target\n", CHAT, "a", {"arguments": {"target": 5}}, [5.0]),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_function_is_called_with_what_it_names_and_may_return(folder: Path, what: str) -> None:
    text, item, completions, how, want = CALLS[what]
    (folder / "own.py").write_text(text)
    assert raws(scored(folder, item, *completions.split(), **how)) == want


@pytest.mark.parametrize(
    ("text", "ids", "says"),
    [
        (
            "def reward(completion, topic):\n    return 1\n",
            (5, 6),
            "it takes topic, and what it is called with is answer, completion, prompt",
        ),
        (
            "def reward(completions, completion_ids=()):\n    return [len(completion_ids)]\n",
            None,
            "takes completion_ids, which no sample keeps: press Sample again",
        ),
        ("def reward(completion):\n    import shared\n    return 1\n", (5, 6), "import shared at the top of the file"),
    ],
    ids=["a column that the data lacks", "tokens that are not known", "an import after the beginning"],
)
def test_a_call_that_cannot_be_is_said_to_be_none(
    folder: Path, text: str, ids: tuple[int, ...] | None, says: str
) -> None:
    (folder / "own.py").write_text(text)
    (folder / "shared.py").write_text("x = 1\n")
    assert says in error(scored(folder, RAW, "a", ids=ids))


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"arguments": {"least": 3}}, "own.py:reward has no parameter 'least'"),
        ({"arguments": {"completion": "x"}}, "gets 'completion' with each call"),
        ({"arguments": {"topic": "x"}}, "gets 'topic' with each call"),
        ({"function": "own.py:lower"}, "own.py has no reward lower: line 6: lower takes neither completion"),
        *(
            ({"function": f"own.py:{name}"}, f"own.py has no reward {name}")
            for name in ("system", "reward_imported", "reward_value", "no_such")
        ),
    ],
)
def test_a_setting_is_one_that_the_function_has_and_a_function_one_of_the_files_own_rewards(
    folder: Path, asked: dict[str, Any], refused: str
) -> None:
    (folder / "shared.py").write_text("def reward_imported(completion):\n    return 1\n")
    (folder / "own.py").write_text(
        "from os import system\nfrom shared import reward_imported\nreward_value = 3\n"
        "def reward(completion, topic, answer=None, *, most=3):\n    return 1\n"
        "def lower(text):\n    return text\n"
    )
    with pytest.raises(RewardUnavailable, match=refused):
        scored(folder, CHAT, "a", **asked)


def test_a_failed_call_for_many_says_why_and_long_files_are_read(folder: Path) -> None:
    (folder / "helper.py").write_text("#" + "ä" * 60_000 + "\ndef words():\n    raise ValueError('ä' * 3000)\n")
    (folder / "own.py").write_text(
        "#" + "ä" * 60_000 + "\nfrom helper import words\ndef reward(completions):\n    return words()\n"
    )
    scores = scored(folder, CHAT, *map(str, range(64)), unit="group")
    for at in range(64):
        assert error(scores, at).startswith("reward_error: helper.py, line 3: ValueError: ä")


# ---- what a failure costs


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("1 / 0", "reward_error: own.py, line 3: ZeroDivisionError"),
        pytest.param(
            "import time; time.sleep(60)", "reward_timeout: it took longer than 2 s", marks=pytest.mark.thorough
        ),
        ("import os; os._exit(1)", "reward_crash: it ended its process (exit code 1)"),
        ("'x'.encode('utf-16').decode('ascii')", "reward_error: own.py, line 3: UnicodeDecodeError"),
    ],
)
def test_a_group_that_fails_is_unscored_whole_and_no_other(folder: Path, fails: str, says: str) -> None:
    (folder / "own.py").write_text(
        f"def reward(completions):\n    if completions[0] == 'x':\n        {fails}\n    return [1.0] * len(completions)\n"
    )
    other = Item("dataset:3", "more", None, None, {"kind": "exact"})
    samples = [[Sample(text, 1, RAW) for text in "xa"], [Sample(text, 1, other) for text in "bc"]]
    with scorer_of(folder, unit="group", time_limit=1.0) as scorer:
        scores = scorer.score(samples)
    assert raws(scores) == [None, None, 1.0, 1.0]
    assert error(scores, 0).startswith(says)
    assert error(scores, 1).startswith(says)


def test_an_attempt_is_scored_by_the_text_with_which_it_began(folder: Path) -> None:
    (folder / "own.py").write_text(
        "import os\ndef reward(completion):\n    os._exit(1) if completion == 'x' else None\n    return 1\n"
    )
    with scorer_of(folder) as scorer:
        first = scorer.load_own()
        (folder / "own.py").write_text("def reward(completion):\n    return 2\n")
        scores = scorer.score([[Sample(one, 1, RAW) for one in ("a", "x", "b")]])
        assert scorer.load_own() == first
    assert raws(scores) == [1.0, None, 1.0]


PUTS_FOLDER_FIRST = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
LOADS_BY_PATH = (
    "import importlib.util, os\n"
    "spec = importlib.util.spec_from_file_location('other', os.path.join(os.path.dirname(__file__), 'hidden.py'))\n"
    "hidden = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(hidden)\n"
)
BY_HELPER = "def reward(completion):\n    return hidden.SCORE\n"


def test_a_module_of_the_folder_that_is_found_over_the_path_is_kept_too(folder: Path) -> None:
    (folder / "own.py").write_text(f"{PUTS_FOLDER_FIRST}import hidden\n{BY_HELPER}")
    (folder / "hidden.py").write_text("SCORE = 1\n")
    with scorer_of(folder) as scorer:
        assert {one.name for one in scorer.load_own()} == {"hidden.py", "own.py"}
    assert raws(scored(folder, RAW, "a")) == [1.0]
    [_, own] = offered(folder, lambda files: len(files) == 2)
    assert set(own.texts) == {"hidden.py", "own.py"}
    (folder / "hidden.py").chmod(0o664)
    with pytest.raises(RewardUnavailable, match="other users can write to it"):
        scored(folder, RAW, "a")
    assert {file.name for file in folder.iterdir()} == {"hidden.py", "own.py"}


@pytest.mark.parametrize(
    ("text", "helper"),
    [
        (LOADS_BY_PATH, "hidden.py"),
        (f"{PUTS_FOLDER_FIRST}from deep import hidden\n", "deep/hidden.py"),
        (f"{PUTS_FOLDER_FIRST}sys.path.insert(0, os.path.join(sys.path[0], 'deep'))\nimport hidden\n", "deep/hidden.py"),
        ("import os\npath = os.path.join(os.path.dirname(__file__), 'hidden.py')\nexec(compile(open(path).read(), path, 'exec'))\n", "hidden.py"),
    ],
    ids=["loaded by its path", "in a folder of the folder", "found in a folder of the folder", "compiled"],
)  # fmt: skip
@pytest.mark.thorough
def test_code_of_the_folder_that_no_run_would_keep_is_refused(folder: Path, text: str, helper: str) -> None:
    (folder / "own.py").write_text(text + BY_HELPER)
    (folder / "deep").mkdir()
    (folder / helper).write_text("SCORE = 1\n")
    own = offered(folder, lambda files: files and files[-1].name == "own.py")[-1]
    assert f"ImportError: {helper} would run without being kept with the run" in (own.error or "")
    with pytest.raises(RewardUnavailable, match="would run without being kept"):
        scored(folder, RAW, "a")
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize("unit", ["completion", "group"])
@pytest.mark.thorough
def test_what_a_reward_changes_reaches_the_next_one_unchanged(folder: Path, unit: str) -> None:
    many = "s" if unit == "group" else ""
    score = "[len(steps[0])] * len(completions)" if many else "len(steps)"
    (folder / "own.py").write_text(
        f"def reward_first(completion{many}, steps, prompt{many}, **rest):\n    score = {score}\n"
        f"    {'steps[0]' if many else 'steps'}.clear()\n    {'prompts[0].clear()' if many else 'pass'}\n    return score\n"
        f"def reward_second(completion{many}, steps, prompt{many}, **rest):\n"
        f"    assert {'prompts[0]' if many else 'prompt'}\n    return {score}\n"
    )
    item = replace(CHAT, columns={"steps": [1, 2, 3]})
    with scorer_of(folder, "reward_first", "reward_second", unit=unit) as scorer:
        scorer.load_own()
        [parts] = scorer.score([[Sample("a", 2, item, (5,))]]).components
    assert [one.raw for one in parts] == [3.0, 3.0]


# ---- the template


@pytest.mark.parametrize(("group", "want"), [(False, [1.1, 0.0]), (True, [0.5, 0.5])], ids=["completion", "group"])
def test_the_template_is_a_reward(tmp_path: Path, group: bool, want: list[float]) -> None:
    file = new_reward(tmp_path / "home", "own", group=group)
    assert file.read_text() == (GROUP if group else COMPLETION).format(name="own")
    assert raws(scored(file.parent, RAW, "4", "5", unit="group" if group else "completion")) == want
    [own] = offered(file.parent)
    assert own.error is None
    assert own.functions[0].help
