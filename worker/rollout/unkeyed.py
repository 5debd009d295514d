"""What engines share that draw by themselves, and measure nothing but the distribution they draw from."""

import hashlib

from backend.contract.algorithm import Logprobs
from backend.contract.training import Decoding
from worker.rollout.draws import Draws


def seed_of(draws: Draws, group: int) -> int:
    """A seed in [0, 2**31) for a group of the rollout, another one in each step and stream."""
    key = f"{draws.seed} {draws.stream} {draws.step} {group}"
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest()) >> 1


def check_measures_what_it_draws(decoding: Decoding, logprobs: Logprobs) -> None:
    """Raises ValueError where other log-probs are wanted. Configurations that ask for them with such an engine are refused."""
    truncates = decoding.top_k or decoding.top_p < 1
    if truncates or logprobs == "renormalized" or (logprobs == "plain" and decoding.temperature != 1):
        raise ValueError(f"{logprobs} log-probs are not of the distribution that {decoding} draws from")
