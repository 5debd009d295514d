"""A reward that takes its time, so that a run lasts as long on a fast machine as on a slow one."""

import time


def slow(completions: list[object], **_: object) -> list[float]:
    """A twentieth of a second for each completion."""
    time.sleep(0.05 * len(completions))
    return [float(len(str(one)) % 3) for one in completions]
