"""Data sets of the Hugging Face Hub, through the `datasets` library, which is imported only here and only when needed."""

import json
import re

from worker.tasks.items import TaskError
from worker.tasks.jsonl import Row

# The library takes anything else for a built-in loader ("json") or a local directory ("a/../../etc"), and reads that.
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def read_hub(name: str, subset: str | None, split: str) -> list[tuple[int, Row]]:
    """The rows of a split with their numbers, from 1. Downloads what the library's cache does not hold.

    Raises TaskError: `dataset_unknown`, `dataset_unreachable` or `dataset_unreadable`.
    """
    if not _REPOSITORY.fullmatch(name) or ".." in name:
        raise TaskError(
            "dataset_unknown",
            f"{name!r} is not the name of a data set on the Hub; write owner/name, as in openai/gsm8k",
        )
    import datasets

    try:
        dataset = datasets.load_dataset(f"hf://datasets/{name}", subset, split=split)
        # Dates and the like become text: a row is JSON.
        return [(number, json.loads(json.dumps(row, default=str))) for number, row in enumerate(dataset, 1)]
    except datasets.exceptions.DatasetNotFoundError as error:
        raise TaskError(
            "dataset_unknown", f"the data set {name} is not on the Hub, or not open to you: {error}"
        ) from error
    except ConnectionError as error:
        raise TaskError(
            "dataset_unreachable",
            f"the data set {name} cannot be fetched: {error}. Give the worker network access, or upload the rows as JSONL",
        ) from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise TaskError("dataset_unreadable", f"the data set {name} cannot be read: {error}") from error
