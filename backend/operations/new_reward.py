"""A template for a reward of one's own, in the folder of rewards."""

import keyword
from pathlib import Path

from backend.contract.home import OWN_REWARDS, CannotStart, make_private

COMPLETION = '''# {name}: the form offers the function, with the text below its name as help.


def reward(completion: str, answer: str | None, *, bonus: float = 0.1) -> float:
    """1 if the reference answer occurs in the completion, and a bonus if it is short."""
    # completion is what the model wrote, answer the reference answer. Add a parameter to get more: prompt is what was asked, and a
    # column of the data set comes by its name. A parameter with a default, as bonus, is a field of the form, for whole numbers only
    # if the default is one.
    right = float(answer is not None and answer in completion)
    short = len(completion.split()) < 50
    # Any number is a reward; None leaves the completion unscored. What is printed stands in the worker's log.
    return right + (bonus if right and short else 0.0)
'''
GROUP = '''# {name}: the form offers the function, with the text below its name as help.


def reward(completions: list, answer: list | None = None, *, most: float = 1.0, **columns: list) -> list[float]:
    """The share of the group's answers that differ from this one: what is rare in its group is worth more."""
    # All completions of one prompt at once, as TRL calls a reward function: lists with one entry a completion. A chat's completion is
    # its messages. A parameter with a default, as most, is a field of the form; columns holds those of the data set.
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    # One number for each, in the same order. Where the call fails, the whole group stays unscored.
    return [most * (1 - texts.count(text) / len(texts)) for text in texts]
'''


def new_reward(home: Path, name: str, *, group: bool) -> Path:
    """Write the template `<home>/rewards/<name>.py`. Raises CannotStart where the name cannot be used or is taken."""
    stem = name.removesuffix(".py")
    if not stem.isidentifier() or keyword.iskeyword(stem) or stem.startswith("_"):
        raise CannotStart(f"a reward cannot be called {name!r}: use letters, digits and _, for example short_answers")
    make_private(home)
    folder = home / OWN_REWARDS
    folder.mkdir(exist_ok=True)
    file = folder / f"{stem}.py"
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write((GROUP if group else COMPLETION).format(name=stem))
    except FileExistsError:
        raise CannotStart(f"{file} is there already: choose another name, or edit it") from None
    return file
