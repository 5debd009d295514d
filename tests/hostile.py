"""Texts that want to be something else, each of a kind, and a run that has them wherever a text can stand."""

import recorded
from token_traces import trace_of_tokens

from backend.contract import protocol as p
from backend.contract.base import clean
from backend.contract.client import Client
from backend.contract.conversation import Turn
from backend.contract.groups import GroupReport
from backend.contract.records import RunError, RunUpdate

SCRIPT = "<script>window.ran='script';alert('script')</script>"
IMAGE = "<img src=\"http://evil.example/pixel.png\" onerror=\"window.ran = 'image'; alert('image')\">"
MARKDOWN = "![a beacon](http://evil.example/beacon.png) [a link](javascript:alert(1)) # heading <http://evil.example>"
STREAMLIT = ":red[alarm] :material/skull: :blue-background[x] $\\LaTeX^{2}$ -> **bold** `code` :streamlit:"
ESCAPES = "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b]52;c;ZXZpbA==\x07 \x9b31m"
CONTROLS = "nul\x00 bell\x07 back\x08 feed\x0c del\x7f return\r next\x85 line\u2028 paragraph\u2029 end"
TURNED = "\u202etxet desrever\u202c \u2066isolated\u2069 \u05e9\u05dc\u05d5\u05dd zero\u200bwidth\u200c\u2060\ufeff"
SURROGATES = "half \ud83d of a pair \udc00 and the whole \U0001f600"
EMOJI = (
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 e\u0301\u0302\u0303"
)
WORD = "w" * 5_000
LINES = "\n".join(f"line {number} <b>bold</b>" for number in range(400))
FORMULA = "=cmd|' /C calc'!A0\t\"quoted\", 'single'; --\n\\N {{7*7}} ${7*7} %s"

TEXTS = (SCRIPT, IMAGE, MARKDOWN, STREAMLIT, ESCAPES, CONTROLS, TURNED, SURROGATES, EMOJI, WORD, LINES, FORMULA)
SHORT = f"{SCRIPT} {IMAGE} {MARKDOWN} {STREAMLIT} {ESCAPES} {CONTROLS} {TURNED} {SURROGATES} {EMOJI}"
NAME = f"{IMAGE} {STREAMLIT} \x1b[31m \u202eeman \x07"[:200]
TAGS = ["<b>tag</b>", ":red[tag] $x$", "\u202egat \x1b[31m"]
REWARDS = [1.0, 0.1, None, 0.9, 0.0, 1.0, 0.1, 0.9, 0.0, 1.0, 0.1, 0.0]
STEPS = 3


def stored(text: str) -> str:
    """What the backend keeps of a text."""
    return str(clean(text))


def record(client: Client) -> int:
    """A run that failed, and of which everything that anybody or any model writes is hostile."""
    run_id = recorded.queue(client, NAME, budget={"steps": STEPS})
    client.update_run(run_id, RunUpdate(tags=TAGS, notes=SHORT))
    claim = recorded.claim(client, run_id)
    for step in range(STEPS):
        groups = [_group(index) for index in range(2)]
        pieces = [[SCRIPT, IMAGE], [MARKDOWN, ESCAPES, STREAMLIT, *stored(CONTROLS), *TURNED]]
        report = p.Report(
            attempt=claim.attempt,
            seq=step,
            step=step,
            groups=groups,
            metrics={"reward": 0.1 * step, "loss": 0.0, "completions/clipped_ratio": 0.9, "frac_reward_zero_std": 0.5},
            logs=[p.LogLine(level="error", message=SHORT)],
            trace=trace_of_tokens(pieces),
        )
        client.report(run_id, report)
    recorded.fail(client, run_id, claim, RunError(code="reward_errors", message=SHORT, details=SHORT))
    for group in client.groups(run_id, step=STEPS - 1).items:
        client.people.bookmark(group.id, SHORT)
    return run_id


def _group(index: int) -> GroupReport:
    """A group whose completions are the texts, its prompt, its answer and the reason of a failure too."""
    texts = ["".join(piece) for piece in ([SCRIPT, IMAGE], [MARKDOWN, ESCAPES, STREAMLIT, *CONTROLS, *TURNED])]
    group = recorded.group_of(index, REWARDS, texts=[*texts, *TEXTS[2:]], prompt=SHORT)
    told = group.model_dump()
    for completion in told["completions"]:
        for score in completion["rewards"]:
            score["error"] = score["error"] and SHORT
    for completion in told["completions"][3::2]:  # some are said by somebody with a name like that
        name = SHORT[:200]
        turn = Turn(role=name, tool=name, policy_version=name, trained=False, length=len(completion["text"]))
        completion["turns"] = [turn.model_dump()]
    return GroupReport.model_validate(told | {"answer": SHORT, "prompt_id": f"p{index} {IMAGE}"[:200]})
