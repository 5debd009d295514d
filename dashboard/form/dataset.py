"""A task from one's own data: upload a file, look at its first rows, say which column is what."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.contract.records import Upload, UploadPreview
from dashboard.form.draft import Draft
from dashboard.form.fields import Form, own_first, show, show_fields, show_problems
from dashboard.form.schema import Record
from dashboard.format import count, counted, plain, size
from dashboard.session import client, explain

UPLOAD, HUB = "Uploaded file", "Hub"
_REFUSED = "upload-refused"


def show_dataset(form: Form, record: Record) -> None:
    """The source, its first rows, the columns, and then the rest of the task's fields."""
    draft = form.draft
    st.caption(plain(record.help))
    fields = {inner.name: inner for inner in record.fields}
    columns: Sequence[str] | None = None
    if _place(draft) == UPLOAD:
        columns = _show_upload(draft)
        show_problems(form, "task.source")
    else:
        _show_hub(draft)
        show_problems(form, "task.source")
        for column, name in zip(st.columns(2), ("subset", "split"), strict=True):
            with column:
                show(form, fields[name], f"task.{name}")
    offers = {f"task.{name}": columns for name in ("prompt_column", "answer_column")} if columns is not None else {}
    own = Form(draft, form.problems, {**form.suggestions, **offers}, form.elsewhere)
    rest = [inner for inner in record.fields if inner.name not in ("source", "subset", "split")]
    show_fields(own, own_first(rest), "task")


def _place(draft: Draft) -> str:
    """Where the data lie; choosing the other place empties the source."""
    key = draft.key("task.source.place")

    def take() -> None:
        draft.change({"task.source": "hub:" if st.session_state[key] == HUB else ""})

    now = HUB if str(draft.get("task.source")).startswith("hub:") else UPLOAD
    st.segmented_control("Data", [UPLOAD, HUB], default=now, required=True, key=key, on_change=take)
    return now


def _show_hub(draft: Draft) -> None:
    key = draft.key("task.source")

    def take() -> None:
        draft.write("task.source", f"hub:{st.session_state[key].strip()}")

    name = str(draft.get("task.source")).removeprefix("hub:")
    st.text_input("Data set", name, key=key, placeholder="openai/gsm8k", on_change=take)


def _show_upload(draft: Draft) -> list[str]:
    """The file, chosen or uploaded; returns its columns."""
    file, chosen = st.columns(2)
    with file:
        _show_uploader(draft)
    with chosen:
        upload = _show_uploads(draft)
    if upload is None:
        st.caption("The first rows will appear here, with a choice of columns.")
        return []
    preview = _preview(upload.id)
    if preview is not None:
        _show_preview(preview)
    return upload.columns


def _show_uploader(draft: Draft) -> None:
    key = draft.key("task.upload")

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
            draft.change(_with_columns(upload))

    st.file_uploader(
        "JSONL file",
        type=["jsonl", "ndjson", "json"],
        key=key,
        help="One JSON object a line, for example with the fields prompt and answer\\.",
        on_change=take,
    )
    if _REFUSED in st.session_state:
        st.error(st.session_state[_REFUSED], icon=":material/error:")


def _with_columns(upload: Upload) -> dict[str, str | None]:
    """The upload as the task's source, with the columns that are most likely meant."""
    prompt = next((name for name in ("prompt", "question", "input", "problem") if name in upload.columns), None)
    answer = next((name for name in ("answer", "solution", "target", "output") if name in upload.columns), None)
    return {
        "task.source": f"upload:{upload.id}",
        "task.prompt_column": prompt or (upload.columns[0] if upload.columns else ""),
        "task.answer_column": answer,
    }


def _show_uploads(draft: Draft) -> Upload | None:
    try:
        uploads = {f"upload:{upload.id}": upload for upload in client().uploads()}
    except (ApiError, Unreachable):
        uploads = {}
    source = str(draft.get("task.source"))
    key = draft.key("task.source")
    known = source in uploads

    def take() -> None:
        if st.session_state[key] is not None:
            draft.change(_with_columns(uploads[st.session_state[key]]))

    st.selectbox(
        "Uploaded before",
        list(uploads),
        index=list(uploads).index(source) if known else None,
        format_func=lambda one: f"{uploads[one].name} · {counted(uploads[one].rows, 'row')}",
        placeholder="none yet" if not uploads else "choose a file",
        disabled=not uploads,
        key=key,
        on_change=take,
    )
    if source.startswith("upload:") and not known:
        st.caption(f":red[{plain(source)} is not there any more; choose another file\\.]")
    return uploads.get(source)


def _preview(upload_id: int) -> UploadPreview | None:
    try:
        return client().preview_upload(upload_id)
    except (ApiError, Unreachable):
        return None


def _show_preview(preview: UploadPreview) -> None:
    upload = preview.upload
    columns = counted(len(upload.columns), "column")
    st.caption(f"{count(upload.rows)} rows, {columns}, {size(upload.size_bytes)}; the first {len(preview.rows)}:")
    rows = [{name: _cell(row.get(name)) for name in upload.columns} for row in preview.rows]
    table = pd.DataFrame(rows, columns=upload.columns, dtype="string")
    st.dataframe(table, hide_index=True, key=f"preview-{upload.id}")


def _cell(value: object) -> str | None:
    return None if value is None else str(value)
