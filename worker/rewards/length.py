"""Length: full score inside the bounds, less the further outside."""

from worker.rewards.completion import Completion


def length_score(completion: Completion, *, unit: str, minimum: int, maximum: int, ramp: int) -> float:
    """1 from `minimum` to `maximum`, falling in a straight line to 0 at `ramp` outside; `unit` is what is counted."""
    match unit:
        case "tokens":
            length = completion.token_count
        case "words":
            length = len(completion.text.split())
        case "characters":
            length = len(completion.text)
        case _:
            raise ValueError(f"a length has no unit {unit!r}")
    outside = max(minimum - length, length - maximum, 0)
    return max(0.0, 1 - outside / ramp)
