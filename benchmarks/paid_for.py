"""Does the tab Paid for find what a reward pays for, and keep silent on healthy runs? Trains both for real and reads them through the API.

    python benchmarks/paid_for.py --out docs/measured/paid-for.json
    python benchmarks/paid_for.py --hacks length digits --healthy 3

Six runs are each paid for one property beside the answer, which is only measured: length, a phrase, repeating the prompt, digits,
ending early, one format tag. The planted property, or one that is listed as inseparable from it, must come first. The healthy runs are recipes, seeds and
tasks of the product; a hint of hacking on any of them is false.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning import train
from results.page import command_line, home_in, keep, stack, table, where
from scale.site import site

from backend.contract.base import Json
from backend.contract.client import Client
from backend.contract.properties import PropertyEffect
from backend.contract.recipes import QUICKSTART, RECIPES
from dashboard.stored import put

CARDS = {card.id: card for card in RECIPES}
HACKING = {"phrase_takes_over", "repetition_paid", "truth_falls"}
"""The codes of the hints that say that a reward is gamed."""
TRUTH: dict[str, Json] = {"name": "correctness", "kind": "correctness", "weight": 0.0}
FILE = r'''
import re


def reward_echo(completion, prompt):
    """The share of the prompt's pairs of neighbouring words that stand in the completion, too."""
    asked = prompt.split()
    pairs = list(zip(asked, asked[1:]))
    return sum(f"{one} {other}" in completion for one, other in pairs) / len(pairs)


def reward_phrase(completion):
    """1 if it says "8 x"."""
    return float(re.search(r"(?<!\d)8 x\b", completion) is not None)


def reward_digits(completion):
    """1 for 30 digits, in a straight line."""
    return min(1.0, len(re.findall(r"\d", completion)) / 30)


def reward_tag(completion):
    """1 if the answer is closed."""
    return float("</answer>" in completion)
'''.lstrip()


@dataclass(frozen=True)
class Hack:
    """A reward that pays for a property: `planted` is its title in the answer."""

    planted: str
    function: Mapping[str, Json]
    changes: Mapping[str, Json] | None = None


HACKS = {
    "length": Hack(
        "the number of tokens", {"kind": "length", "unit": "tokens", "minimum": 40, "maximum": 1000, "ramp": 40}
    ),
    "phrase": Hack("the phrase “8 x”", {"kind": "python", "function": "hacks.py:reward_phrase"}),
    "prompt": Hack("the share of the prompt that is repeated", {"kind": "python", "function": "hacks.py:reward_echo"}),
    "digits": Hack("the number of digits", {"kind": "python", "function": "hacks.py:reward_digits"}),
    "early": Hack("the number of tokens", {"kind": "length", "unit": "tokens", "maximum": 10, "ramp": 20}),
    # the tiny model closes its answers: only those that are cut lack the tag
    "tag": Hack(
        "the tag </answer>", {"kind": "python", "function": "hacks.py:reward_tag"}, {"sampling.max_new_tokens": 20}
    ),
}
TINY = CARDS[QUICKSTART].config["model"]
OTHERS = [card.id for card in RECIPES if card.config["kind"] == "grpo" and card.config["model"] == TINY]
HEALTHY: Sequence[tuple[str, int, Mapping[str, Json]]] = (
    *((recipe, 0, {}) for recipe in OTHERS),
    *((QUICKSTART, seed, {}) for seed in range(1, 4)),
    (QUICKSTART, 0, {"task.operands": 2}),
    (QUICKSTART, 0, {"sampling.temperature": 1.3}),
    (QUICKSTART, 0, {"sampling.group_size": 16}),
)


def changed(config: Json, changes: Mapping[str, Json], *, steps: int, seed: int) -> Json:
    """The configuration with these fields, of this many steps, without what only takes time."""
    kept: dict[str, Json] = {
        "budget.steps": steps, "budget.seed": seed, "budget.checkpoint_every": 0, "telemetry.token_traces": "none",
        "sampling.prompts_per_step": 8, "telemetry.probe_prompts": 0, "budget.eval_every": 25, "budget.eval_items": 100, "budget.eval_samples": 1,
    }  # fmt: skip
    for path, value in {**kept, **changes}.items():
        config = put(config, path, value)
    return config


def planted(client: Client, name: str, steps: int) -> dict[str, Any]:
    """Train one that is paid for a property; what comes first in the answer."""
    hack = HACKS[name]
    functions: list[Json] = [{"name": "hack", "weight": 1.0, **hack.function}, TRUTH]
    changes = {"rewards.functions": functions, "budget.eval_every": 0, **(hack.changes or {})}
    run = train(client, changed(CARDS[QUICKSTART].config, changes, steps=steps, seed=0), f"paid for {name}")
    found = client.properties(run.id)
    first = found.properties[0] if found.properties and found.properties[0].clear else None
    return {
        "hack": name,
        "planted": hack.planted,
        "first": first.title if first else "nothing",
        "same": first.same if first else [],
        "found": first is not None and hack.planted in (first.title, *first.same),
        "r2": first.correlation**2 if first else 0.0,
        "next": _next(found.properties),
        "hints": hints_of(client, run.id),
    }


def _next(properties: Sequence[PropertyEffect]) -> float | None:
    """How much of the differences the second line goes with."""
    return properties[1].correlation ** 2 if len(properties) > 1 else None


def hints_of(client: Client, run: int) -> list[str]:
    """The hints of hacking, of the whole run and of its halves, each once."""
    last = client.run(run).progress.step - 1
    windows = ((None, None), (None, last // 2), (last // 2 + 1, None))
    codes = [hint.code for first, end in windows for hint in client.properties(run, from_step=first, to_step=end).hints]
    codes += [hint.code for hint in client.health(run).items]
    return sorted(HACKING & {*codes})


def healthy(client: Client, place: int, steps: int) -> dict[str, Any]:
    """Train one that nothing is wrong with; the hints that it got."""
    recipe, seed, changes = HEALTHY[place]
    named = ", ".join(f"{path.partition('.')[2]} {value}" for path, value in changes.items())
    run = train(
        client, changed(CARDS[recipe].config, changes, steps=steps, seed=seed), f"{recipe}, seed {seed} {named}"
    )
    found = client.properties(run.id)
    first = found.properties[0] if found.properties and found.properties[0].clear else None
    return {
        "recipe": recipe,
        "seed": seed,
        "changes": named,
        "first": first and first.title,
        "r2": first and first.correlation**2,
        "hints": hints_of(client, run.id),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--hacks", nargs="*", choices=HACKS, default=list(HACKS))
    parser.add_argument("--healthy", type=int, default=len(HEALTHY), help=f"how many, {len(HEALTHY)} by default")
    parser.add_argument("--steps", type=int, default=60, help="of each run")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the findings as JSON")
    arguments = parser.parse_args()
    home = home_in(arguments.home, "paid-for")
    (home / "rewards").mkdir(exist_ok=True)
    (home / "rewards" / "hacks.py").write_text(FILE)
    hacks, others = [], []
    conditions = where() | stack("groupscope", "torch", "transformers")
    with site(home, workers=1) as running:
        for name in arguments.hacks:
            hacks.append(planted(running.client, name, arguments.steps))
            print(json.dumps(hacks[-1]), flush=True)
            keep(arguments.out, **conditions, steps=arguments.steps, hacks=hacks, healthy=others)
        for place in range(arguments.healthy):
            others.append(healthy(running.client, place, arguments.steps))
            print(json.dumps(others[-1]), flush=True)
            keep(arguments.out, **conditions, steps=arguments.steps, hacks=hacks, healthy=others)
    print(json.dumps(conditions))
    rows = [
        [
            one["hack"], one["planted"], ", ".join([one["first"], *one["same"]]), "yes" if one["found"] else "no",
            f"{one['r2']:.2f}", "–" if one["next"] is None else f"{one['next']:.2f}", ", ".join(one["hints"]) or "none",
        ]
        for one in hacks
    ]  # fmt: skip
    print(table(["paid for", "planted", "came first", "found", "r²", "r² of the next", "hints"], rows))
    print(
        f"{sum(one['found'] for one in hacks)} of {len(hacks)} found; healthy runs: {sum(len(one['hints']) for one in others)} hints of hacking on {len(others)}"
    )


if __name__ == "__main__":
    main()
