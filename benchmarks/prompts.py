"""How fast are prompts looked at before step 0, and what does that take of memory? A million of them, on the tiny model.

    python benchmarks/prompts.py                  one million prompts: minutes
    python benchmarks/prompts.py --prompts 20000

Every prompt is rendered by the model's template and counted, as a run does it. Beside the rate: the largest resident size while it
looks, above what the items themselves take, and how long a stop waits for an answer.
"""

import argparse
import tempfile
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
from tqdm import tqdm

from worker.errors import Interrupted
from worker.policy.loading import load_reader
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.tasks.fitting import Reader, look_at
from worker.tasks.items import Item

PROMPTS = 1_000_000
LOOK_SECONDS = 0.05
MIB = 2**20


def items_of(count: int) -> list[Item]:
    """Different prompts of about 30 letters, as rows give them."""
    texts = (f"Calculate {number} + {number % 97} x {number % 13}, please" for number in range(count))
    return [
        Item(f"dataset:{row}", text, ({"role": "user", "content": text},), "5", {"kind": "exact"}, row=row)
        for row, text in enumerate(texts, 1)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    asked = parser.parse_args(arguments)
    reader = Reader.of(*load_reader(resolve(TINY_ARITHMETIC, converted=Path("unused"), root=None, checkpoint=None)))
    items, process = items_of(asked.prompts), psutil.Process()
    before, most, over = process.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(LOOK_SECONDS):
            most = max(most, process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    with tempfile.TemporaryDirectory() as folder, tqdm(total=len(items), unit="prompt", mininterval=5) as bar:
        began = time.perf_counter()
        look = look_at(items, reader, 64, lambda phase, done, total: bar.update(done - bar.n), Path(folder))
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        assert look_at(items, reader, 64, lambda *_: None, Path(folder)) == look
        again = time.perf_counter() - began
    over.set()
    thread.join()
    stopped = stop_after(items, reader)
    print(
        f"{len(items):,} prompts, the longest of {look.longest} tokens: {seconds:.1f} s, {len(items) / seconds:,.0f} a second; "
        f"{max(0, most - before) / MIB:.0f} MiB more than before; once it is kept {again:.1f} s; a stop is answered within {stopped:.3f} s"
    )
    return 0


def stop_after(items: list[Item], reader: Reader) -> float:
    """The longest time, in seconds, between two moments at which a look would have been left, over the first ten of them."""
    moments = [time.perf_counter()]

    def show(*_: object) -> None:
        moments.append(time.perf_counter())
        if len(moments) > 10:
            raise Interrupted

    with suppress(Interrupted):
        look_at(items, reader, 64, show)
    return max(after - before for before, after in pairwise(moments))


if __name__ == "__main__":
    raise SystemExit(main())
