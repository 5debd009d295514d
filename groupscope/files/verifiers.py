"""The episodes of verifiers 0.4, as its evaluations and prime-rl's trainings leave them.

A line of `traces.jsonl` is an episode: a task, and for each agent a trace. A trace is a graph of messages, each with the tokens that it
adds. A completion here is one trace: its messages from the first that the model wrote, in the order in which they were made.
"""

import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from backend.contract.base import Json
from groupscope.conversation import Turn, text_in, turns_of
from groupscope.files.format import (
    MALFORMED,
    About,
    Format,
    Lines,
    Step,
    Unreadable,
    first_object,
    known_rewards,
    number,
    opened,
    required_step,
    with_metrics,
)
from groupscope.files.grouped import GroupedLines
from groupscope.recording import Completion, Group
from groupscope.tokens import Tokens

VERSION = 1  # of a trace
TRACES = "traces.jsonl"
CONFIG = "configs/resolved"
LONGEST_LINE = 2**26  # bytes of the first, by which the files are recognised
MOST_FIRST = 64  # episodes that say which rewards there are, and how they are weighed
PER_TOKEN = {
    "sampling_logprob": "logprobs",
    "logprob": "trainer_logprobs",
    "reference_logprob": "reference_logprobs",
    "entropy": "entropies",
    "advantage": "advantages",
}
"""The values of a message's sampled tokens, by our name and verifiers'."""
CUT = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
ERROR = "error"  # the role of what broke off an episode
REWRITTEN = "history"  # the role of the line that says where a conversation goes on


def _recognises(path: Path) -> bool:
    """A folder with a `traces.jsonl`, or that file: by the first line."""
    return has_episodes(path / TRACES if path.is_dir() else path)


def has_episodes(file: Path) -> bool:
    """Whether the first line of a file is an episode."""
    return file.suffix == ".jsonl" and is_episode(first_object(file, LONGEST_LINE))


def is_episode(line: Any) -> bool:
    """Whether a line's object is an episode."""
    return isinstance(line, dict) and isinstance(line.get("traces"), list) and {"id", "env", "task"} <= line.keys()


def lines_of(files: Iterable[Path]) -> Iterator[Any]:
    """The first lines of these files."""
    return (line for file in files for _, line in islice(Lines(file).new(final=True), MOST_FIRST))


def _first_traces(folder: Path, lines: Iterator[Any]) -> list[dict[str, Any]]:
    """Those of the first episodes among these lines. Raises Unreadable for another version's."""
    episodes = [line for line in islice(lines, MOST_FIRST) if is_episode(line)]
    traces = [trace for one in episodes for trace in one["traces"] if isinstance(trace, dict)]
    version = traces[0].get("version", VERSION) if traces else VERSION
    if version != VERSION:
        raise Unreadable(
            f"{folder} has traces of version {version}, and this program reads version {VERSION}, which verifiers 0.4 writes: "
            "install a later release"
        )
    return traces


def about(trainer: str, folder: Path, lines: Iterator[Any]) -> About:
    """A run with these first lines, and the configuration that lies in this folder. Raises Unreadable for another version's."""
    traces = _first_traces(folder, lines)
    weights: dict[str, float | None] = {}
    measured: dict[str, float | None] = {}
    models: list[Any] = []
    for trace in traces:
        try:
            weights |= {name: number(one.get("weight", 1.0)) for name, one in _scored(trace)}
            measured |= dict.fromkeys(trace.get("metrics") or {}, 0.0)
            if trace["agent"].get("trainable", True):
                models.append(trace["agent"]["config"].get("model"))
        except MALFORMED:
            continue  # its line is said with its step
    known = known_rewards(with_metrics(weights, measured)) | {
        "model": {"source": str(next(filter(None, models), ""))[:300]}
    }
    written_by = [one for trace in traces if isinstance(one := trace.get("verifiers"), dict)]
    versions = [one.get("version") for one in written_by] if trainer == "verifiers" else []
    return About(trainer, f"{trainer}, {folder.name}", str(next(filter(None, versions), "")), _config(folder), known)


def _scored(trace: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Its rewards by their name, without those that broke off."""
    return [(name, one) for name, one in (trace.get("rewards") or {}).items() if one is not None]


class _Evaluation:
    """The episodes of one file, in step 0: of a training that another program logged, in the step for which they were sampled."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.about = about("verifiers", file.resolve().parent, lines_of([file]))

    def steps(self, start: int, *, final: bool) -> Iterator[Step]:
        """All of them stay open: a group's next episode may stand in the last line."""
        episodes = Episodes(self._file, final=final)
        for step in episodes.steps:
            if step >= start:
                for groups in episodes.groups(step):
                    yield Step(step, groups, open=True)
        if episodes.wrong:
            last = max(episodes.steps, default=0)
            yield Step(max(start, last), unreadable=episodes.wrong, open=True)


def _config(folder: Path) -> dict[str, Json]:
    """The resolved configuration, if it lies there: verifiers writes JSON, prime-rl TOML or JSON."""
    older = chain((folder / CONFIG).glob("*.*"), (folder / "configs").glob("*.toml"))
    newest = (folder / "configs").glob("latest/resolved/*.json")  # prime-rl keeps those of each attempt
    for file in [*sorted(newest, key=lambda one: (one.stem != "rl", one)), *sorted(older)]:
        try:
            with opened(file) as whole:
                text = whole.read().decode()
            found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
            return dict(json.loads(json.dumps(found, default=str)))
        except (OSError, ValueError, TypeError):
            continue
    return {}


@dataclass(frozen=True)
class AgentRollout:
    """What its group needs of a trace; the rest of it is not kept."""

    agent: str | None  # None if it broke off before one said anything
    prompt: str
    answer: Any
    evaluated: bool
    completion: Completion
    ok: bool


class Episodes:
    """The episodes of a file by their group, and by the step for which they were sampled where they are of several."""

    def __init__(self, file: Path, *, final: bool, one_step: bool = False) -> None:
        def key(line: Any) -> tuple[int, str]:
            check(line)
            return 0 if one_step else required_step(work(line).get("step") or 0), group_of(line)

        self._lines = GroupedLines(file, key, called="episode of verifiers 0.4", final=final)
        self.steps = sorted({step for step, _ in self._lines.keys})
        self.wrong = self._lines.wrong

    def groups(self, step: int, failed: "Episodes | None" = None) -> Iterator[list[Group]]:
        """Those of a step, a group at a time: one for each agent that is trained. Of `failed` come those that broke off."""
        for key in [one for one in self._lines.keys if one[0] == step]:
            broken = [unscored(one) for one in failed._of(key) if not one.ok] if failed is not None else []
            yield groups_of([*self._of(key), *broken])

    def _of(self, key: tuple[int, str]) -> Iterator[AgentRollout]:
        return chain.from_iterable(self._lines.read(key, lambda line: list(rollouts_of(line))))


def groups_of(rollouts: Sequence[AgentRollout]) -> list[Group]:
    """A group for each agent that is trained; what broke off before one said anything is of the first."""
    agents: dict[str | None, list[AgentRollout]] = {}
    for one in rollouts:
        agents.setdefault(one.agent, []).append(one)
    broken = agents.pop(None, []) if len(agents) > 1 else []
    return [_group([*one, *(broken if at == 0 else ())]) for at, one in enumerate(agents.values())]


def unscored(rollout: AgentRollout) -> AgentRollout:
    """Without its reward, as it broke off."""
    return replace(rollout, completion=replace(rollout.completion, reward=None, advantage=None))


def check(line: Any) -> None:
    """Raises ValueError for anything but an episode of this version."""
    if not is_episode(line):
        raise ValueError("no episode of verifiers, which has an id, a task and traces")
    for version in {trace.get("version", VERSION) for trace in line["traces"]} - {VERSION}:
        raise ValueError(f"a trace of version {version}, and this program reads version {VERSION}")


def group_of(episode: Mapping[str, Any]) -> str:
    """What its group is known by; without a group, by its task."""
    task = episode["task"]
    named = (episode.get("group") or {}).get("id") or task.get("key") or task.get("hash")
    return str(named or json.dumps(task.get("data"), sort_keys=True))


def rollouts_of(episode: Mapping[str, Any]) -> Iterator[AgentRollout]:
    """A completion for each agent that is trained, or for each if none is; one that only says why, of an episode without any."""
    traces = [trace for trace in episode["traces"] if trace["agent"].get("trainable", True)] or episode["traces"]
    answer = (episode["task"].get("data") or {}).get("answer")
    evaluated = of_evaluation(episode)
    for trace in traces:
        agent = str(trace["agent"].get("name", "agent"))
        yield AgentRollout(
            agent, _prompt(trace), answer, evaluated, _completion(trace, episode), bool(episode.get("ok"))
        )
    if not traces:
        prompt = (episode["task"].get("data") or {}).get("prompt")
        said = prompt if isinstance(prompt, str) else "\n".join(text_in(one) for one in prompt or [])
        turns = list(_errors(episode)) or [Turn(ERROR, "This episode has no trace.", failed=True)]
        yield AgentRollout(None, said, answer, evaluated, Completion(turns=turns), ok=False)


def of_evaluation(episode: Mapping[str, Any]) -> bool:
    """Whether it was not trained on: an episode by itself is of no training."""
    return (work(episode) or episode.get("run") or {}).get("type") != "train"


def work(episode: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the training that asked for an episode says of it."""
    return (episode.get("run") or {}).get("work") or {}


def _group(rollouts: Sequence[AgentRollout]) -> Group:
    answer = rollouts[0].answer
    return Group(
        prompt=next((one.prompt for one in rollouts if one.prompt), ""),
        answer=answer if isinstance(answer, str | None) else json.dumps(answer, ensure_ascii=False),
        completions=[one.completion for one in rollouts],
        evaluated=rollouts[0].evaluated,
    )


def _errors(of: Mapping[str, Any]) -> Iterator[Turn]:
    for error in of.get("errors") or []:
        yield Turn(ERROR, f"{error.get('type')}: {error.get('message')}", failed=True)


def _first_sampled(nodes: Sequence[Mapping[str, Any]]) -> int:
    """The place of the first message that the model wrote; behind the last, if it wrote none."""
    return next((place for place, node in enumerate(nodes) if node.get("sampled")), len(nodes))


def _prompt(trace: Mapping[str, Any]) -> str:
    nodes = trace["nodes"]
    first = _first_sampled(nodes)
    before = ancestors(nodes, first) if first < len(nodes) else range(len(nodes))
    return "\n".join(text_in(nodes[place]["message"]) for place in before)


def _completion(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> Completion:
    nodes, first = trace["nodes"], _first_sampled(trace["nodes"])
    rewards, measured = trace.get("rewards") or {}, trace.get("metrics") or {}
    weighed = [(number(one["score"]), number(one.get("weight", 1.0))) for _, one in _scored(trace)]
    known = [score * weight for score, weight in weighed if score is not None and weight is not None]
    calls = [call for call in trace.get("calls") or [] if not call.get("error")]
    cut = trace.get("stop_condition") in CUT or bool(calls and calls[-1].get("finish_reason") == "length")
    return Completion(
        turns=[*_turns(nodes, first, _policy(episode)), *_errors(trace), *_errors(episode)],
        reward=math.fsum(known) if known and len(known) == len(weighed) else None,
        advantage=_advantage(trace),
        rewards=with_metrics(
            {name: None if one is None else number(one["score"]) for name, one in rewards.items()},
            {name: number(value) for name, value in measured.items()},
        ),
        tokens=_tokens(nodes[first:]),
        token_count=sum((call.get("usage") or {}).get("completion_tokens") or 0 for call in calls),
        finish_reason="length" if cut else "stop",
    )


def ancestors(nodes: Sequence[Mapping[str, Any]], place: int) -> list[int]:
    """The messages before this one, from the first on."""
    found: list[int] = []
    parent = nodes[place].get("parent")
    while parent is not None and len(found) < len(nodes):
        found.append(parent)
        parent = nodes[parent].get("parent")
    return found[::-1]


def _policy(episode: Mapping[str, Any]) -> str | None:
    policy = work(episode).get("policy")
    if not policy:
        return None
    start, end = policy.get("start"), policy.get("end")
    return str(start) if start == end else f"{start} to {end}"


def _turns(nodes: Sequence[Mapping[str, Any]], first: int, policy: str | None) -> Iterator[Turn]:
    """Of the messages from the first that the model wrote. Where one does not follow from that before it, a line of its own says so."""
    if first == len(nodes):
        return
    before = nodes[first].get("parent")
    names: dict[str, str] = {}  # tools by the id of their call
    for place, node in enumerate(nodes[first:], first):
        message = node["message"]
        if node.get("parent") != before:
            yield Turn(REWRITTEN, "The history was rewritten: what follows does not go on from the message above.")
        sampled = bool(node.get("sampled"))
        for turn in turns_of([message], names):
            turn.trained = sampled and (any(node.get("mask") or []) or not node.get("token_ids"))
            turn.policy_version = policy if sampled else None
            yield turn
        before = place


def _tokens(nodes: Sequence[Mapping[str, Any]]) -> Tokens | None:
    """Of these messages, without the prompt's end, which stands before the first sampled token. None if no message has any."""
    ids = [one for node in nodes for one in node.get("token_ids") or []]
    mask = [bool(one) for node in nodes for one in node.get("mask") or []]
    if not ids or len(mask) != len(ids):
        return None
    skip = mask.index(True) if True in mask else 0
    values: dict[str, Any] = {
        ours: list(chain.from_iterable(_spread(node, theirs) for node in nodes))[skip:]
        for ours, theirs in PER_TOKEN.items()
        if any(node.get(theirs) for node in nodes)
    }
    return Tokens(ids[skip:], trained=mask[skip:], **values)


def _spread(node: Mapping[str, Any], name: str) -> Iterator[float | None]:
    """The values of the sampled tokens at their places, None at the others."""
    values = iter(node.get(name) or ())
    for sampled in node.get("mask") or ():
        yield next(values, None) if sampled else None


def _advantage(trace: Mapping[str, Any]) -> float | None:
    """That of all its tokens, or their mean, if they differ; None if it was assigned none."""
    values = [value for node in trace["nodes"] for value in node.get("advantages") or ()]
    if not values:
        return number((trace.get("info") or {}).get("advantage"))
    return float(values[0]) if min(values) == max(values) else math.fsum(values) / len(values)


FORMAT = Format(
    "verifiers",
    "the traces.jsonl of verifiers",
    _recognises,
    lambda path, _: _Evaluation(path / TRACES if path.is_dir() else path),
)
