"""Does a policy learn from a judge that only orders completions, and is its preference for a place harmless? With several seeds.

    python benchmarks/ranking.py --seeds 0 1 2 --out docs/measured/ranking.json

Each run is the recipe `grpo` whose only reward is a `ranking`; correctness is measured beside it with weight 0. The judge is a chat
service in this process: it puts right answers before wrong ones, and of equally right ones prefers what it was shown first
(`fair`); or it answers a share of all questions without reading, with the places as they were shown (`biased`).
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

from learning import measure, train
from results.page import command_line, home_in, keep, stack, table, where
from scale.site import site

from backend.contract.answers import find_answer
from backend.contract.base import Json
from backend.contract.recipes import QUICKSTART, RECIPES
from dashboard.stored import put
from worker.rewards.answers import same_number

SHARES = {"fair": 0.0, "biased": 0.5}
"""By judge, the share of questions that it answers without reading."""

INSTRUCTION = (
    "Task: {prompt}\nRight: {answer}\n\n{completions}\n\nReply with the numbers of all answers, the best first."
)
ANSWERS = re.compile(r"Answer \d+:\n<(\w+)>\n(.*?)\n</\1>", re.DOTALL)
SERIES = ("eval/pass@1", "rewards/better/mean", "judge/better/position_bias", "frac_reward_zero_std")


class Orders(BaseHTTPRequestHandler):
    """The judge: it orders the answers of one question. The model's name says which one it is."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = asked["messages"][0]["content"]
        right = text.partition("\nRight: ")[2].partition("\n")[0]
        answers = [answer for _, answer in ANSWERS.findall(text)]
        order = list(range(len(answers)))
        if Random(text).random() >= SHARES[asked["model"]]:
            order.sort(key=lambda place: not _is_right(answers[place], right))  # the sort is stable
        message = {"role": "assistant", "content": json.dumps({"order": [place + 1 for place in order]})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        content = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing for each request."""


def _is_right(text: str, right: str) -> bool:
    found = find_answer(text, "answer_tag")
    return found is not None and same_number(found, right)


@contextmanager
def judges() -> Iterator[str]:
    """The value of GROUPSCOPE_JUDGES with all of them, while they answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Orders) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield json.dumps({name: {"url": url, "model": name, "requests_per_minute": 1e6} for name in SHARES})
        server.shutdown()


def config(judge: str, rounds: int, seed: int) -> Json:
    """The quickstart, rewarded by a judge's order alone."""
    card = next(card for card in RECIPES if card.id == QUICKSTART)
    ranking = {"kind": "ranking", "name": "better", "endpoint": judge, "rounds": rounds, "instruction": INSTRUCTION}
    functions: list[Json] = [ranking, {"kind": "correctness", "name": "correctness", "weight": 0}]
    return put(put(card.config, "rewards.functions", functions), "budget.seed", seed)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--out", type=Path, help="also write the series as JSON")
    asked = parser.parse_args()
    results, lines = [], []
    with judges() as judge, site(home_in(asked.home, "ranking"), workers=1, JUDGES=judge) as running:
        for name, rounds in (("fair", 2), ("biased", 1), ("biased", 2)):
            for seed in asked.seeds:
                run = train(running.client, config(name, rounds, seed), f"{name}, {rounds} rounds, seed {seed}")
                measured = measure(running.client, run, SERIES)
                results.append({"endpoint": name, "rounds": rounds, "seed": seed, **measured})
                right = [value for value in measured["series"]["eval/pass@1"].values() if value is not None]
                biases = measured["series"]["judge/better/position_bias"].values()
                bias = sum(one for one in biases if one is not None) / len(biases)
                lines.append([name, str(rounds), str(seed), f"{right[0]:.3f}", f"{right[-1]:.3f}", f"{bias:+.2f}"])
    print(table(["a judge that is", "rounds", "seed", "pass@1 before", "after", "position bias"], lines))
    keep(asked.out, **where(), **stack("groupscope", "torch", "transformers"), runs=results)


if __name__ == "__main__":
    main()
