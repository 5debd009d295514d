"""Judged pairs as a preference data set: rows from which a reward model or a DPO run reads the prompts that the policy read.

A chat is written as messages, which the tokenizer of whoever trains renders as it did for the policy: the system prompt of
the task, and the question. A raw prompt is written as its text, and so is what a data set's own conversation became: of
that the records keep only what the model read. One file is all of one kind; text is to be trained on with the prompt
format `raw`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from backend.contract.base import Json
from backend.people.pairs import Pair, Place
from backend.storage.database import to_json

Config = Mapping[str, Json]


@dataclass(frozen=True)
class Trainable:
    """The judged pairs that a data set takes, and whether their prompts are chats."""

    chat: bool
    pairs: Sequence[Pair]


def lines(run_id: int, config: Config, pairs: Sequence[Pair]) -> Iterator[bytes]:
    """One JSON object a line: prompt, chosen, rejected, and where they come from; of the pairs that can be trained on."""
    asked, taught = _asked(config), trainable(config, pairs)
    for pair in taught.pairs:
        texts = _as_chat(asked, pair) if taught.chat else _as_text(pair)
        yield to_json({**texts, **_origin(run_id, pair)}).encode() + b"\n"


def trainable(config: Config, pairs: Sequence[Pair]) -> Trainable:
    """Without pairs of probes, whose prompts are held out from training, and, where prompts are texts, without those with an
    empty side: no reader takes an empty text for an answer.
    """
    trained_on = [pair for pair in pairs if not of_probe(pair)]
    chat = chat_of(config, [pair.group for pair in trained_on])
    return Trainable(chat, [pair for pair in trained_on if chat or (pair.better.text and pair.worse.text)])


def chat_of(config: Config, groups: Sequence[Place]) -> bool:
    """Whether the prompts of these groups, which are trained on, are written as chats."""
    asked = _asked(config)
    return asked.get("prompt_format", "chat") == "chat" and all(_asks_one_question(asked, group) for group in groups)


def of_probe(pair: Pair) -> bool:
    """Whether the pair's prompt is held out from training."""
    return pair.group.state == "probe"


def _asked(config: Config) -> Config:
    """Where the stored configuration says how a question becomes a prompt: in its task, or in a sample's own fields."""
    task = config.get("task")
    return task if isinstance(task, dict) else config


def _as_chat(asked: Config, pair: Pair) -> dict[str, Json]:
    system = asked.get("system_prompt")
    before = [_message("system", system)] if isinstance(system, str) and system else []
    return {
        "prompt": [*before, _message("user", pair.group.prompt)],
        "chosen": [_message("assistant", pair.better.text)],
        "rejected": [_message("assistant", pair.worse.text)],
    }


def _message(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def _as_text(pair: Pair) -> dict[str, Json]:
    return {"prompt": pair.group.prompt_text, "chosen": pair.better.text, "rejected": pair.worse.text}


def _origin(run_id: int, pair: Pair) -> dict[str, Json]:
    return {
        "run": run_id,
        "step": pair.group.step,
        "group": pair.group.id,
        "chosen_index": pair.better.index,
        "rejected_index": pair.worse.index,
        "chosen_reward": pair.better.reward,
        "rejected_reward": pair.worse.reward,
        "how": pair.how,
    }


def _asks_one_question(asked: Config, group: Place) -> bool:
    """Whether the prompt was the system prompt and the question, and nothing else.

    Only a data set's row may be a conversation instead. A row that is a text is known by its id, a hash of the text.
    """
    if not group.prompt:
        return False
    if asked.get("kind") != "dataset":
        return True
    before, _, after = str(asked.get("template", "{prompt}")).partition("{prompt}")
    if not (group.prompt.startswith(before) and group.prompt.endswith(after)):
        return False
    text = group.prompt[len(before) : len(group.prompt) - len(after)]
    return group.prompt_id == f"dataset:{sha256(json.dumps([text, group.answer]).encode()).hexdigest()[:32]}"
