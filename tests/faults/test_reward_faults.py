"""Whatever a reward does, in a real run: never silently 0, the lease never lost, no process left behind."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import Site, assert_failed, error_of, tiny_run, wait_until

from backend.contract.groups import CompletionRecord, RewardScore
from backend.contract.records import Run
from backend.contract.reward import Python, Rewards
from worker.rewards.resources import RewardResources
from worker.rewards.scoring import RewardContractError, RewardScorer, Sample
from worker.tasks.items import Item

pytestmark = pytest.mark.slow

MODULE = "misbehaving_rewards"
LEASE_SECONDS = 2.0
LONGER_THAN_THE_LEASE = 3.0
# Seconds for what does not end by itself; whatever does has long enough on any machine.
HANGS, ENDS = 1.0, 60.0
# What goes wrong once in a run of eight completions -> how the error begins
UNSCORED = {
    "hang": "reward_timeout: ",
    "hang_without_the_interpreter": "reward_timeout: ",
    "backtrack": "reward_timeout: ",
    "sleep": "reward_timeout: ",
    "print_without_end": "reward_timeout: ",
    "divide_by_zero": "reward_error: ZeroDivisionError: division by zero",
    "exit_softly": "reward_error: SystemExit: 3",
    "fill_the_disk": "reward_error: OSError: [Errno 27] File too large",
    "exit_at_once": "reward_crash: it ended its process (exit code 0)",
    "segfault": "reward_crash: it ended its process (SIGSEGV)",
    "nan": "reward_value: it returned nan",
    "infinity": "reward_value: it returned inf",
    "none": "reward_value: it returned None",
    "too_large": "reward_value: it returned 1e+308",
}
BROKEN = {
    "a_text": "str of length 1",
    "a_text_in_a_list": "str of length 1",
    "one_too_many": "list of length 2",
    "one_too_few": "list of length 0",
    "a_bare_number": "float",
    "a_table": "dict of length 1",
}
OTHERS = ("fork", "always_raise", "not_there")


class Misbehaving:
    """A site whose worker allows all of these functions; a run of each waits in its queue from the beginning."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        site.backend()
        self.runs = {name: site.client.create_run(one_step(name)).id for name in (*UNSCORED, *BROKEN, *OTHERS)}
        self.plain = site.client.create_run(tiny_run(1, every=0)).id
        self.worker = psutil.Process(site.worker().pid)

    def end(self, name: str) -> Run:
        return self.site.wait_for_end(self.runs[name])

    def completions(self, run: Run) -> list[CompletionRecord]:
        client = self.site.client
        return [one for group in client.groups(run.id).items for one in client.group(group.id).completions]

    def reward_processes(self) -> list[psutil.Process]:
        """Those of this site, wherever in the tree they hang: their TMPDIR is the site's own."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return "worker.rewards.process" in " ".join(process.cmdline()) and (
                process.environ().get("TMPDIR") == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


def seconds_for(name: str) -> float:
    return HANGS if UNSCORED.get(name, "").startswith("reward_timeout") else ENDS


def one_step(name: str) -> dict[str, object]:
    """Eight completions, of which one may stay unscored."""
    limit = LONGER_THAN_THE_LEASE if name == "hang_without_the_interpreter" else seconds_for(name)
    function = {"name": "mine", "kind": "python", "function": f"{MODULE}:{name}", "weight": 2.0}
    return tiny_run(1, every=0, rewards={"functions": [function], "time_limit": limit}, telemetry={"probe_prompts": 0})


@pytest.fixture(scope="module")
def misbehaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Misbehaving]:
    folder = tmp_path_factory.mktemp("rewards")
    shutil.copy(Path(__file__).with_name(f"{MODULE}.py"), folder)
    with pytest.MonkeyPatch.context() as environment:
        allowed = [f"{MODULE}:{name}" for name in (*UNSCORED, *BROKEN, *OTHERS)]
        environment.setenv("TMPDIR", str(folder))
        how = {"reward_functions": ", ".join(allowed), "reward_path": folder}
        site = Site(folder / "home", lease_seconds=LEASE_SECONDS, **how)
    try:
        yield Misbehaving(site, folder)
    finally:
        site.close()


@pytest.mark.parametrize(("name", "begins"), UNSCORED.items())
def test_what_is_no_score_leaves_that_completion_unscored_and_the_run_goes_on(
    misbehaving: Misbehaving, name: str, begins: str
) -> None:
    run = misbehaving.end(name)
    assert (run.status, run.error) == ("finished", None)
    assert (run.attempt, run.failures) == (1, 0)  # the lease was never lost
    unscored, *scored = misbehaving.completions(run)
    assert unscored.reward is None  # never 0
    assert unscored.rewards[0].raw is None
    assert (unscored.rewards[0].error or "").startswith(begins)
    assert [one.reward for one in scored] == [2.0] * 7
    assert run.summary["reward"] == 2.0
    assert run.summary["frac_unscored"] == pytest.approx(1 / 8)


# For those that are left out a group's call ends as it does for these: by the time limit, by an error, or with the process.
CALLS = {
    name: UNSCORED[name]
    for name in ("hang", "hang_without_the_interpreter", "divide_by_zero", "exit_softly", "exit_at_once")
}


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        pytest.param(name, begins, marks=pytest.mark.thorough if name == "hang_without_the_interpreter" else ())
        for name, begins in CALLS.items()
    ],
)
def test_a_group_whose_call_goes_wrong_is_unscored_whole_and_says_so_and_the_next_is_scored(
    tmp_path: Path, name: str, begins: str
) -> None:
    [lost, scored] = two_groups(tmp_path, name)
    for one in lost:
        assert one.raw is None  # never 0
        error = one.error or ""
        assert error.startswith(begins.partition(": ")[0])
        assert "all 3 completions of the prompt" in error
    assert [one.raw for one in scored] == [1.0, 1.0]


@pytest.mark.parametrize(("name", "got"), {**BROKEN, "a_text_in_a_list": "list of length 1"}.items())
def test_a_group_needs_one_number_for_each_completion(tmp_path: Path, name: str, got: str) -> None:
    with pytest.raises(RewardContractError) as refusal:
        two_groups(tmp_path, name)
    assert "for each completion" in str(refusal.value)
    assert str(refusal.value).endswith(f"it returned a value of type {got}")


def two_groups(folder: Path, name: str) -> tuple[list[RewardScore], list[RewardScore]]:
    """What a group of three and a group of two get from a function of the folder of rewards that is called for whole groups."""
    own = folder / "rewards"
    own.mkdir()
    shutil.copy(Path(__file__).with_name(f"{MODULE}.py"), own)
    (own / "own.py").write_text(
        f"from {MODULE} import {name} as misbehaves\ndef reward(completions):\n    return misbehaves(completions=completions)\n"
    )
    mine = Python(name="mine", function="own.py:reward", unit="group")
    rewards = Rewards(functions=[mine], max_unscored=1.0, time_limit=seconds_for(name))
    items = [Item(prompt, prompt, None, None, {"kind": "exact"}) for prompt in ("one", "two")]
    groups = [
        [Sample(str(place), 1, item) for place in places]
        for item, places in zip(items, (range(3), range(3, 5)), strict=True)
    ]
    with RewardScorer(rewards, RewardResources(own=own)) as scorer:
        found = [parts[0] for parts in scorer.score(groups).components]
    return found[:3], found[3:]


@pytest.mark.parametrize(("name", "got"), BROKEN.items())
def test_what_is_no_list_of_one_number_fails_the_run_with_what_was_expected_and_what_came(
    misbehaving: Misbehaving, name: str, got: str
) -> None:
    run = misbehaving.end(name)
    said = assert_failed(run, "reward_contract", f"'mine' ({MODULE}:{name}) must return", "one number")
    assert said.endswith(f"it returned a value of type {got}")
    assert run.attempt == 1  # a mistake would be made again


def test_a_function_that_always_fails_or_is_not_there_fails_the_run_with_its_traceback_or_the_setting(
    misbehaving: Misbehaving,
) -> None:
    run = misbehaving.end("always_raise")
    assert_failed(run, "reward_errors", "LookupError: no such thing")
    assert f"{MODULE}.py" in (error_of(run).details or "")
    assert_failed(misbehaving.end("not_there"), "reward_unavailable", f"{MODULE}:not_there", "GROUPSCOPE_REWARD_PATH")


def test_a_function_that_forks_scores_and_leaves_nobody_behind(misbehaving: Misbehaving) -> None:
    run = misbehaving.end("fork")
    assert run.status == "finished"
    assert [one.reward for one in misbehaving.completions(run)] == [2.0] * 8


def test_a_reward_process_of_a_user_without_rights_starts_threads_while_it_imports_and_nothing_later() -> None:
    # the kernel binds root by no such limit, and these tests may run as root: nobody is someone else
    code = """
import encodings.utf_8_sig, os, tempfile
from pathlib import Path
from worker.rewards.own_modules import OwnModules
from worker.rewards.process import load
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "own.py").write_text(
        "import threading\\none = threading.Thread(target=int)\\none.start()\\none.join()\\ndef reward(completion):\\n    return 1"
    )
    function = {"kind": "python", "file": "own.py", "params": {"function": "own.py:reward", "arguments": {}}}
    load([function], OwnModules(Path(folder)))
    try:
        os.fork()
    except BlockingIOError:
        print("refused")
"""
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (asked.stdout, asked.stderr) == ("refused\n", "")


def test_a_reward_that_starts_a_process_or_a_thread_is_said_to_be_refused_and_what_to_do_instead() -> None:
    code = """
import os, subprocess, threading
from worker.rewards.functions import Completion
from worker.rewards.process import load, score
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
load([], None)
starts = [lambda _: subprocess.run(["true"]), lambda _: os.fork(), lambda _: threading.Thread(target=int).start()]
starts.append(lambda _: (_ for _ in ()).throw(BlockingIOError(11, "a socket")))
for start in starts:
    print(score(start, [Completion("a", 1, None, {})], 5.0, None)[0]["error"].partition("\\n")[0])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *started, other = ran.stdout.splitlines()
    says = (
        "reward_error: a reward may start neither processes nor threads, which would outlive it: check in Python itself"
    )
    assert [line.startswith(says) for line in started] == [True] * 3
    assert other == "reward_error: BlockingIOError: [Errno 11] a socket"


def test_after_all_of_it_the_same_worker_trains_on_and_no_process_is_left(misbehaving: Misbehaving) -> None:
    assert misbehaving.site.wait_for_end(misbehaving.plain).status == "finished"
    assert misbehaving.worker.is_running()
    wait_until(lambda: not misbehaving.reward_processes(), "no reward process is left", patience=10)
    assert (misbehaving.folder / "large").stat().st_size <= 16 * 2**20


def test_a_function_that_no_worker_allows_leaves_its_run_in_the_queue(misbehaving: Misbehaving) -> None:
    client = misbehaving.site.client
    run = client.create_run(one_step("nobody_allowed_this"))
    assert misbehaving.site.run_to_end(tiny_run(1, every=0)).status == "finished"
    assert client.run(run.id).status == "queued"
    preflight = client.preflight(one_step("nobody_allowed_this"))
    assert any("GROUPSCOPE_REWARD_FUNCTIONS" in message.text for message in preflight.messages)
