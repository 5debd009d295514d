"""What nodes know of each other: who is there, what is announced, how it ended, and who is gone."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import DEFAULT, Mock, patch

import pytest
import torch
from processes import free_port, wait_until
from wire import claimed

from backend.contract.home import CannotStart, load
from backend.contract.protocol import Fail
from backend.contract.records import Rank, RunError
from worker import follower
from worker.ranks import nodes
from worker.ranks.nodes import Announced, Followers, Leader, parts_of
from worker.settings import Settings

pytestmark = pytest.mark.slow

FAIL = Fail(attempt=1, error=RunError(code="prompt_too_long", message="Shorten it."), retryable=False)


def announced(*parts: tuple[int, int]) -> Announced:
    return Announced(
        claim=claimed({"kind": "grpo"}), store="/here#1", resume=None, shards=2, patience=60, parts=list(parts)
    )


Pair = tuple[Followers, Leader]
EACH_ONE = announced((0, 1), (1, 1))


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, "the nodes know it", longest_pause=0.02)


def never(*_: object) -> bool:
    return False


@pytest.fixture
def address() -> Iterator[str]:
    with patch.multiple(nodes, _LOOK_SECONDS=0.02, _PULSE_SECONDS=0.1, _LOST_SECONDS=3.0, _GOODBYE_SECONDS=0.5):
        yield f"127.0.0.1:{free_port()}"


@pytest.fixture
def nodes_that_end() -> Iterator[ExitStack]:
    """Closed whatever happens: a node that goes on after its test ends the interpreter with a crash."""
    with ExitStack() as nodes:
        yield nodes


@pytest.fixture
def pair(address: str) -> Iterator[Pair]:
    """What node 0 knows of one other node, which has come, and what that one knows of node 0."""
    followers, leader = Followers(2, address, 2), Leader(1, address, 2)
    until(lambda: not followers.missing)
    yield followers, leader
    leader.close()
    followers.close(0)


def test_an_upload_is_fetched_once_for_the_processes_of_a_node(tmp_path: Path) -> None:
    settings, devices = load(Settings, home=tmp_path, node_rank=1, nodes=2, rendezvous="a:1"), [torch.device("cpu")] * 2
    upload = Mock(return_value=b"rows")
    with patch.multiple(follower, _place=never, run_ranks=DEFAULT, _upload=upload) as patched:
        follower._train(Mock(), Mock(), 1, announced((0, 1), (1, 2)), settings, devices)
        upload_content = patched["run_ranks"].call_args.kwargs["answers"]["upload_content"]
        assert [upload_content(3), upload_content(3)] == [b"rows"] * 2
        upload.assert_called_once_with(settings, 3)


def test_processes_are_dealt_to_as_many_nodes_as_they_need() -> None:
    assert parts_of(5, 2) == [(0, 2), (2, 2), (4, 1)]
    assert parts_of(2, 2) == [(0, 2)]


def test_a_run_is_announced_to_those_that_have_a_part_of_it_and_ends_with_node_0s(
    address: str, nodes_that_end: ExitStack
) -> None:
    followers = Followers(3, address, 2)
    nodes_that_end.callback(followers.close, 0)
    one, two = (nodes_that_end.enter_context(closing(Leader(node, address, 2))) for node in (1, 2))
    until(lambda: not followers.missing)
    heard = list[tuple[int, Rank]]()
    with followers.run(announced((0, 2), (2, 1)), lambda *said: heard.append(said)) as part:
        assert (part.first, part.total, part.elsewhere()) == (0, 3, None)
        number, read = one.next() or (0, None)
        assert read == announced((0, 2), (2, 1))
        assert one.next() is None
        assert two.next() is None
        theirs = one.part(number, read, never)
        assert (theirs.first, theirs.total, theirs.meeting, theirs.elsewhere()) == (2, 3, part.meeting, None)
        for phase in ("rollout", "update"):
            one.pass_on(number, 2, Rank(rank=2, phase=phase))
            until(lambda phase=phase: part.elsewhere() or (heard and heard[-1][1].phase == phase))
        assert [(rank, said.phase) for rank, said in heard] == [(2, "rollout"), (2, "update")], "said once, heard once"
        for lost in (True, False):
            one.report(number, FAIL, lost=lost)
            until(lambda lost=lost: part.elsewhere() == (2, FAIL, lost))  # the store does not say when it has taken it
    rank, _, lost = theirs.elsewhere() or (None, None, None)
    assert (rank, lost) == (0, True)
    late = nodes_that_end.enter_context(closing(Leader(1, address, 2)))
    assert late.next() is None, "it goes on without a node that comes later"
    began = time.monotonic()
    followers.close(75)
    assert time.monotonic() - began > 0.4, "nobody has heard it yet"
    assert (one.goodbye(), two.goodbye()) == (75, 75)


def test_a_node_that_is_silent_or_started_again_ends_the_attempt(pair: Pair, address: str) -> None:
    followers, first = pair
    with followers.run(EACH_ONE, never) as part:
        second = Leader(1, address, 2)
        until(part.elsewhere)
    until(lambda: first.gone)
    assert first.displaced
    assert not second.displaced
    until(lambda: not followers.missing)
    with followers.run(EACH_ONE, never) as part:
        assert part.elsewhere() is None
        second.close()
        until(part.elsewhere)
        (_, fail, lost) = part.elsewhere() or (0, FAIL, True)
        assert (fail.error.code, fail.retryable, lost) == ("rank_died", True, False)
    assert followers.missing == [1]


def test_a_node_that_may_have_died_with_a_run_is_missing_until_it_is_heard_of_again(pair: Pair) -> None:
    followers, leader = pair
    with followers.run(EACH_ONE, never):
        leader.close()
        leader._thread.join()
        until(lambda: followers._heard[1][1] == followers._store.add("pulse/1", 0))
    assert followers.missing == [1]


def test_a_node_that_was_asked_to_end_lets_node_0_know(pair: Pair) -> None:
    followers, leader = pair
    leader.leave()
    until(lambda: followers.leaving)


def test_a_node_with_another_number_of_processes_is_refused_and_both_say_why(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    followers = Followers(2, address, 2)
    with pytest.raises(CannotStart, match="node 1 has --processes 1 and node 0 has 2") as refused:
        Leader(1, address, 1)
    until(lambda: str(refused.value) in caplog.text)
    assert followers.missing == [1]
    followers.close(0)


def test_a_meeting_place_that_nobody_knows_is_refused_in_words() -> None:
    with pytest.raises(CannotStart, match=r"--rendezvous\), no-such-machine.invalid:29400: .*not known|resolution"):
        Followers(2, "no-such-machine.invalid:29400", 1)


def test_a_store_on_a_port_that_is_taken_is_refused_in_words(address: str) -> None:
    host, port = address.split(":")
    with socket.create_server((host, int(port))), pytest.raises(CannotStart, match="--rendezvous"):
        Followers(2, address, 2)
    with pytest.raises(ConnectionError, match="does not answer"):
        Leader(1, address, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 2, "node_rank": 2, "rendezvous": "a:1"}, "count from 0"),
        ({"nodes": 2}, "needs GROUPSCOPE_RENDEZVOUS"),
        ({"nodes": 1024, "processes": 2, "rendezvous": "a:1"}, "more than 1024"),
        ({"nodes": 2, "rendezvous": "a"}, "RENDEZVOUS is wrong"),
        ({"executor": "ray", "ray_address": "a:1", "once": True}, "GROUPSCOPE_ONCE"),
        *(
            ({"executor": "ray", "ray_address": address}, "GROUPSCOPE_RAY_ADDRESS")
            for address in ("head:0", "head:65536", None, "ray://head:10001", "head", "auto")
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_in_words(given: dict[str, object], words: str) -> None:
    with pytest.raises(CannotStart, match=words):
        load(Settings, **given)
