"""Property tests on fresh examples for as long as asked; whatever fails is printed with its example, and the rest goes on."""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Pass after pass over every property test, each from a seed of its own, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no new pass after this many minutes")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files to take property tests from")
    asked = parser.parse_args()
    end, seeds, failed = time.monotonic() + 60 * asked.minutes, [], []
    while not seeds or time.monotonic() < end:
        seeds.append(random.SystemRandom().randrange(2**32))
        print(f"Pass {len(seeds)}: --hypothesis-seed={seeds[-1]}", flush=True)
        # A test may take minutes: it draws ten times what `make test` draws.
        command = [sys.executable, "-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=free", "--timeout=1800"]
        command += [f"--hypothesis-seed={seeds[-1]}", *asked.tests]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(seeds[-1])
    print(f"{len(seeds)} passes, {len(failed)} with failures.")
    if failed:
        print("Write each falsifying example above as an @example of its test. Seeds:", *failed)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
