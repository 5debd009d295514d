"""The table of groups."""

from backend.contract.groups import GroupSummary
from dashboard.components.table import frame
from dashboard.group.rows import ENDING, columns


def test_of_a_long_text_the_end_is_seen() -> None:
    facts = {
        "id": 1,
        "run_id": 1,
        "attempt": 1,
        "step": 0,
        "index": 0,
        "prompt_id": "a",
        "prompt": "p",
        "prompt_text": "p",
    }
    told = {"state": "live", "scored": 2, "rewards": [1.0, 0.0], "advantages": [1.0, -1.0]}
    group = GroupSummary.model_validate({**facts, **told, "best": "no, " * 20 + "<answer>8</answer>", "worst": "nine"})
    [row] = frame([group], columns([group], 1.0)).to_dict("records")
    assert row["best"].startswith("…")
    assert row["best"].endswith("<answer>8</answer>")
    assert len(row["best"]) == 1 + ENDING
    assert row["worst"] == "nine"
