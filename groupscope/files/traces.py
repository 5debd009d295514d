"""The traces that prime-rl writes since September 2026: each episode once, as it arrives, and beside them what became known later.

`stream` has the episodes of verifiers; `annotations/<producer>` has updates of their traces, each with a part of its `info` and with values of
tokens that run over a branch from its root to its leaf (prime-rl at commit 65a18584, monitors/file/traces/update.py). Only an update says at
which step an episode was trained on, or which weights an evaluation measured (orchestrator/annotations.py at 96e0cf47).
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupscope.files.chunks import Chunks, Place
from groupscope.files.format import MALFORMED, required_step
from groupscope.files.verifiers import (
    Rollout,
    ancestors,
    check,
    group_of,
    groups_of,
    is_evaluation,
    rollouts_of,
    unscored,
    work,
)
from groupscope.recording import Group

OF_TOKENS = ("advantages", "trainer_logprobs", "entropies")
LAG = 2  # steps that the orchestrator may be ahead of the trainer
SILENCE = 5.0  # seconds without news, after which nobody waits for the trainer any more

Key = tuple[bool, str]  # whether it is of an evaluation, and the group


@dataclass(eq=False)
class _Episode:
    """What is to be known of an episode before its step is read."""

    place: Place
    key: Key
    traces: tuple[str, ...]
    ok: bool
    policy: int | None  # that wrote it, by its updates
    arrived: int  # while this step was collected
    step: int | None = None


class Traces:
    """The episodes of a run by their steps, counted from 0, as far as the files say them by now."""

    def __init__(self, stream: Path) -> None:
        self._stream, self._folder = Chunks(stream), stream.parent / "annotations"
        self._annotations: dict[str, Chunks] = {}
        self._episodes: dict[str, _Episode] = {}  # by their traces
        self._arrived: dict[Key, list[_Episode]] = defaultdict(list)
        self._updates: dict[str, list[tuple[str, Place]]] = defaultdict(
            list
        )  # by their trace: who wrote it, and where it is
        self._waiting: list[tuple[str, int]] = []  # traces whose episode is not there yet, and their steps
        self._steps: dict[int, dict[Key, None]] = {}
        self._newest = -1  # step of the training
        self._grew = 0.0
        self._wrong: dict[str, int | None] = {}  # sentences, and the steps with which they are said

    # ---- reading

    def catch_up(self, *, final: bool) -> set[int]:
        """Read what is new. The steps that it belongs to."""
        traces: set[str] = set()
        touched: set[Key] = set()
        before = len(self._episodes), sum(map(len, self._updates.values()))
        for producer in self._producers():
            if producer not in self._annotations:
                self._annotations[producer] = Chunks(self._folder / producer)
            chunks = self._annotations[producer]
            for place, update in chunks.new(final=final):
                try:
                    self._note(producer, place, update)
                    traces.add(str(update["trace_id"]))
                except MALFORMED:
                    self._say(f"annotations/{chunks.where(place.line, place.chunk)}: no update of a trace")
        for place, episode in self._stream.new(final=final):
            try:
                if not (arrived := self._arrive(place, episode)).ok:
                    touched.add(arrived.key)
            except MALFORMED as error:
                self._say(f"{self._stream.where(place.line, place.chunk)}: {_reason(error)}")
        waiting, self._waiting = self._waiting, []
        for trace, step in waiting:
            self._assign(trace, step)
        if final:
            self._assign_the_rest()
        if before != (len(self._episodes), sum(map(len, self._updates.values()))):
            self._grew = time.monotonic()
        for chunks in (self._stream, *self._annotations.values()):
            for sentence in chunks.wrong:
                self._say(sentence)
        touched |= {self._episodes[one].key for one in traces if one in self._episodes}
        steps = {self._step_of(key) for key in touched}
        return {step for step in steps if step is not None}

    def _producers(self) -> list[str]:
        """The orchestrator, which says the steps, and the trainer come in the order of their names."""
        try:
            names = {one.name.removesuffix(".jsonl") for one in self._folder.iterdir()}
        except OSError:
            return []
        return sorted(name for name in names if not name.endswith(".index"))

    def _note(self, producer: str, place: Place, update: Any) -> None:
        trace, info = update["trace_id"], update.get("info") or {}
        if info.get("effective"):
            self._waiting.append((str(trace), required_step(info["ship"]["step"])))
        self._updates[str(trace)].append((producer, place))

    def _arrive(self, place: Place, line: Any) -> _Episode:
        check(line)
        traces = tuple(str(one["id"]) for one in line["traces"] if one.get("id"))
        arrived = [(one.get("info") or {}).get("arrival") or {} for one in line["traces"]]
        policy = (work(line).get("policy") or {}).get("start")
        step = next((one["step"] for one in arrived if isinstance(one.get("step"), int)), work(line).get("step"))
        group = (line.get("group") or {}).get("id") or f"{work(line).get('step')}/{group_of(line)}"
        found = _Episode(
            place,
            (is_evaluation(line), str(group)),
            traces,
            bool(line.get("ok")),
            policy if isinstance(policy, int) else None,
            step if isinstance(step, int) else 0,
        )
        self._episodes |= dict.fromkeys(traces, found)
        self._arrived[found.key].append(found)
        return found

    # ---- steps

    def _assign(self, trace: str, step: int) -> None:
        """The episode of a trace was trained on at a step, which prime-rl counts from 1; or it was measured, for which the weights count."""
        if (found := self._episodes.get(trace)) is None:
            self._waiting.append((trace, step))
        elif found.step is None:
            evaluated = found.key[0]
            found.step = max(step - 1, 0)
            if evaluated:
                found.step = found.policy if found.policy is not None else step
            elif found.step < self._newest:  # a checkpoint from which it went on
                for later in [one for one in self._steps if one >= found.step]:
                    self._steps[later] = {key: None for key in self._steps[later] if key[0]}
            self._newest = self._newest if evaluated else found.step
            self._steps.setdefault(found.step, {})[found.key] = None

    def _assign_the_rest(self) -> None:
        """What arrived for a batch that was not trained on by the end is of that batch."""
        newest = self._newest
        for key, episodes in self._arrived.items():
            last = episodes[-1]
            step = last.policy if key[0] and last.policy is not None else max(last.arrived - 1, 0)
            if all(one.step is None for one in episodes) and (key[0] or step > newest):
                for one in episodes:
                    one.step = step
                self._steps.setdefault(step, {})[key] = None
                self._newest = self._newest if key[0] else max(self._newest, step)

    def _step_of(self, key: Key) -> int | None:
        return next((one.step for one in self._arrived[key] if one.step is not None), None)

    @property
    def steps(self) -> list[int]:
        """Those that have groups."""
        return [step for step, keys in self._steps.items() if keys]

    def has_training(self, step: int) -> bool:
        """Whether groups of a step that was trained are here."""
        return any(not evaluated for evaluated, _ in self._steps.get(step, ()))

    def is_whole(self, step: int) -> bool:
        """Whether each that wrote values of a training's tokens has written some of this step's."""
        traces = [
            t for key in self._steps.get(step, ()) if not key[0] for one in self._arrived[key] for t in one.traces
        ]
        return {*self._annotations} <= {who for one in traces for who, _ in self._updates.get(one, ())} or not traces

    def waits(self, step: int) -> bool:
        """Whether the step after this one has to wait until the trainer has written the values of this one's tokens."""
        near = step > self._newest - LAG
        return near and not self.is_whole(step) and time.monotonic() - self._grew < SILENCE

    def groups(self, step: int) -> Iterator[list[Group]]:
        """Those of a step, in the order in which they were trained on, with what broke off in them."""
        for key in self._steps.get(step, ()):
            members = [one for one in self._arrived[key] if one.step == step or (one.step is None and not one.ok)]
            rollouts: list[Rollout] = []
            for one in sorted(members, key=lambda each: each.step is None):
                try:
                    found = list(rollouts_of(self._folded(one)))
                    rollouts += found if one.step is not None and one.ok else map(unscored, found)
                except MALFORMED as error:
                    self._say(f"{self._stream.where(one.place.line, one.place.chunk)}: {_reason(error)}")
            if rollouts:
                yield groups_of(rollouts)

    def _folded(self, episode: _Episode) -> Any:
        """Its record with the updates of its traces, in the order in which they were read."""
        line = self._stream.read(episode.place)
        for trace in line["traces"]:
            for producer, place in self._updates.get(str(trace.get("id")), ()):
                fold(trace, self._annotations[producer].read(place))
        return line

    # ---- what cannot be read

    def _say(self, sentence: str) -> None:
        self._wrong.setdefault(sentence, None)

    def wrong(self, step: int, *, last: bool) -> list[str]:
        """What cannot be read, of the step; of the last one also what was not said with one before."""
        if last:
            self._wrong = {one: step if said is None else said for one, said in self._wrong.items()}
        return [one for one, said in self._wrong.items() if said == step]


def _reason(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"no episode of verifiers ({type(error).__name__}: {error})"


def fold(trace: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Put an update into a trace: its `info`, and the values of each branch into the messages whose sampled tokens all have one.

    Branches are counted by the place of their last message. Raises one of MALFORMED.
    """
    trace["info"] = {**(trace.get("info") or {}), **(update.get("info") or {})}
    nodes = trace.get("nodes") or []
    parents = {node.get("parent") for node in nodes}
    branches = [[*ancestors(nodes, place), place] for place in range(len(nodes)) if place not in parents]
    for branch in update.get("branches") or ():
        if not 0 <= branch["index"] < len(branches):
            continue
        for name in OF_TOKENS:
            values, at = branch.get(name) or (), 0
            for node in (nodes[place] for place in branches[branch["index"]]):
                ids, mask = node.get("token_ids") or (), node.get("mask") or ()
                there, at = values[at : at + len(ids)], at + len(ids)
                sampled = [value for value, one in zip(there, mask, strict=False) if one]
                if len(there) == len(ids) and sampled and None not in sampled:
                    node[name] = sampled
