"""How many groups will be dead: the share of groups of G completions that all turn out alike, estimated without bias."""

from collections.abc import Sequence
from math import comb

Counts = Sequence[int]
"""How often each outcome came up among one prompt's n completions: (right, wrong), or each different reward."""


def dead_share(counts_P: Sequence[Counts], group_size: int) -> float:
    """The expected share of groups of `group_size` whose completions all have one outcome.

    Of n completions of a prompt, c with an outcome, C(c, G) of the C(n, G) possible groups have only that one: the share of dead
    ones among all subsets of what was sampled, averaged over the prompts. With right and wrong it is
    (C(c, G) + C(n − c, G)) / C(n, G). Its expectation is p^G + (1 − p)^G for each prompt's own success rate p, as that of pass@k
    is (Chen et al., arXiv:2107.03374, section 2.1, count subsets in the same way). p^G + (1 − p)^G at the mean of different
    prompts' rates is less than the mean of theirs, since it is convex in p (Jensen).

    Raises ValueError without prompts, and where a prompt has fewer than `group_size` completions: nothing is known then.
    """
    if not counts_P or any(sum(counts) < group_size for counts in counts_P):
        raise ValueError(f"a forecast for groups of {group_size} needs as many completions of each prompt")
    shares = [sum(comb(count, group_size) for count in counts) / comb(sum(counts), group_size) for counts in counts_P]
    return sum(shares) / len(shares)
