"""Routes of bookmarks and judgements."""

from fastapi import APIRouter, Response

from backend.answers import Lines, file
from backend.contract import records as r
from backend.contract.people import Agreement, Bookmark, BookmarkWrite, Choice, ChoiceWrite, ThumbWrite
from backend.errors import Conflict
from backend.people import pairs as judged
from backend.people import store
from backend.people.agreement import agreement
from backend.people.pairs import judgements_of
from backend.runs import store as runs
from backend.services import RowId, Services, ServicesDep
from backend.uploads import store as uploads

router = APIRouter(prefix="/api/v1", tags=["people"])


@router.put("/groups/{group_id}/bookmark")
def set_bookmark(services: ServicesDep, group_id: RowId, write: BookmarkWrite) -> Bookmark:
    """Bookmark a group, or write another note on it."""
    with services.database.write() as tx:
        return store.set_bookmark(tx, group_id, write.note, services.clock.stamp())


@router.delete("/groups/{group_id}/bookmark", status_code=204)
def remove_bookmark(services: ServicesDep, group_id: RowId) -> Response:
    """Forget the bookmark and its note."""
    with services.database.write() as tx:
        store.remove_bookmark(tx, group_id)
    return Response(status_code=204)


@router.put("/completions/{completion_id}/thumb", status_code=204)
def set_thumb(services: ServicesDep, completion_id: RowId, write: ThumbWrite) -> Response:
    """Thumb up, thumb down, or neither."""
    with services.database.write() as tx:
        store.set_thumb(tx, completion_id, write.thumb, services.clock.stamp())
    return Response(status_code=204)


@router.put("/groups/{group_id}/choices")
def choose(services: ServicesDep, group_id: RowId, write: ChoiceWrite) -> Choice:
    """Say which of two completions is better; the other way round replaces what was said before."""
    with services.database.write() as tx:
        return store.choose(tx, group_id, write, services.clock.stamp())


@router.get("/groups/{group_id}/choices")
def list_choices(services: ServicesDep, group_id: RowId) -> r.Page[Choice]:
    """What was chosen in a group, oldest first; all of it."""
    with services.database.read() as tx:
        return r.Page[Choice](items=store.choices_of(tx, group_id))


@router.delete("/choices/{choice_id}", status_code=204)
def remove_choice(services: ServicesDep, choice_id: RowId) -> Response:
    """Take a choice back."""
    with services.database.write() as tx:
        store.remove_choice(tx, choice_id)
    return Response(status_code=204)


@router.get("/runs/{run_id}/agreement")
def run_agreement(services: ServicesDep, run_id: RowId) -> Agreement:
    """People against the reward."""
    with services.database.read() as tx:
        run = runs.get(tx, run_id)
        return agreement(judgements_of(tx, run_id), run.config)


@router.get("/runs/{run_id}/preferences", response_class=Lines)
def run_preferences(services: ServicesDep, run_id: RowId) -> Lines:
    """The judged pairs as JSON lines, a preference data set."""
    return file(Lines, _file_name(run_id), iter(_lines(services, run_id)))


@router.post("/runs/{run_id}/preferences", status_code=201)
def keep_preferences(services: ServicesDep, run_id: RowId) -> r.Upload:
    """The same as an upload; an upload that already holds just these pairs is answered again."""
    lines = _lines(services, run_id)
    if not lines:
        raise Conflict(_why_none(services, run_id))
    with uploads.partial_file(services.settings.home) as partial:
        partial.writelines(lines)
        return uploads.keep(services, _file_name(run_id), partial, again=False)


def _lines(services: Services, run_id: int) -> list[bytes]:
    with services.database.read() as tx:
        run = runs.get(tx, run_id)
        return list(judged.lines(run_id, run.config, judgements_of(tx, run_id).pairs()))


def _why_none(services: Services, run_id: int) -> str:
    with services.database.read() as tx:
        pairs = judgements_of(tx, run_id).pairs()
    if not pairs:
        return f"There are no judged pairs in run {run_id} yet; say of two completions which is better."
    if all(map(judged.of_probe, pairs)):
        why = f"All judged pairs of run {run_id} ({len(pairs)}) are of probes, whose prompts are held out from training"
    else:
        why = f"No judged pair of run {run_id} can be trained on: each is of a probe or has an empty completion"
    return f"{why}; judge completions of another group."


def _file_name(run_id: int) -> str:
    return f"run-{run_id}-preferences.jsonl"
