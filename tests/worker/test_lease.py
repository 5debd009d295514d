"""Heartbeats: what they tell of the folder of rewards, and when."""

from threading import Condition

from wire import Wire, claimed

from backend.contract.protocol import Heartbeat, HeartbeatReply
from backend.contract.records import RewardFile
from worker.lease import Lease


class Beats(Wire):
    """A backend that keeps what heartbeats say of reward files."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[list[RewardFile] | None] = []
        self.came = Condition()

    def heartbeat(self, run_id: int, beat: Heartbeat) -> HeartbeatReply:
        with self.came:
            self.files.append(beat.reward_files)
            self.came.notify_all()
        return super().heartbeat(run_id, beat)


def test_the_first_heartbeat_tells_what_the_folder_offers_and_a_later_one_what_has_changed() -> None:
    """A file that changes while the claim is under way would not be told otherwise."""
    wire, first, second = Beats(), [RewardFile(name="one.py")], [RewardFile(name="two.py")]
    offered = [first]
    claim = claimed({"kind": "sample"}, lease_seconds=0.04)
    with Lease(wire, claim, "one", lambda: offered[-1]), wire.came:
        assert wire.came.wait_for(lambda: len(wire.files) > 1, timeout=20)
        offered.append(second)
        assert wire.came.wait_for(lambda: second in wire.files and wire.files[-1] is None, timeout=20)
    assert wire.files[0] == first
    assert [files for files in wire.files if files is not None] == [first, second]
