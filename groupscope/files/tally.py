"""What an import brought, in numbers and in a sentence."""

from dataclasses import dataclass, field

from backend.contract import protocol as p

SHOWN_LINES = 20  # of those that cannot be read


@dataclass
class Tally:
    """What an import brought that was not recorded before, and the lines that it could not read."""

    run_id: int = 0
    brought: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By step: whether it is whole, how many groups, and how many completions."""
    unreadable: dict[int, tuple[int, list[str]]] = field(default_factory=dict)
    """By step how many lines, and the first of them."""

    @property
    def totals(self) -> tuple[int, int, int]:
        """How many whole steps, groups and completions."""
        brought = [(0, 0, 0), *self.brought.values()]  # in one go: another thread adds to them
        steps, groups, completions = map(sum, zip(*brought, strict=True))
        return steps, groups, completions

    def add(self, step: int, report: p.Report) -> None:
        """What a report brought of a step."""
        steps, groups, completions = self.brought.get(step, (0, 0, 0))
        self.brought[step] = (
            steps + (report.trained_step is not None),
            groups + len(report.groups),
            completions + sum(len(one.completions) for one in report.groups),
        )

    def forget(self, first: int) -> None:
        """The steps from this one on: they come again."""
        self.brought = {step: one for step, one in self.brought.items() if step < first}
        self.unreadable = {step: one for step, one in self.unreadable.items() if step < first}

    def summary(self) -> str:
        """In a sentence, with the lines that could not be read."""
        counted = zip(self.totals, ("step", "group", "completion"), strict=True)
        new = ", ".join(_counted(*one) for one in counted) if any(self.totals) else "nothing new"
        said = [f"run {self.run_id}: {new}"]
        if count := sum(count for count, _ in self.unreadable.values()):
            said[0] += f"; {_counted(count, 'line')} could not be read:"
            first = [line for _, lines in self.unreadable.values() for line in lines][:SHOWN_LINES]
            said += [*(f"  {line}" for line in first), *(["  …"] if count > len(first) else [])]
        return "\n".join(said)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"
