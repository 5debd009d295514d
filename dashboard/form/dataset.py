"""One's own data, as a task or as preference pairs: upload a file, look at its first rows, say which column is what."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.records import Upload
from dashboard.form.draft import Draft
from dashboard.form.fields import Form, own_first, show, show_fields, show_problems
from dashboard.form.schema import Record
from dashboard.format import count, counted, plain, size
from dashboard.session import client, explain
from dashboard.text import one_line

UPLOAD, HUB = "Uploaded file", "Hub"
USUAL = {  # what columns are called, the likeliest first
    "prompt_column": ("prompt", "question", "input", "problem"),
    "answer_column": ("answer", "solution", "target", "output"),
    "chosen_column": ("chosen", "preferred", "better", "winner"),
    "rejected_column": ("rejected", "other", "worse", "loser"),
}
_REFUSED = "upload-refused"


def show_dataset(form: Form, record: Record, path: str) -> None:
    """The source, its first rows, the columns, and then the rest of the fields; they stand at `path`."""
    draft, source = form.draft, f"{path}.source"
    place_key, named = draft.key(f"{source}.place"), str(draft.get(source))
    place = HUB if named.startswith("hub:") else UPLOAD

    def move() -> None:  # the source is then still to be named
        draft.change({source: "hub:" if st.session_state[place_key] == HUB else ""})

    st.caption(plain(record.help))
    st.segmented_control("Data", [UPLOAD, HUB], default=place, required=True, key=place_key, on_change=move)
    offers: dict[str, Sequence[str]] = {}
    if place == UPLOAD:
        columns = _show_upload(draft, path)
        offers = {f"{path}.{inner.name}": columns for inner in record.fields if inner.name in USUAL}
        show_problems(form, source)
    else:
        take = draft.taking(source, lambda name: f"hub:{name.strip()}")
        name = named.removeprefix("hub:")
        st.text_input("Data set", name, key=draft.key(source), placeholder="openai/gsm8k", on_change=take)
        show_problems(form, source)
        of_hub = [inner for inner in record.fields if inner.name in ("subset", "split")]
        for column, inner in zip(st.columns(2), of_hub, strict=True):
            with column:
                show(form, inner, f"{path}.{inner.name}")
    own = Form(draft, form.problems, {**form.suggestions, **offers}, form.elsewhere)
    rest = [inner for inner in record.fields if inner.name not in ("source", "subset", "split")]
    show_fields(own, own_first(rest), path)


def _show_upload(draft: Draft, path: str) -> list[str]:
    """The file, chosen or uploaded; returns its columns."""
    file, chosen = st.columns(2)
    with file:
        _show_uploader(draft, path)
    with chosen:
        upload = _show_uploads(draft, path)
    if upload is None:
        st.caption("The first rows will appear here, with a choice of columns.")
        return []
    _show_first_rows(upload)
    return upload.columns


def _show_uploader(draft: Draft, path: str) -> None:
    key = draft.key(f"{path}.upload")

    def take() -> None:
        file = st.session_state[key]
        st.session_state.pop(_REFUSED, None)
        if file is None:
            return
        try:
            upload = client().upload(file.name, file.getvalue())
        except ApiError as refusal:
            st.session_state[_REFUSED] = explain(refusal)
        except Unreachable:
            st.session_state[_REFUSED] = "The backend does not answer; upload the file again once it is up\\."
        else:
            draft.change(_with_columns(draft, path, upload))

    st.file_uploader(
        "JSONL file",
        type=["jsonl", "ndjson", "json"],
        key=key,
        help="One JSON object a line, for example with the fields prompt and answer, or prompt, chosen and rejected\\.",
        on_change=take,
    )
    if _REFUSED in st.session_state:
        st.error(st.session_state[_REFUSED], icon=":material/error:")


def _with_columns(draft: Draft, path: str, upload: Upload) -> dict[str, Json]:
    """The upload as the source, with the columns that are most likely meant."""
    described = draft.get(path)
    wanted = [name for name in USUAL if isinstance(described, dict) and name in described]
    found: dict[str, Json] = {
        f"{path}.{name}": next((usual for usual in USUAL[name] if usual in upload.columns), None) for name in wanted
    }
    prompt = f"{path}.prompt_column"
    first = upload.columns[0] if upload.columns else ""
    return {f"{path}.source": f"upload:{upload.id}", **found, prompt: found.get(prompt) or first}


def _show_uploads(draft: Draft, path: str) -> Upload | None:
    try:
        uploads = {f"upload:{upload.id}": upload for upload in client().uploads()}
    except (ApiError, Unreachable):
        uploads = {}
    source = str(draft.get(f"{path}.source"))
    key = draft.key(f"{path}.source")
    known = source in uploads

    def take() -> None:
        if st.session_state[key] is not None:
            draft.change(_with_columns(draft, path, uploads[st.session_state[key]]))

    st.selectbox(
        "Uploaded before",
        list(uploads),
        index=list(uploads).index(source) if known else None,
        format_func=lambda one: f"{one_line(uploads[one].name)} · {counted(uploads[one].rows, 'row')}",
        placeholder="none yet" if not uploads else "choose a file",
        disabled=not uploads,
        key=key,
        on_change=take,
    )
    if source.startswith("upload:") and not known:
        st.markdown(f":small[:red[{plain(source)} is not there any more; choose another file\\.]]")
    return uploads.get(source)


def _show_first_rows(upload: Upload) -> None:
    """What the file begins with; nothing if the backend cannot say."""
    try:
        first = client().preview_upload(upload.id).rows
    except (ApiError, Unreachable):
        return
    columns = counted(len(upload.columns), "column")
    st.caption(f"{count(upload.rows)} rows, {columns}, {size(upload.size_bytes)}; the first {len(first)}:")
    rows = [[None if row.get(name) is None else str(row[name]) for name in upload.columns] for row in first]
    table = pd.DataFrame(rows, columns=upload.columns, dtype="string")
    st.dataframe(table, hide_index=True, key=f"preview-{upload.id}")
