"""prime-rl's traces since September 2026: streams of JSON lines in numbered chunks, all but the newest sealed with zstd.

`stream` has each episode of verifiers once, as it arrives, `annotations/<producer>` what became known later of its traces: the
step that trained on them, and values of tokens along a branch. Of prime-rl's source: monitors/file/traces/chunks.py (551bfc39),
update.py (65a18584), orchestrator/annotations.py (96e0cf47).
"""

import io
import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple, cast

from groupscope.files import verifiers
from groupscope.files.format import MALFORMED, numbered, opened, parsed, required_step
from groupscope.recording import Group

Key = tuple[bool, str]  # whether it is of an evaluation, and the group
Kept = dict[Key, dict[int, "_Episode"]]  # the episodes of a group, by their places
StreamLine = tuple[str, int, int]  # where it stood, and the place and the size of what is kept of it
SEALED = ".zst"
PIECE = 2**13  # bytes that are decompressed together: of a damaged chunk all before them are there
OF_TOKENS = ("advantages", "trainer_logprobs", "entropies")
LAG = 2  # steps that the orchestrator is ahead of the trainer at most
SILENCE = 5.0  # seconds without news, after which nobody waits for the trainer


def chunks_of(place: Path) -> dict[int, Path]:
    """The chunks of a folder in their order, by their number, each under the name that it has while it is plain."""
    found = numbered(place, r"(\d{5,})\.jsonl(?:\.zst)?").items()
    return {number: one.with_suffix("") if one.suffix == SEALED else one for number, one in found}


def _opened(path: Path) -> BinaryIO:
    """A chunk by its plain name. It is sealed before that goes. Raises OSError."""
    import pyarrow as pa

    try:
        return opened(path)
    except FileNotFoundError:
        sealed = pa.input_stream(opened(path.with_name(path.name + SEALED)), compression="zstd")
        return cast(BinaryIO, io.BufferedReader(cast(Any, sealed), PIECE))


class Chunks:
    """The lines of a stream, each read once and kept in a temporary file, as none of a sealed chunk can be read by itself."""

    def __init__(self, place: Path, wrong: dict[str, int | None]) -> None:
        """`wrong` is given a sentence for each line and each chunk that cannot be read."""
        self._place, self._wrong = place, wrong
        self._chunk, self._bytes, self._count = -1, 0, 0  # as far as it was read
        self._kept = cast(BinaryIO, TemporaryFile())  # noqa: SIM115 — as long as the stream is read

    def new(self, *, final: bool) -> Iterator[tuple[StreamLine, Any]]:
        """The objects of the lines since the last call. The very last line may be torn, unless this call is `final`."""
        import pyarrow as pa

        chunks = chunks_of(self._place)
        for number, path in [one for one in chunks.items() if one[0] >= self._chunk]:
            if number != self._chunk:
                self._chunk, self._bytes, self._count = number, 0, 0
            try:
                with _opened(path) as file:
                    skip = self._bytes
                    while skip > 0 and (passed := len(file.read(min(skip, PIECE)))):
                        skip -= passed
                    for line in file:
                        if not line.endswith(b"\n") and not final and number == max(chunks):
                            return
                        self._bytes, self._count = self._bytes + len(line), self._count + 1
                        where = f"{self._place.name}/{path.name}, line {self._count}"
                        if isinstance(found := parsed(line, where), ValueError):
                            self._wrong.setdefault(str(found), None)
                            continue
                        packed = zlib.compress(line, 1)
                        at = self._kept.seek(0, io.SEEK_END)
                        self._kept.write(packed)
                        yield (where, at, len(packed)), found
            except (pa.ArrowException, OSError) as error:
                name = path.name if path.exists() else path.name + SEALED
                said = f"{self._place.name}/{name} cannot be read behind line {self._count}: {str(error)[:200]}"
                self._wrong.setdefault(said, None)

    def read(self, line: StreamLine) -> Any:
        """The object of a line that was read before."""
        self._kept.seek(line[1])
        return json.loads(zlib.decompress(self._kept.read(line[2])))


class _Episode(NamedTuple):
    line: StreamLine
    key: Key
    traces: tuple[str, ...]
    ok: bool
    policy: int | None  # that wrote it, by its updates
    asked: int  # for this step, as prime-rl counts them


class Traces:
    """The episodes of a run by their steps, counted from 0, as far as the files say them by now."""

    def __init__(self, stream: Path) -> None:
        self._wrong: dict[str, int | None] = {}  # sentences, and the steps with which they are said
        self._stream, self._folder = Chunks(stream, self._wrong), stream.parent / "annotations"
        self._annotations: dict[str, Chunks] = {}
        self._groups: dict[Key, list[_Episode]] = defaultdict(list)
        self._of: dict[str, _Episode] = {}  # by their traces
        self._updates: dict[str, list[tuple[str, StreamLine]]] = defaultdict(
            list
        )  # of traces: who wrote them, and where
        self._shipped: dict[str, int] = {}  # the steps of traces, as prime-rl counts them
        self.steps: dict[int, Kept] = {}
        self._counts: dict[int, int] = {}  # of what is known of each step
        self._grew = 0.0

    def catch_up(self, *, final: bool) -> set[int]:
        """Read what is new, of the orchestrator, which says the steps, before the trainer: the steps that it changed."""
        for producer in sorted(one.name for one in self._folder.glob("*") if one.is_dir()):
            if producer not in self._annotations:
                self._annotations[producer] = Chunks(self._folder / producer, self._wrong)
            for line, update in self._annotations[producer].new(final=final):
                self._take(line, "no update of a trace", self._note, producer, update)
        for line, episode in self._stream.new(final=final):
            self._take(line, "no episode of verifiers", self._keep, episode)
        self.steps = self._by_step(final=final)
        before, self._counts = self._counts, {step: sum(map(self._count, of)) for step, of in self.steps.items()}
        changed = {step for step, count in self._counts.items() if before.get(step) != count}
        self._grew = time.monotonic() if changed else self._grew
        return changed

    def _take(self, line: StreamLine, called: str, take: Callable[..., None], *args: Any) -> None:
        try:
            take(line, *args)
        except MALFORMED as error:
            reason = str(error) if type(error) is ValueError else f"{called} ({type(error).__name__}: {error})"
            self._wrong.setdefault(f"{line[0]}: {reason}", None)

    def _note(self, line: StreamLine, producer: str, update: Any) -> None:
        trace, info = str(update["trace_id"]), update.get("info") or {}
        if info.get("effective"):
            self._shipped[trace] = required_step(info["ship"]["step"])
        self._updates[trace].append((producer, line))

    def _keep(self, line: StreamLine, episode: Any) -> None:
        verifiers.check(episode)
        asked = verifiers.work(episode)
        group = (episode.get("group") or {}).get("id") or f"{asked.get('step')}/{verifiers.group_of(episode)}"
        step = step if isinstance(step := asked.get("step"), int) else 0
        policy = policy if isinstance(policy := (asked.get("policy") or {}).get("start"), int) else None
        key, traces = (
            (verifiers.of_evaluation(episode), str(group)),
            tuple(str(one.get("id")) for one in episode["traces"]),
        )
        found = _Episode(line, key, traces, bool(episode.get("ok")), policy, step)
        self._of |= dict.fromkeys(traces, found)
        self._groups[key].append(found)

    def _by_step(self, *, final: bool) -> dict[int, Kept]:
        """The groups of each step, in their order. At the end, what came for a batch that was not trained on is of that batch.
        What a training does again from a checkpoint on replaces what was there.
        """
        found: dict[int, Kept] = defaultdict(dict)
        newest = -1
        trained = [(one, step) for trace, step in self._shipped.items() if (one := self._of.get(trace)) is not None]
        for one, shipped in trained:
            step = max(shipped - 1, 0)
            if one.key[0]:
                step = shipped if one.policy is None else one.policy
            elif step < newest:
                for later in [each for each in found if each >= step]:
                    found[later] = {key: of for key, of in found[later].items() if key[0]}
            newest = newest if one.key[0] else step
            found[step].setdefault(one.key, {})[one.line[1]] = one
        keys = {one.key for one, _ in trained}
        for key, episodes in self._groups.items() if final else ():
            last = episodes[-1]
            step = last.policy if key[0] and last.policy is not None else max(last.asked - 1, 0)
            if key not in keys and (key[0] or step > newest):
                found[step][key] = {one.line[1]: one for one in episodes}
        return {step: of for step, of in found.items() if of}

    def _count(self, key: Key) -> int:
        return sum(1 + sum(len(self._updates.get(t, ())) for t in one.traces) for one in self._groups[key])

    def is_whole(self, step: int) -> bool:
        """Whether each that wrote values of a training's tokens has written some of this step's."""
        kept = self.steps.get(step, {}).items()
        traces = [t for key, of in kept if not key[0] for one in of.values() for t in one.traces]
        return not traces or {*self._annotations} <= {who for t in traces for who, _ in self._updates.get(t, ())}

    def waits(self, step: int) -> bool:
        """Whether the step after this one has to wait until the trainer has written the values of this one's tokens."""
        news = step > max(self.steps, default=0) - LAG and time.monotonic() - self._grew < SILENCE
        return news and not self.is_whole(step)

    def groups(self, step: int) -> Iterator[list[Group]]:
        """Those of a step, with what broke off in them."""
        for key, of in self.steps.get(step, {}).items():
            rollouts: list[verifiers.AgentRollout] = []
            broken = [one for one in self._groups[key] if not one.ok and one.line[1] not in of]
            for one in [*(of[at] for at in sorted(of)), *broken]:
                self._take(one.line, "no episode of verifiers", self._read, one, rollouts)
            if rollouts:
                yield verifiers.groups_of(rollouts)

    def _read(self, line: StreamLine, episode: _Episode, rollouts: list[verifiers.AgentRollout]) -> None:
        record = self._stream.read(line)
        for trace in record["traces"]:
            for producer, update in self._updates.get(str(trace.get("id")), ()):
                _fold(trace, self._annotations[producer].read(update))
        found = list(verifiers.rollouts_of(record))
        rollouts += found if episode.ok else map(verifiers.unscored, found)

    def wrong(self, step: int, *, last: bool) -> list[str]:
        """What cannot be read, of the step; of the last one also what was not said with one before."""
        if last:
            self._wrong.update({one: step for one, said in self._wrong.items() if said is None})
        return [one for one, said in self._wrong.items() if said == step]


def _fold(trace: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Put an update into a trace: its `info`, and a branch's values where all sampled tokens have one. A leaf is a branch."""
    trace["info"] = {**(trace.get("info") or {}), **(update.get("info") or {})}
    nodes = trace.get("nodes") or []
    leaves = sorted({*range(len(nodes))} - {node.get("parent") for node in nodes})
    for branch in update.get("branches") or ():
        leaf = leaves[branch["index"] : branch["index"] + 1]
        path = [*verifiers.ancestors(nodes, leaf[0]), *leaf] if leaf else []
        for name in OF_TOKENS:
            values, at = branch.get(name) or (), 0
            for node in (nodes[place] for place in path):
                ids, mask = node.get("token_ids") or (), node.get("mask") or ()
                there, at = values[at : at + len(ids)], at + len(ids)
                sampled = [value for value, one in zip(there, mask, strict=False) if one]
                if len(there) == len(ids) and sampled and None not in sampled:
                    node[name] = sampled
