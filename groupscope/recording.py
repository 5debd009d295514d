"""A run that a program of yours trains, reported step by step."""

import atexit
import functools
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec

from backend.contract import conversation
from backend.contract import protocol as p
from backend.contract.base import LONGEST, Json, finite
from backend.contract.client import ApiError, Unreachable
from backend.contract.connection import Connection
from backend.contract.conversation import joined, shortened, without_middle
from backend.contract.foreign_metrics import in_our_names
from backend.contract.groups import ROUNDED, CompletionData, GroupReport, GroupState, RewardScore
from backend.contract.home import load
from backend.contract.recorded import RecordedConfig, Trainer
from backend.contract.records import RunError
from backend.contract.report_parts import in_parts
from groupscope.conversation import Turn
from groupscope.outbox import Outbox
from groupscope.tokens import Tokens, trace_of

log = logging.getLogger("groupscope")

P = ParamSpec("P")

CAP_BYTES = 8 * 2**30  # of what waits on the disk for an absent backend
LONGEST_NAME = 200  # of a metric, in characters
_LONGEST_BEAT = 2.0


@dataclass
class Completion:
    """One completion of a group. What the trainer does not know is None, and the page says that it is missing.

    `rewards` has the raw value of each reward function by name, None where it gave none. `tokens` has the values of each token.
    A conversation is given by its `turns` alone: they are its text.
    """

    text: str = ""
    reward: float | None = None
    advantage: float | None = None
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    tokens: Tokens | None = None
    token_count: int | None = None  # where `tokens` is None
    finish_reason: str = "stop"  # or "length"; all else is taken for "stop"
    turns: Sequence[Turn] = ()


@dataclass
class Group:
    """One prompt and its completions. `reward_mean` and `reward_std` are those by which the advantages were computed; without a mean it
    is that of the rewards.
    """

    prompt: str
    completions: Sequence[Completion]
    prompt_id: str | None = None  # by default one made of the prompt: equal prompts have equal ones
    prompt_text: str | None = None  # as the model read it, if that is not `prompt`
    answer: str | None = None
    reward_mean: float | None = None
    reward_std: float | None = None
    evaluated: bool = False  # of an evaluation: shown, and never trained on


def _quietly(method: Callable[Concatenate["Recording", P], None]) -> Callable[Concatenate["Recording", P], None]:
    """The training goes on whatever happens to its record: what goes wrong is said in the log, each thing once."""

    @functools.wraps(method)
    def attempt(self: "Recording", /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            self._require_own_process()
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 — the boundary between a record and the training that it must not end
            self._leave_out("" if isinstance(error, OSError) else "calls", f"{type(error).__name__}: {error}")

    return attempt


class Recording:
    """A run that is being recorded. No method blocks for the backend or raises once it has begun; use it as a context manager, or call
    `finish`.
    """

    def __init__(
        self,
        about: p.Recording,
        connection: Connection,
        from_step: int,
        weights: Mapping[str, float | None],
        device: str,
    ) -> None:
        self._client = connection.client()
        if (requests := logging.getLogger("httpx")).level == logging.NOTSET:
            requests.setLevel(logging.WARNING)  # a heartbeat every two seconds is not the script's news
        self._name, self._weights, self._address = about.worker, weights, connection.backend_url
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._said: set[str] = set()
        self._seq = 0
        self._began = time.monotonic()
        self._step: int | None = None  # what is gathered for it waits here
        self._done = from_step  # steps that were sent
        self._lost: list[int] = []  # those that were not, or without their groups
        self._left_out: dict[str, tuple[int, str]] = {}  # not said yet: how many of what, and the first reason
        self._groups: list[GroupReport] = []
        self._tokens: list[list[Tokens | None]] = []  # of each completion of these
        self._metrics: dict[str, float | None] = {}
        self._over = threading.Event()  # nothing more is sent
        self._closed = False
        self._claimed = threading.Event()
        self.run_id: int | None = None
        """The run's number; None until the backend has stored it."""
        self._outbox = Outbox(
            connection.home, about, self._client, cap_bytes=CAP_BYTES, on_claim=self._on_claim, on_lost=self._on_lost
        )
        self._beats = threading.Thread(target=self._beat, name="groupscope-beat", daemon=True)
        self._beats.start()
        atexit.register(self._at_exit)
        self._outbox.put("start", p.Start(attempt=1, from_step=from_step, device=device))

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self._end_by(error)

    def _end_by(self, error: BaseException, *, seconds: float = 10.0) -> None:
        if isinstance(error, KeyboardInterrupt):  # somebody had enough: nothing failed
            self.finish("stopped", seconds=seconds)
        else:
            self.fail(f"{type(error).__name__}: {error}", seconds=seconds)

    @_quietly
    def log_groups(self, groups: Iterable[Group], step: int | None = None) -> None:
        """Groups of a step, counted from 0. Those of one step are sent together once a later one begins, or by `end_step`."""
        with self._lock:
            if not self._at(step):
                return
            for group in groups:
                try:
                    tokens = [self._checked(one.tokens) for one in group.completions]
                    report = group_report(len(self._groups), group, tokens, self._weights)
                except Exception as error:  # noqa: BLE001 — whatever a script hands over, its other groups are kept
                    self._leave_out("groups", f"a group of step {self._step} is left out: {error}")
                    continue
                self._groups.append(report)
                self._tokens.append(tokens)

    def _require_own_process(self) -> None:
        """A process that was forked shares the files, and has none of the threads. Raises RuntimeError there."""
        if os.getpid() != self._process:
            raise RuntimeError("what a forked process logs is left out: log it in the process that began the run")

    def _checked(self, tokens: Tokens | None) -> Tokens | None:
        try:
            return None if tokens is None else tokens.checked()
        except (TypeError, ValueError) as error:
            self._leave_out("token values of completions", f"token values are left out: {error}")
            return None

    @_quietly
    def log_metrics(self, metrics: Mapping[str, float | None], step: int | None = None) -> None:
        """Metrics of a step; a name under `eval/` is of an evaluation after that number of steps, which is sent at once."""
        with self._lock:
            known = dict(self._measured(metrics))
            evaluated = {name: value for name, value in known.items() if name.startswith(p.EVALUATION)}
            trained = {name: value for name, value in known.items() if name not in evaluated}
            if trained and self._at(step):
                self._metrics.update(trained)
            if evaluated:
                after = step if step is not None else self._done
                self._send(p.Report(attempt=1, seq=self._seq, step=after, metrics=evaluated | in_our_names(evaluated)))

    def _measured(self, metrics: Mapping[str, float | None]) -> Iterator[tuple[str, float | None]]:
        for name, value in metrics.items():
            if not 0 < len(name) <= LONGEST_NAME:
                self._leave_out("metrics", f"the metric {name[:20]}… has more than {LONGEST_NAME} characters, or none")
                continue
            try:
                yield name, finite(value)
            except (TypeError, ValueError) as error:
                self._leave_out("metrics", f"the metric {name} is left out: {error}")

    @_quietly
    def log_line(self, message: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """A line for the run's log."""
        with self._lock:
            line = p.LogLine(level=level, message=message)
            self._send(p.Report(attempt=1, seq=self._seq, logs=[line]))

    @_quietly
    def end_step(self, seconds: float | None = None) -> None:
        """Send what was logged of the step: nothing more comes of it. It ended now, or `seconds` after the training began."""
        with self._lock:
            self._flush(seconds)

    def lost(self, step: int) -> None:
        """Note that something of a step could not be recorded, which the run's log says at its end."""
        with self._lock:
            if step not in self._lost[-1:]:
                self._lost.append(step)

    def _at(self, step: int | None) -> bool:
        """Whether the step can still be reported; what waits of an earlier one is sent."""
        if self._over.is_set():
            return False
        step = step if step is not None else (self._step if self._step is not None else self._done)
        if self._step is not None and step > self._step:
            self._flush()
        if step < self._done or (self._step is not None and step < self._step):
            self._leave_out(
                "calls for a step that was sent before",
                f"step {step} was sent before, and what was logged of it now is left out: log a step whole before the next one",
            )
            return False
        self._step = step
        return True

    def _flush(self, seconds: float | None = None) -> None:
        if self._step is None:
            return
        step, groups, tokens, metrics = self._step, self._groups, self._tokens, self._metrics
        self._step, self._groups, self._tokens, self._metrics, self._done = None, [], [], {}, step + 1
        trace: p.TraceFile | None = None
        logs = self._taken_left_out()
        try:
            trace = trace_of(tokens)
        except Exception as error:  # noqa: BLE001 — whatever is wrong with them, the step is kept
            logs.append(p.LogLine(level="warning", message=f"step {step}: token values are left out: {error}"))
        try:
            report = p.Report(
                attempt=1,
                seq=self._seq,
                step=step,
                metrics=metrics | in_our_names(metrics),
                groups=groups,
                trace=trace,
                logs=logs,
                seconds=time.monotonic() - self._began if seconds is None else seconds,
            )
            if not groups and not metrics:
                report = report.model_copy(update={"step": None})
            if groups or metrics or logs:
                self._send(report)
        except Exception:  # a full disk, say; later ones may fit again
            self.lost(step)
            raise

    def _send(self, report: p.Report) -> None:
        if self._over.is_set():
            return
        for part in in_parts(report):
            self._outbox.put("report", part)
            self._seq = part.seq + 1

    @_quietly
    def finish(self, outcome: Literal["finished", "stopped"] = "finished", *, seconds: float = 10.0) -> None:
        """Send the rest, and end the run: it waits up to `seconds` for the backend, and leaves to `groupscope sync` what it did not take."""
        self._end("finish", p.Finish(attempt=1, outcome=outcome), seconds)

    @_quietly
    def fail(self, message: str, *, seconds: float = 10.0) -> None:
        """The same for a run that failed, with the reason."""
        self._end("fail", p.Fail(attempt=1, error=RunError(code="trainer_failed", message=message)), seconds)

    def _end(self, kind: str, message: p.Finish | p.Fail, seconds: float) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self.end_step()
                for line in self._taken_left_out():
                    self.log_line(line.message, "warning")
                if self._lost:
                    text = f"steps that could not be recorded whole: {len(self._lost)}, the first of them step {self._lost[0]}"
                    self.log_line(f"{text}; the program's own log says why", "warning")
                if not self._over.is_set():
                    self._outbox.put(kind, message)
            finally:
                self._close(seconds)

    def _close(self, seconds: float) -> None:
        self._over.set()
        self._closed = True
        atexit.unregister(self._at_exit)
        if not self._outbox.close(seconds):
            log.warning("what the backend did not take waits on the disk: `groupscope sync` sends it")
        self._client.close()

    def _at_exit(self) -> None:
        """The program ends: by an error, which its page says, or without a word, which it says once the lease has run out."""
        if os.getpid() != self._process:
            return
        error = getattr(sys, "last_value", None)
        if error is not None:
            self._end_by(error, seconds=2.0)
        self.end_step()
        with self._lock:
            if not self._closed:
                self._close(2.0)

    def _on_claim(self, claim: p.Claim) -> None:
        self.run_id = claim.run_id
        self._claimed.set()
        log.info("recorded as run %d of %s", claim.run_id, self._address)

    def _on_lost(self) -> None:
        self._say("the backend takes nothing more of this run: it was stopped or deleted there, or goes on elsewhere")
        self._over.set()

    def _leave_out(self, what: str, why: str) -> None:
        """Something cannot be recorded: the program's log says it once, the run's how often. A lost step is said elsewhere."""
        self._say(why)
        if what and os.getpid() == self._process:
            count, first = self._left_out.get(what, (0, why))
            self._left_out[what] = count + 1, first

    def _taken_left_out(self) -> list[p.LogLine]:
        found, self._left_out = self._left_out.items(), {}
        texts = [f"left out: {count:,} {what}; the first: {first}"[:2000] for what, (count, first) in found]
        return [p.LogLine(level="warning", message=one) for one in texts]

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    def _beat(self) -> None:
        """Says that the program is alive, and ends the record if somebody asks for that on the page."""
        while not self._over.is_set() and not self._claimed.wait(0.2):
            pass
        claim = self._outbox.claim
        if claim is None:
            return
        beat = p.Heartbeat(attempt=claim.attempt, worker=self._name)
        while not self._over.wait(min(_LONGEST_BEAT, claim.lease_seconds / 4)):
            try:
                reply = self._client.heartbeat(claim.run_id, beat)
            except Unreachable:
                continue
            except ApiError as error:
                if error.code == "lease_lost":
                    self._on_lost()
                continue
            if reply.requested == "stop":
                self._say("somebody stopped the record of this run; the training goes on without")
                self.finish("stopped", seconds=2.0)


def start_run(
    name: str,
    *,
    trainer: str = "a script",
    version: str = "",
    config: Mapping[str, Json] | None = None,
    known: Mapping[str, Json] | None = None,
    tags: Sequence[str] = (),
    notes: str = "",
    from_step: int = 0,
    run_id: int | None = None,
    backend: str | None = None,
    home: str | Path | None = None,
    device: str | None = None,
    process: int | None = None,
) -> Recording:
    """A new run in Groupscope, or with `run_id` the next attempt of one, which begins at `from_step`.

    `config` is the trainer's own configuration, as it is; `known` says in the terms of `backend.contract.recorded` what of it this program
    knows (`{"sampling": {"group_size": 8}}`). `device` and `process` (its number) are those that train, if that is not this process. The backend is found as the command line finds it. Raises CannotStart without a token, and
    ValidationError for a `known` that says something else.
    """
    show_log()
    settings = load(Connection, backend_url=backend, home=home)
    described = RecordedConfig.model_validate(
        {"trainer": Trainer(name=trainer, version=version), "theirs": dict(config or {}), **(known or {})}
    )
    about = p.Recording(
        key=secrets.token_hex(16),
        worker=f"{socket.gethostname()}, process {process or os.getpid()}",
        config=described,
        name=name,
        notes=notes,
        tags=list(tags),
        run_id=run_id,
    )
    weights = {one.name: one.weight for one in described.rewards.functions}
    return Recording(about, settings, from_step, weights, device or device_here())


def show_log() -> None:
    """Have what is logged here seen in a program that did not set up logging: its news, the run's number say, would go nowhere."""
    if not log.hasHandlers():
        (handler := logging.StreamHandler()).setFormatter(logging.Formatter("groupscope: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def device_here() -> str:
    """What it computes on, as far as torch was loaded and says so."""
    torch: Any = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available():
            return str(torch.cuda.get_device_name())
    except Exception:  # noqa: BLE001, S110 — a broken driver is the trainer's matter
        pass
    return f"CPU, {os.cpu_count()} threads"


def group_report(
    index: int, group: Group, tokens: Sequence[Tokens | None], weights: Mapping[str, float | None]
) -> GroupReport:
    """A group as the protocol has it. Raises ValueError, TypeError, AttributeError for anything but a group."""
    completions = [
        _completion(place, one, of_it, weights)
        for place, (one, of_it) in enumerate(zip(group.completions, tokens, strict=True))
    ]
    known = [one.reward for one in completions if one.reward is not None]
    return GroupReport(
        index=index,
        prompt_id=group.prompt_id or sha256(group.prompt.encode(errors="replace")).hexdigest()[:16],
        prompt=without_middle(group.prompt, LONGEST),
        prompt_text=without_middle(group.prompt_text or group.prompt, LONGEST),
        answer=group.answer,
        state="probe" if group.evaluated else _state(completions),
        scored=sum(one.reward is not None or _raws(one) is not None for one in completions),
        truncated=sum(one.finish_reason == "length" for one in completions),
        reward_mean=finite(group.reward_mean if group.reward_mean is not None or not known else fmean(known)),
        reward_std=finite(group.reward_std),
        completions=completions,
    )


def _state(completions: Sequence[CompletionData]) -> GroupState:
    """By the advantages; else by the rewards, or by the raw ones where nobody knows how they are weighed."""
    advantages = [one.advantage for one in completions if one.advantage is not None]
    scores: list[object] = [one.reward for one in completions if one.reward is not None]
    scores = scores or [raws for one in completions if (raws := _raws(one)) is not None]
    if not scores and not any(advantages):
        return "unscored"
    differ = any(one != scores[0] for one in scores)
    # equal rewards leave a trainer in float32 the rounding of their mean, over an eps such as 1e-4
    moved = [advantage for advantage in advantages if abs(advantage) > (0.0 if differ or not scores else ROUNDED)]
    return "live" if moved or (differ and not advantages) else "zero_variance"


def _raws(one: CompletionData) -> list[float | None] | None:
    raws = [score.raw for score in one.rewards]
    return None if all(raw is None for raw in raws) else raws


def _completion(
    index: int, one: Completion, tokens: Tokens | None, weights: Mapping[str, float | None]
) -> CompletionData:
    said = joined(turn.stretch for turn in one.turns) if one.turns else one.text
    text, turns = shortened(said, [_turn(turn) for turn in one.turns], LONGEST)
    return CompletionData(
        index=index,
        text=text,
        turns=turns,
        token_count=len(tokens.ids) if tokens is not None else one.token_count or 0,
        finish_reason="length" if one.finish_reason == "length" else "stop",
        rewards=[
            RewardScore(name=name, raw=finite(value), weight=weights.get(name)) for name, value in one.rewards.items()
        ],
        reward=finite(one.reward),
        advantage=finite(one.advantage),
        **({} if tokens is None else tokens.summary()),
    )


def _turn(turn: Turn) -> conversation.Turn:
    return conversation.Turn(
        role=turn.role,
        length=len(turn.stretch),
        tool=turn.tool,
        trained=turn.is_trained,
        reward=finite(turn.reward),
        policy_version=turn.policy_version,
        failed=turn.failed,
    )
