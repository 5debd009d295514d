"""Pattern: the share of keywords or regular expressions that occur."""

import re
from collections.abc import Sequence

from worker.rewards.completion import Completion


def pattern_score(completion: Completion, *, syntax: str, patterns: Sequence[str], case_sensitive: bool) -> float:
    """The share of `patterns` found in the text.

    A regular expression may backtrack for ever: it holds the interpreter all the while, and only the end of its
    process stops it.
    """
    if syntax == "keyword":
        text = completion.text if case_sensitive else completion.text.casefold()
        found = [(pattern if case_sensitive else pattern.casefold()) in text for pattern in patterns]
    else:
        flags = re.NOFLAG if case_sensitive else re.IGNORECASE
        found = [re.search(pattern, completion.text, flags) is not None for pattern in patterns]
    return sum(found) / len(found)
