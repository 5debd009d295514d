"""What preflight says of a person's rows: the columns that were taken, a question, and references that no answer will equal."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection

from backend.contract import stored
from backend.contract.config import RunConfig, data_of
from backend.contract.preflight import Message
from backend.contract.records import Upload
from backend.contract.survey import SurveyQuery
from backend.contract.task import Dataset
from backend.errors import Invalid
from backend.uploads import columns
from backend.uploads import store as uploads
from backend.uploads.survey import survey


def in_messages(invalid: Invalid) -> list[Message]:
    """The errors for which a creation would be refused."""
    errors = ((error.field.removeprefix("config."), error.message) for error in invalid.errors)
    return [Message(level="error", field=field, text=text) for field, text in errors]


def resolved(tx: Connection, home: Path, config: RunConfig) -> tuple[RunConfig, list[Message]]:
    """The configuration with the columns that it leaves open, and what is to be said of them: what was taken, or a question."""
    try:
        found = columns.resolved(tx, home, config)
    except Invalid as invalid:
        return config, in_messages(invalid)
    before, after = data_of(config), data_of(found)
    if before == after or before is None or after is None:
        return config, []
    path, data = after
    said = "; ".join(f"{name} is {value}" for name, value in data if value != getattr(before[1], name))
    return found, [Message(level="info", field=path, text=f"the rows show which column is what: {said}")]


def of_references(home: Path, config: RunConfig, upload: Upload | None) -> Iterator[Message]:
    """What is to be known of the references with which a reward compares."""
    read = data_of(config)
    kinds = [function["kind"] for _, function in stored.rewards_in(config.model_dump(mode="json"))]
    if read is None or upload is None or not isinstance(read[1], Dataset) or "correctness" not in kinds:
        return
    path, data = read
    with suppress(Invalid, FileNotFoundError):
        asked = data.model_dump(include=set(SurveyQuery.model_fields), exclude_none=True)
        for said in survey(uploads.path_of(home, upload.id), SurveyQuery.model_validate(asked)).remarks:
            yield Message(level="warning", field=f"{path}.answer_column", text=said)
