"""Own rewards in the form: what the workers' folders offer, the settings of each function as fields, and what is wrong with a file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from backend.contract.base import Json
from backend.contract.preflight import Message
from backend.contract.records import OwnReward, RewardFile, Worker
from backend.contract.reward import file_of
from dashboard.components.live import draw_again
from dashboard.form.draft import Draft
from dashboard.form.schema import Field, Flag, Real, Record, Text, Whole
from dashboard.form.sections import workers_now
from dashboard.form.widgets import Consequences
from dashboard.stored import reward_names, rewards_in, text_at

TICK = 1.0  # seconds between two looks at the files
LONG = 60  # characters of a default that is written in a box of several lines
MOST_SAID = 8  # of what is passed over


@dataclass(frozen=True)
class OwnRewards:
    """By path, for the rewards of the draft that are Python functions."""

    records: Mapping[str, Record]
    consequences: Mapping[str, Consequences]
    problems: Mapping[str, Sequence[Message]]


def own_rewards(draft: Draft, workers: Sequence[Worker]) -> OwnRewards:
    """The settings of each chosen function as fields, with the draft's values brought up to date, and the files that are wrong."""
    take_settings(draft, workers)
    offered = _offered(workers)
    broken = {file.name: file.error for worker in workers for file in worker.reward_files if file.error}
    passed_over = {name: why for worker in workers for name, why in worker.passed_over.items() if name not in offered}
    records: dict[str, Record] = {}
    consequences: dict[str, Consequences] = {}
    problems: dict[str, list[Message]] = {}
    for path, function in python_rewards(draft):
        named = f"{path}.function"
        consequences[named] = partial(_consequences, draft, path, offered)
        chosen = file_of(function)
        problems[named] = [
            Message(level="warning", field=named, text=error.partition("\n")[0])
            for file, error in sorted(broken.items())
            if chosen in (None, file)
        ]
        problems[named] += [  # while one is looked for, and for the one that is named
            Message(level="warning", field=named, text=f"{name} is not offered: {why}")
            for name, why in sorted(passed_over.items())
            if function in ("", name)
        ][:MOST_SAID]
        if (one := offered.get(function)) is not None:
            fields = tuple(_field(name, default) for name, default in one.arguments.items())
            records[f"{path}.arguments"] = Record("arguments", help=one.help, fields=fields)
    return OwnRewards(records, consequences, problems)


def take_settings(draft: Draft, workers: Sequence[Worker]) -> None:
    """Give the draft the settings that its functions have now, and no others; what it holds of them stays."""
    offered = _offered(workers)
    for path, function in python_rewards(draft):
        if (one := offered.get(function)) is not None:
            settings = draft.get(f"{path}.arguments")
            kept = settings if isinstance(settings, dict) else {}
            if kept.keys() != one.arguments.keys():
                draft.write(
                    f"{path}.arguments", {**one.arguments, **{k: v for k, v in kept.items() if k in one.arguments}}
                )


def _offered(workers: Sequence[Worker]) -> dict[str, OwnReward]:
    return {name: one for worker in workers for name, one in worker.own_rewards.items()}


def python_rewards(draft: Draft) -> Iterator[tuple[str, str]]:
    """The path and the function of each reward of the draft that is a Python function."""
    for path, function in rewards_in(draft.config):
        if text_at(function, "kind") == "python":
            yield path, text_at(function, "function")


def follow(draft: Draft, drawn: Sequence[Worker]) -> None:
    """Draw the form again once the files of rewards differ from those that it was drawn with, if one of its rewards is such a file."""
    if any(True for _ in python_rewards(draft)):
        st.fragment(partial(_look, [worker.reward_files for worker in drawn]), run_every=TICK)()


def _look(drawn: Sequence[Sequence[RewardFile]]) -> None:
    if [worker.reward_files for worker in workers_now()] != drawn:
        draw_again()


def _consequences(draft: Draft, path: str, offered: Mapping[str, OwnReward], function: str) -> dict[str, Json]:
    """What the choice of a function brings: how it is called, its defaults, and a name unless a person gave one."""
    named: dict[str, Json] = {}
    has, name = str(draft.get(f"{path}.name")), _name_of(function)
    is_ours = re.fullmatch(r"(python(-\d+)?)?", has) or has == _name_of(str(draft.get(f"{path}.function")))
    if function and is_ours and name not in reward_names(draft.config):
        named = {f"{path}.name": name}
    one = offered.get(function)
    if one is None:
        return {**named, f"{path}.arguments": {}}
    return {**named, f"{path}.unit": one.unit, f"{path}.arguments": dict(one.arguments)}


def _name_of(function: str) -> str:
    """What the form calls a reward by this function."""
    file, _, called = function.partition(":")
    return file.removesuffix(".py") if called == "reward" else called.removeprefix("reward_").removesuffix("_reward")


def _field(name: str, default: Json) -> Field:
    """The widget for values like the default."""
    if isinstance(default, bool):
        return Flag(name, default=default)
    if isinstance(default, int):
        return Whole(name, default=default)
    if isinstance(default, float):
        return Real(name, default=default)
    return Text(name, default=default, long=len(str(default)) > LONG)
