"""What a script for TRL has from a configuration of ours: the model, the rows, and the reward functions as TRL calls them."""

import atexit
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from transformers import AutoTokenizer

from backend.contract.base import Json
from backend.contract.connection import Connection
from backend.contract.home import load
from backend.contract.reward import Rewards
from backend.contract.task import Task
from worker.algorithms.total_reward import closed_gates
from worker.policy.sources import resolve
from worker.rewards.resources import reward_resources
from worker.rewards.scoring import RewardScorer, Sample
from worker.settings import Settings
from worker.tasks.items import Item
from worker.tasks.loading import load_items

Row = dict[str, Json]
RewardFunction = Callable[..., list[float | None]]


class Parts:
    """The parts of one run, which are made when they are asked for.

    `settings` has the model, the task and the rewards as a configuration has them; `files` are reward files of a person's own, by
    name, which otherwise lie in the folder of rewards. Raises RunFailure for what is not on this machine, ValidationError for other settings.
    """

    def __init__(self, settings: Mapping[str, Any], files: Mapping[str, str] | None = None) -> None:
        self._settings, self._files = settings, files
        self._worker = load(Settings)
        self._open = ExitStack()
        atexit.register(self.close)
        self._seen: object = None  # the completions that were scored last
        self._scores: list[dict[str, float | None]] = []

    def close(self) -> None:
        """End what scores; as the program ends, too."""
        self._open.close()

    @cached_property
    def _source(self) -> Any:
        source = str(self._settings["model"]["source"])
        worker = self._worker
        return resolve(source, converted=worker.models, root=worker.model_root, checkpoint=None, store=worker.store)

    @property
    def model(self) -> str:
        """A folder, or an id of the Hub."""
        return str(self._source.location)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, which pads on the left, as TRL asks."""
        return AutoTokenizer.from_pretrained(self.model, revision=self._source.revision or "main", padding_side="left")

    @property
    def bfloat16(self) -> bool:
        """Whether to compute in bfloat16: as it was chosen, and otherwise on a GPU that has it."""
        dtype = self._settings["model"]["dtype"]
        on_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        return bool(dtype == "bfloat16" or (dtype == "auto" and on_gpu))

    @cached_property
    def _items(self) -> tuple[list[Item], list[Item]]:
        task: Task = TypeAdapter(Task).validate_python(self._settings["task"])
        items = load_items(task, fetch_upload=_upload)
        return list(items.train), list(items.held_out)[: int(self._settings["budget"]["eval_items"])]

    @property
    def rows(self) -> list[Row]:
        """The prompts to train on, each with its answer and its place."""
        return [self._row(place, item) for place, item in enumerate(self._items[0])]

    @property
    def held_out_rows(self) -> list[Row]:
        """The prompts of evaluations."""
        first = len(self._items[0])
        return [self._row(place, item) for place, item in enumerate(self._items[1], first)]

    def _row(self, place: int, item: Item) -> Row:
        prompt: Json = item.question
        if item.messages is not None and self.tokenizer.chat_template is not None:
            prompt = [dict(message) for message in item.messages]
        elif item.messages is not None:
            prompt = "\n\n".join(message["content"] for message in item.messages)
        return {"prompt": prompt, "answer": item.answer, "item": place}

    @cached_property
    def _rewards(self) -> Rewards:
        return Rewards.model_validate(self._settings["rewards"])

    @property
    def reward_functions(self) -> list[RewardFunction]:
        """A function for each reward, under its name; TRL has the weights."""
        return [self._function(one.name) for one in self._rewards.functions]

    def _function(self, name: str) -> RewardFunction:
        def reward(
            completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], item: Sequence[int], **_: object
        ) -> list[float | None]:
            # TRL calls each function with the same list: all are scored at the first call
            if completions is not self._seen:
                self._scores, self._seen = self._score(completions, completion_ids, item), completions
            return [scores.get(name) for scores in self._scores]

        reward.__name__ = name
        return reward

    def _score(
        self, completions: Sequence[Any], ids: Sequence[Sequence[int]], places: Sequence[int]
    ) -> list[dict[str, float | None]]:
        """The raw scores of each completion by reward: 0 behind a closed gate, and nothing where its total is not known."""
        train, held_out = self._items
        items = [*train, *held_out]
        samples = [
            Sample(one if isinstance(one, str) else one[0]["content"], len(tokens), items[place], list(tokens))
            for one, tokens, place in zip(completions, ids, places, strict=True)
        ]
        found = self._scorer.score([*_groups(samples)])
        scores: list[dict[str, float | None]] = []
        for components, total in zip(found.components, found.total, strict=True):
            raw = {one.name: one.raw for one in components}
            closed = closed_gates(raw, self._rewards.gates)
            known = {name: 0.0 if name in closed else value for name, value in raw.items()}
            scores.append(known if total == total else {})
        return scores

    @cached_property
    def _scorer(self) -> RewardScorer:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = str(self._settings["model"]["dtype"])
        made = reward_resources(self._rewards, self._worker, device, dtype, {})
        resources = self._open.enter_context(made)
        if self._files:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="groupscope-rewards-")))
            for name, text in self._files.items():
                (folder / name).write_text(text, encoding="utf-8")
            resources = replace(resources, own=folder)
        return self._open.enter_context(RewardScorer(self._rewards, resources))


def _groups(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Completions of one prompt are neighbours."""
    for _, group in groupby(samples, key=lambda sample: sample.item.id):
        yield list(group)


def _upload(number: int) -> bytes:
    """The rows of an upload, which the backend has."""
    with load(Connection).client() as client:
        return client.upload_content(number)
