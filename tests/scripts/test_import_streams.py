"""prime-rl's layout since September 2026, written by the rules of its source (docs/trainers/verifiers.md), is read as written, also followed."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest
from importing import groups_of, imported, opened, recorded
from serving import Backend
from test_import_followed import at_once, begun  # noqa: F401 — a fixture of this module, too
from test_import_others import EPISODES, RUNS, completions_of, require_episodes, split

from backend.contract.records import Run

OLD = RUNS["prime-rl"]
LEARNED = ("advantages", "trainer_logprobs", "entropies")


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class FileMonitor:
    """Episodes as they arrive, updates by their producers, metrics, and chunks that are sealed."""

    def __init__(self, run: Path) -> None:
        self.monitor = run / "monitors" / "file"
        self.traces = self.monitor / "traces"

    def append(self, stream: str, chunk: int, *lines: Any) -> None:
        file = self.traces / stream / f"{chunk:05d}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as out, file.parent.with_name(f"{file.parent.name}.index.jsonl").open("a") as index:
            for line in lines:
                index.write(json.dumps({"chunk": chunk, "offset": out.tell()}) + "\n")
                out.write(json.dumps(line) + "\n")

    def metrics(self, *lines: Any) -> None:
        self.monitor.mkdir(parents=True, exist_ok=True)
        with (self.monitor / "metrics.jsonl").open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)

    def seal(self, stream: str, chunk: int, *, frame: int = 5000) -> None:
        """As seekable zstd: frames, and behind them in a frame that decoders skip their sizes."""
        file = self.traces / stream / f"{chunk:05d}.jsonl"
        raw = file.read_bytes()
        parts = [raw[at : at + frame] for at in range(0, len(raw), frame)]
        frames = [pa.compress(part, codec="zstd", asbytes=True) for part in parts]
        table = b"".join(struct.pack("<II", len(one), len(part)) for one, part in zip(frames, parts, strict=True))
        table += struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
        file.with_name(f"{file.name}.zst").write_bytes(
            b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(table)) + table
        )
        file.unlink()

    def step(self, step: int, *, chunk: int, again: str = "") -> None:
        """A step of the older layout: what arrived, what was trained on, what the trainer computed, and the metrics."""
        folder = OLD / "rollouts" / f"step_{step}"
        for kind in ("train", "eval"):
            if not (folder / kind).is_dir():
                continue
            arrived = lines_of(folder / kind / "all" / "traces.jsonl")
            shipped = {one["id"] for one in lines_of(folder / kind / "effective" / "traces.jsonl")}
            shipped |= {one["id"] for one in arrived if kind == "eval"}
            for one in arrived if again else ():
                for of in (one["group"], *one["traces"]):
                    of["id"] += again
            learned = [(one["id"], trace["id"], self._taken(trace, step)) for one in arrived for trace in one["traces"]]
            self.append("stream", chunk, *arrived)
            shipping = {"effective": True, "ship": {"step": step - (kind == "eval"), "time": 1.7e9}}
            of_batch = [(trace, values) for one, trace, values in learned if one in shipped]
            self.append(
                "annotations/orchestrator",
                chunk,
                *(self._update(trace, shipping, values, LEARNED[:1]) for trace, values in of_batch),
            )
            if kind == "train":
                self.append(
                    "annotations/trainer",
                    chunk,
                    *(self._update(trace, {}, values, LEARNED[1:]) for trace, values in of_batch),
                )
        values = lines_of(OLD / "metrics.jsonl")[step - 1]
        evaluated = {name: value for name, value in values.items() if name.startswith("eval/")}
        trained = {name: value for name, value in values.items() if name not in evaluated}
        self.metrics(
            {"step": None, "time": 1.7e9, "inference/running": 3.0, "producer": "orchestrator"},
            *(
                [{"step": step - 1, **evaluated, "eval/sums/policy_version": step - 1.0, "producer": "orchestrator"}]
                if evaluated
                else []
            ),
            {**trained, "producer": "trainer"},
        )

    @staticmethod
    def _taken(trace: Any, step: int) -> list[dict[str, list[float | None]]]:
        """The values of each branch, which the record has not when it arrives; null where none is sampled."""
        trace["info"] = {"arrival": {"step": step, "time": 1.7e9}}
        nodes = trace["nodes"]
        known = [{name: node.pop(name, ()) for name in LEARNED} for node in nodes]
        found = []
        for leaf in sorted({*range(len(nodes))} - {node.get("parent") for node in nodes}):
            path = [leaf]
            while (parent := nodes[path[0]].get("parent")) is not None:
                path.insert(0, parent)
            values: dict[str, list[float | None]] = {name: [] for name in LEARNED}
            for place, name in ((place, name) for place in path for name in LEARNED):
                there = iter(known[place][name])
                values[name] += [next(there, None) if sampled else None for sampled in nodes[place]["mask"]]
            found.append(values)
        return found

    @staticmethod
    def _update(trace: str, info: Any, branches: Any, names: Any) -> Any:
        found = [{"index": at, **{name: values[name] for name in names}} for at, values in enumerate(branches)]
        return {"version": 1, "trace_id": trace, "info": info, "branches": found}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A whole training, of which all chunks but the newest are sealed."""
    writer = FileMonitor(copytree(OLD / "configs", tmp_path / "run" / "configs").parent)
    for step in (1, 2, 3):
        writer.step(step, chunk=step - 1)
    for stream in ("stream", "annotations/orchestrator", "annotations/trainer"):
        for chunk in (0, 1):
            writer.seal(stream, chunk)
    return tmp_path / "run"


def require_as_written(backend: Backend, of: Run) -> None:
    for step in range(3):
        trained, evaluated = split(groups_of(backend, of.id, step))
        policy = ["0", "1", "2 to 3"][step]
        require_episodes(backend, trained, EPISODES["training"][str(step + 1)], scored=True, policy=policy)
        require_episodes(backend, evaluated, EPISODES["evaluation"].get(str(step + 1), []), scored=False, policy=policy)
    series = backend.client.metrics(of.id).series
    assert series["reward/all/mean"].value == [0.25, 0.5, 0.75]
    assert (series["eval/sums/pass@1"].step, series["eval/sums/pass@1"].value) == ([1], [0.75])


def test_a_training_of_september_is_read_from_any_of_its_folders(backend: Backend, run: Path) -> None:
    for below in ("", "monitors", "monitors/file", "monitors/file/traces", "monitors/file/traces/stream"):
        of, said = imported(backend, run / below)
        assert said[-1] == f"run {of.id}: 3 steps, 11 groups, 47 completions"
        assert (of.name, of.config["theirs"]["max_steps"]) == ("prime-rl, run", 3)
        assert not backend.client.logs(of.id).items
    require_as_written(backend, of)


def test_a_training_that_went_on_with_a_newer_release_is_one_run(backend: Backend, tmp_path: Path) -> None:
    run = copytree(OLD, tmp_path / "run")
    writer = FileMonitor(run)
    writer.step(3, chunk=0)
    for file in (run / "rollouts" / "step_3").rglob("*.jsonl"):
        file.unlink()
    metrics = run / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    of, said = imported(backend, run)
    assert said == [f"{run} (prime-rl) is run {of.id}", f"run {of.id}: 3 steps, 11 groups, 47 completions"]
    require_as_written(backend, of)


def everything(backend: Backend, of: Run) -> list[Any]:
    found: list[Any] = [(name, one.step, one.value) for name, one in backend.client.metrics(of.id).series.items()]
    for step in range(of.progress.step):
        for group in groups_of(backend, of.id, step):
            whole = group.model_dump(exclude={"id", "run_id", "attempt"})
            for place, one in enumerate(group.completions):
                whole["completions"][place].pop("id")
                found.append(
                    backend.client.tokens(one.id).model_dump(exclude={"completion_id"}) if one.has_trace else None
                )
            found.append(whole)
    return found


def test_followed_while_chunks_are_sealed_it_is_the_same_as_imported(backend: Backend, tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = FileMonitor(run)
    writer.step(1, chunk=0)
    with begun(backend, run) as looks:
        looks.advance(final=False)
        writer.step(2, chunk=0)
        file = writer.traces / "annotations" / "trainer" / "00000.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:-4]))
        looks.advance(final=False)
        writer.step(3, chunk=0)
        writer.seal("stream", 0)  # of which a part was read
        looks.advance(final=False)
        with file.open("a") as out:
            out.writelines(lines[-4:])  # of a step that was sent
        looks.advance(final=False)
        writer.seal("annotations/trainer", 0)
        looks.advance(final=True)
        looks.delivery.finish()
    followed = recorded(backend)
    copy, _ = imported(backend, copytree(run, tmp_path / "copy" / "run"))
    assert copy.id != followed.id
    assert everything(backend, followed) == everything(backend, copy)
    require_as_written(backend, followed)


def _cut(writer: FileMonitor) -> None:
    file = writer.traces / "stream" / "00000.jsonl.zst"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _replace(stream: str, chunk: int, line: bytes) -> Callable[[FileMonitor], None]:
    def damage(writer: FileMonitor) -> None:
        file = writer.traces / stream / f"{chunk:05d}.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([line, *lines[1:]]))

    return damage


@pytest.mark.parametrize(
    ("damage", "lost", "said"),
    [
        (_cut, range(1, 13), r"stream/00000.jsonl.zst cannot be read behind line \d+: "),
        (_replace("stream", 2, b"{\n"), range(1, 2), r"stream/00002.jsonl, line 1: not JSON"),
        (_replace("stream", 2, b'{"id": 1}\n'), range(1, 2), r"stream/00002.jsonl, line 1: no episode of verifiers"),
        (_replace("annotations/trainer", 2, b"\xff\n"), range(1), r"trainer/00002.jsonl, line 1: not text in UTF-8"),
        (_replace("annotations/trainer", 2, b"[]\n"), range(1), r"trainer/00002.jsonl, line 1: no update"),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_read(
    run: Path, damage: Callable[[FileMonitor], None], lost: range, said: str
) -> None:
    damage(FileMonitor(run))
    count, wrong = completions_of(opened("prime-rl", run), final=True)
    assert 47 - count in lost
    [sentence] = wrong
    assert re.search(said, sentence), sentence


def test_a_training_that_went_back_to_a_checkpoint_has_each_step_once(tmp_path: Path) -> None:
    writer = FileMonitor(tmp_path)
    for step, again in ((1, ""), (2, ""), (3, ""), (2, "*"), (3, "*")):
        writer.step(step, chunk=0, again=again)
    assert completions_of(opened("prime-rl", tmp_path), final=True) == (47 + 8, [])  # the evaluation was made twice
