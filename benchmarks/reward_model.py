"""Does a reward model learn what is right, and does a policy learn from it alone? Trains both with several seeds.

    python benchmarks/reward_model.py --seeds 0 1 2 --out docs/measured/reward-model.json

Each seed is one run of the recipe `reward-model`, then one of the recipe `grpo` whose only reward is that model; correctness is
measured beside it with weight 0. The configurations are those that the recipe's card and the page's button fill into the form.
"""

import json
from pathlib import Path

from learning import measure, train
from results.page import command_line, home_in, keep, stack, where
from scale.site import site

from backend.contract.base import Json
from backend.contract.recipes import QUICKSTART, RECIPES
from dashboard.form.start import rewarded_by
from dashboard.stored import put

CARDS = {card.id: card for card in RECIPES}
SERIES = ("eval/accuracy", "eval/margin", "eval/pass@1", "rewards/reward-model/mean", "rewards/correctness/mean")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--advantage", choices=["group_center"], help="instead of the recipe's group_zscore")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    arguments = parser.parse_args()
    results = []
    with site(home_in(arguments.home, "reward-model"), workers=1) as running:
        client = running.client
        for seed in arguments.seeds:
            judge = train(client, put(CARDS["reward-model"].config, "budget.seed", seed), f"reward model, seed {seed}")
            config: Json = rewarded_by(judge, judge.progress.step, CARDS[QUICKSTART])
            if arguments.advantage is not None:
                config = put(config, "algorithm.advantage", {"kind": arguments.advantage})
            policy = train(client, put(config, "budget.seed", seed), f"grpo on it, seed {seed}")
            measured = {"reward_model": measure(client, judge, SERIES), "grpo": measure(client, policy, SERIES)}
            results.append({"seed": seed, **measured})
    conditions = where() | stack("groupscope", "torch", "transformers")
    print(json.dumps(conditions))
    print(json.dumps(results, indent=1))
    keep(arguments.out, **conditions, runs=results)


if __name__ == "__main__":
    main()
