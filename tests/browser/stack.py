"""What the browser tests stand on, and the hostile texts among their records."""

from dataclasses import dataclass

import recorded
from hostile import ESCAPES, IMAGE, MARKDOWN, SCRIPT
from processes import Site

from backend.contract.client import Client
from backend.contract.groups import GroupReport
from backend.contract.protocol import Claim, Report

HOSTILE = (SCRIPT, IMAGE, MARKDOWN, ESCAPES)

# Completions as tokens: one to read, a long one, and one whose tokens want to be something else.
SHORT = ("<think>", "2", " x", " 4", " =", " 8", ";", " 9", " -", " 8", " =", " 1", "</think>", "\n", "1", "<|im_end|>")
LONG = (*("\n" if place % 37 == 36 else " step" for place in range(3999)), "x" * 2000)
ODD = (*HOSTILE, "\u202eabc", "\u05e9\u05dc\u05d5\u05dd", "\r", "\t", "", "\u0301e", "\u200b", "\n\n", "$x^2$")


@dataclass(frozen=True)
class Stack:
    """A backend and a dashboard, and runs that were recorded before any worker could take them."""

    site: Site
    url: str  # the dashboard's
    live: tuple[int, Claim]
    traced: tuple[int, Claim]  # under way too; one group, with the tokens of its first three completions
    first: int
    second: int
    hostile: int
    everything: int  # hostile.record: every kind of hostile text, everywhere

    @property
    def client(self) -> Client:
        return self.site.client

    def go_on(self, first: GroupReport | None = None) -> int:
        """A step more of the run under way, of 60 live groups but for the first one; its number."""
        run_id, claim = self.live
        step = self.client.steps(run_id)[-1].step + 1
        groups = [recorded.group_of(index, [1.0, 0.1, 0.0, 1.0]) for index in range(60)]
        groups[0] = first or groups[0]
        report = Report(attempt=claim.attempt, seq=step + 1, step=step, groups=groups, metrics={"reward": 0.9})
        self.client.report(run_id, report)
        return step
