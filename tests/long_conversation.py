"""A training of prime-rl whose episodes are long: many turns with tools and errors, every token with its values, in verifiers' format.

Everything but the messages is what verifiers wrote for the fixtures of tests/scripts/foreign.
"""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

from hostile import EMOJI, ESCAPES, FORMULA, IMAGE, MARKDOWN, SCRIPT, STREAMLIT, TURNED
from importing import FOREIGN

TEMPLATE = FOREIGN / "verifiers" / "prime-rl" / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
TEXTS = (SCRIPT, IMAGE, MARKDOWN, STREAMLIT, ESCAPES, TURNED, EMOJI, FORMULA)
PER_TOKEN = ("logprobs", "trainer_logprobs", "reference_logprobs", "entropies")


def write_long_training(folder: Path, *, turns: int = 50, tokens: int = 20_000, group: int = 4) -> dict[str, Any]:
    """One step with one group of long conversations. Returns what the first of them says: `texts` by
    turn, `ids`, and `mask`.
    """
    draw = random.Random(50)
    with TEMPLATE.open() as lines:
        template = json.loads(next(lines))
    first: dict[str, Any] = {}
    file = folder / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
    file.parent.mkdir(parents=True)
    with file.open("w") as out:
        for member in range(group):
            episode = deepcopy(template)
            [trace] = [one for one in episode["traces"] if one["agent"]["trainable"]]
            trace["nodes"], trace["calls"] = [_node(draw, None, {"role": "user", "content": "Find it."}, 12)], []
            texts = []
            for at in range(turns):
                message = _message(draw, at)
                trace["nodes"].append(_node(draw, at, message, tokens // turns))
                calls = message.get("tool_calls")
                texts.append(f"{calls[0]['name']}({calls[0]['arguments']})" if calls else message["content"])
            episode["id"], trace["rewards"] = f"long-{member}", {"right": {"score": member % 2, "weight": 1.0}}
            for node in trace["nodes"]:
                if node["sampled"]:
                    node["advantages"] = [member % 2 - 0.5] * sum(node["mask"])
            out.write(json.dumps(episode, ensure_ascii=False) + "\n")
            said = trace["nodes"][1:]
            first = first or {
                "texts": texts,
                "ids": [one for node in said for one in node["token_ids"]],
                "mask": [one for node in said for one in node["mask"]],
            }
    return first


def _message(draw: random.Random, at: int) -> dict[str, Any]:
    """In turns a call, its result, and something said; every third call fails."""
    if at % 3 == 0:
        arguments = json.dumps({"query": draw.choice(TEXTS)}, ensure_ascii=False)
        return {
            "role": "assistant",
            "tool_calls": [{"id": f"call-{at}", "type": "function", "name": "search", "arguments": arguments}],
        }
    if at % 3 == 1:
        failed = at % 9 == 1
        text = f"TimeoutError: no answer within {at} s" if failed else f"{draw.choice(TEXTS)} " * 20
        return {"role": "tool", "tool_call_id": f"call-{at - 1}", "content": text}
    return {"role": "assistant", "content": f"{at}. " + "I look further. " * draw.randint(1, 40)}


def _node(draw: random.Random, parent: int | None, message: dict[str, Any], count: int) -> dict[str, Any]:
    sampled = message["role"] == "assistant"
    node = {
        "parent": parent,
        "message": message,
        "sampled": sampled,
        "token_ids": [draw.randint(3, 50_000) for _ in range(count)],
        "mask": [sampled] * count,
    }
    return node | {name: [round(draw.uniform(-2, 0), 4) for _ in range(count)] for name in PER_TOKEN if sampled}
