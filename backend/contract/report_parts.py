"""A report that is larger than the backend takes, in several: first parts with groups alone, then one with all the rest."""

from collections.abc import Iterator, Sequence

from backend.contract.conversation import shortened, without_middle
from backend.contract.groups import CompletionData, GroupReport
from backend.contract.protocol import REPORT_BYTES, LogLine, Report

ROOM = REPORT_BYTES - 8 * 2**20
"""For groups and trace, as JSON. Metrics and log lines need far less than what remains."""


def in_parts(report: Report, room: int = ROOM) -> Iterator[Report]:
    """The reports to send instead, numbered from its number on; usually itself alone.

    Of a step whose groups need several, the token traces are left out, since they belong to all its groups at once; of a group
    that is too large for one, the middles of texts and of long conversations. Both are said in the run's log.
    """
    sizes = [_size(group) for group in report.groups]
    logs = list(report.logs)
    if sum(sizes) + len(report.trace.data if report.trace else "") <= room:
        yield report
        return
    if report.trace is not None:
        logs.append(
            _warning(
                f"step {report.step}: its groups and token traces are too large for one report: no traces are kept"
            )
        )
    groups = [
        _shortened(group, room) if size > room else group for group, size in zip(report.groups, sizes, strict=True)
    ]
    cut = [str(group.index) for group, size in zip(groups, sizes, strict=True) if size > room]
    if cut:
        text = f"step {report.step}: too large for one report; only the ends of the texts are kept of group {', '.join(cut):.200}"
        logs.append(_warning(text))
    *first, last = _filled(groups, room)
    for place, some in enumerate(first):
        yield Report(attempt=report.attempt, seq=report.seq + place, step=report.step, groups=some, part=True)
    yield report.model_copy(update={"seq": report.seq + len(first), "groups": last, "trace": None, "logs": logs})


def _filled(groups: Sequence[GroupReport], room: int) -> list[list[GroupReport]]:
    """In their order, as many together as fit."""
    parts: list[list[GroupReport]] = [[]]
    filled = 0
    for group in groups:
        size = _size(group)
        if parts[-1] and filled + size > room:
            parts.append([])
            filled = 0
        parts[-1].append(group)
        filled += size
    return parts


def _shortened(group: GroupReport, room: int) -> GroupReport:
    """The group with the beginning and the end of each text, as much of them as fits."""
    most, cut = 2**21, group
    while _size(cut) > room and most > 1:
        most //= 2
        cut = _with_texts(group, most)
    return cut


def _with_texts(group: GroupReport, most: int) -> GroupReport:
    def ends(text: str) -> str:
        return without_middle(text, most)

    def of(completion: CompletionData) -> CompletionData:
        rewards = [
            one if one.error is None else one.model_copy(update={"error": ends(one.error)})
            for one in completion.rewards
        ]
        text, turns = shortened(completion.text, completion.turns, most)
        return completion.model_copy(update={"text": text, "turns": turns, "rewards": rewards})

    return group.model_copy(
        update={
            "prompt_text": ends(group.prompt_text),
            "prompt": ends(group.prompt),
            "answer": None if group.answer is None else ends(group.answer),
            "completions": [of(one) for one in group.completions],
        }
    )


def _size(group: GroupReport) -> int:
    return len(group.model_dump_json().encode())


def _warning(message: str) -> LogLine:
    return LogLine(level="warning", message=message)
