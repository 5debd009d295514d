"""One's own data, as a task or as preference pairs: upload a file, look at its first rows, say which column is what."""

import io
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import BinaryIO
from uuid import uuid4

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.queries import SplitQuery
from backend.contract.records import Upload
from backend.contract.task import as_text
from dashboard.components.live import draw_again
from dashboard.form.draft import Draft, on_change
from dashboard.form.fields import Form, own_first, show, show_fields, show_problems
from dashboard.form.schema import Record
from dashboard.form.survey import columns_for, show_survey
from dashboard.format import count, counted, plain, size
from dashboard.session import client, queued
from dashboard.text import one_line

UPLOAD, HUB = "Uploaded file", "Hub"
TICK = 0.3  # seconds between two looks at a transfer
PASTED = 1_000_000  # characters


def show_dataset(form: Form, record: Record, path: str) -> None:
    """The source, its first rows, the columns, and then the rest of the fields; they stand at `path`."""
    draft, source = form.draft, f"{path}.source"
    place_key, named = draft.key(f"{source}.place"), str(draft.get(source))
    place = HUB if named.startswith("hub:") else UPLOAD

    # the source is then still to be named
    move = on_change(place_key, place, lambda chosen: draft.change({source: "hub:" if chosen == HUB else ""}))
    st.caption(plain(record.help))
    st.segmented_control("Data", [UPLOAD, HUB], default=place, required=True, key=place_key, on_change=move)
    offers: dict[str, Sequence[str]] = {}
    if place == UPLOAD:
        columns = _show_upload(draft, path)
        offers = {f"{path}.{inner.name}": columns for inner in record.fields if inner.name.endswith("_column")}
        show_problems(form, source)
    else:
        name = named.removeprefix("hub:")
        take = draft.taking(source, name, lambda name: f"hub:{name.strip()}")
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
    if draft.get(f"{path}.template") is not None:
        places = "".join(f"{{{name}}}, " for name in upload.columns if name != "prompt")
        st.caption(plain(f"In the template: {places}and {{prompt}} for the prompt column."))
    names = show_survey(draft, path, upload)
    _show_split(draft, path, upload)
    return list(dict.fromkeys([*names, *upload.columns]))


@dataclass
class Transfer:
    """Files on their way to the backend, in a thread of their own: a click elsewhere draws the page again, and they go on."""

    files: Sequence[tuple[str, BinaryIO]]
    sent: tuple[str, int, int]  # a file's name, its bytes, and those that are on their way
    key: str = field(default_factory=lambda: uuid4().hex)
    upload: Future[Upload] = field(default_factory=Future)
    pasted: bool = False
    taken: bool = False  # by the form

    def send(self, to: Client) -> None:
        """Upload them, and let go of them."""
        try:
            self.upload.set_result(to.upload_files(self.files, progress=self.key, on_sent=self._note))
        except Exception as error:  # noqa: BLE001 — the page raises it again
            self.upload.set_exception(error)
        finally:
            self.files = ()

    def _note(self, name: str, whole: int, sent: int) -> None:
        self.sent = name, whole, sent


def _show_uploader(draft: Draft, path: str) -> None:
    """Files of any known format, several of which become one, or rows that are pasted."""
    place = f"transfer-{draft.id}-{path}"
    transfer: Transfer | None = st.session_state.get(place)
    under_way = transfer is not None and not transfer.upload.done()
    # the uploader is empty after each transfer, the box once its rows have arrived
    turn = transfer.key if transfer else ""
    used = f"{place}-pasted"
    files = st.file_uploader(
        "CSV, TSV, JSON, JSON lines, Parquet or Arrow",
        accept_multiple_files=True,
        key=f"{draft.key(f'{path}.upload')}-{turn}",
        disabled=under_way,
        help="The first row of a table names its columns, for example prompt and answer\\. "
        "Several files become one data set\\. Files may be packed: \\.gz, \\.zst, \\.bz2, \\.xz\\. A file of "
        "several gigabytes is better sent by `groupscope upload`\\.",
    )
    with st.popover("Paste rows", icon=":material/content_paste:"):
        text = st.text_area(
            "Rows",
            key=f"{draft.key(f'{path}.pasted')}-{st.session_state.get(used, '')}",
            height=200,
            placeholder="question,answer\n1 + 1,2",
            max_chars=PASTED,
        )
        # never grey: the browser sends what was pasted no earlier than with the click
        pressed = st.button("Use these rows", disabled=under_way)
        pasted = pressed and bool(text.strip())
        if pressed and not pasted:
            st.markdown(":small[:red[Paste rows into the box first]]")
    if files or pasted:
        sources = [("pasted", io.BytesIO(text.encode()))] if pasted else [(file.name, file) for file in files]
        st.session_state[place] = begun = Transfer(sources, (sources[0][0], 0, 0), pasted=pasted)
        # it ends with the process, whatever it waits for
        Thread(target=begun.send, args=(client(),), daemon=True).start()
        wait([begun.upload], timeout=TICK)
        draw_again()
    if transfer is not None and under_way:
        st.fragment(_show_sent, run_every=TICK)(transfer)
    elif transfer is not None and not transfer.taken:
        upload = queued(transfer.upload.result, "The backend does not answer; upload the file again once it is up\\.")
        if upload is not None:
            transfer.taken = True
            if transfer.pasted:
                st.session_state[used] = transfer.key
            draft.change(_with_columns(draft, path, upload))
            draw_again()


def _show_sent(transfer: Transfer) -> None:
    """How much of a file is on its way, then how many rows were read; the page is drawn again at the end."""
    if transfer.upload.done():
        draw_again()
    name, whole, sent = transfer.sent
    if sent < whole:
        st.progress(sent / whole, f"{plain(name)}: {size(sent)} of {size(whole)} on its way")
    else:
        with suppress(ApiError, Unreachable):
            rows = client().upload_progress(transfer.key)
            doing = "waiting for its turn, or being put together" if rows is None else f"{counted(rows, 'row')} read"
            st.progress(1.0, f"{plain(name)}: {doing}")


def _with_columns(draft: Draft, path: str, upload: Upload) -> dict[str, Json]:
    """The upload as the source, with the columns that are most likely meant."""
    described = draft.get(path)
    described = described if isinstance(described, dict) else {}
    found: dict[str, Json] = {f"{path}.{name}": value for name, value in columns_for(upload, described).items()}
    if "shares" in described:  # of the sources of other rows
        found[f"{path}.shares"] = {}
    return {f"{path}.source": f"upload:{upload.id}", **found}


def _show_uploads(draft: Draft, path: str) -> Upload | None:
    try:
        uploads = {f"upload:{upload.id}": upload for upload in client().uploads()}
    except (ApiError, Unreachable):
        uploads = {}
    source = str(draft.get(f"{path}.source"))
    key = draft.key(f"{path}.source")
    known = source in uploads

    def take(chosen: str | None) -> None:
        if chosen is not None:
            draft.change(_with_columns(draft, path, uploads[chosen]))

    st.selectbox(
        "Uploaded before",
        list(uploads),
        index=list(uploads).index(source) if known else None,
        # with its number: a browser says which one by these words
        format_func=lambda one: (
            f"{one_line(uploads[one].name)} · {counted(uploads[one].rows, 'row')} · {one.replace(':', ' ')}"
        ),
        placeholder="none yet" if not uploads else "choose a file",
        disabled=not uploads,
        key=key,
        on_change=on_change(key, source if known else None, take),
    )
    if source.startswith("upload:") and not known:
        st.markdown(f":small[:red[{plain(source)} is not there any more; choose another file\\.]]")
    return uploads.get(source)


def _show_first_rows(upload: Upload) -> None:
    """What the file begins with; nothing if the backend cannot say."""
    try:
        preview = client().preview_upload(upload.id)
    except (ApiError, Unreachable):
        return
    first = preview.rows
    if preview.to_check is not None:
        st.warning(
            f"The file is not UTF-8, and its encoding was guessed: {plain(str(upload.encoding))}\\. Its first word beyond plain "
            f"letters reads **{plain(preview.to_check)}**; if that is wrong, save the file as UTF-8 and upload it again\\."
        )
    st.caption(f"{_described(upload)}; the first {len(first)}:")
    for note in upload.notes:
        st.caption(f":material/info: {plain(note)}")
    rows = [[None if row.get(name) is None else as_text(row[name]) for name in upload.columns] for row in first]
    table = pd.DataFrame(rows, columns=upload.columns, dtype="string")
    st.dataframe(table, hide_index=True, key=f"preview-{upload.id}")


def _show_split(draft: Draft, path: str, upload: Upload) -> None:
    """How many rows are trained on and how many are held out, in all and of each source; nothing if the backend cannot say."""
    described = draft.get(path)
    named = described if isinstance(described, dict) else {}
    asked = {name: named.get(name) for name in SplitQuery.model_fields}
    try:
        split = client().split_upload(upload.id, SplitQuery.model_validate(asked))
    except (ApiError, Unreachable, ValidationError):
        return
    always = "; the same prompts whenever this data is used" if split.held_out else ""
    st.caption(
        f"**{count(split.train)}** rows to train on, **{count(split.held_out)}** held out for evaluations{always}\\."
    )
    if not split.sources:
        return
    table = pd.DataFrame(
        [(name, part.train, part.held_out) for name, part in split.sources.items()],
        columns=["source", "to train on", "held out"],
    )
    st.dataframe(table, hide_index=True, key=f"sources-{upload.id}")
    if split.source_count > len(split.sources):
        st.caption(f"The first {len(split.sources)} of {count(split.source_count)} sources, by name\\.")
        return  # equal shares of these would leave the others out of training
    equal: Json = dict.fromkeys(split.sources, 1)
    if named.get("shares") != equal and len(split.sources) > 1:
        st.button(
            "Equal shares",
            on_click=draft.change,
            args=({f"{path}.shares": equal},),
            help="The same number of prompts from each source\\.",
        )


def _described(upload: Upload) -> str:
    """How many rows it has, how it was read, and what to know about the rows."""
    found = [counted(upload.rows, "row"), counted(len(upload.columns), "column"), size(upload.size_bytes)]
    if upload.format != "jsonl":
        separated = f", separated by {upload.separator}s" if upload.separator else ""
        found.append("TSV" if upload.separator == "tab" else f"{upload.format.upper()}{separated}")
    found += [f"written in {upload.encoding}"] if upload.encoding else []
    found += [f"**{counted(upload.duplicates, 'row')} equal to an earlier one**"] if upload.duplicates else []
    found += [f"{counted(upload.empty, 'empty row')} left out"] if upload.empty else []
    return " · ".join(found)
