"""What the backend found in an upload: which column is what, rows as the model will read them, how answers are compared."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.records import Upload
from backend.contract.survey import Survey, SurveyQuery
from backend.contract.task import unknown_places
from dashboard.form.draft import Draft
from dashboard.format import counted, plain
from dashboard.session import client

_NEEDED = ("prompt_column", "chosen_column", "rejected_column")
_KINDS = {"numeric": "number", "symbolic": "formula", "exact": "text"}


def survey_of(upload: Upload, described: Mapping[str, Json], *, guessed: bool = False) -> Survey | None:
    """Of the columns that the form names, or of those that the rows suggest; None if the backend cannot say."""
    asked = {} if guessed else {name: described.get(name) for name in SurveyQuery.model_fields if described.get(name)}
    use = "pairs" if "chosen_column" in described else "task"
    try:
        return client().survey_upload(upload.id, SurveyQuery.model_validate({**asked, "use": use}))
    except (ApiError, Unreachable, ValidationError):
        return None


def columns_for(upload: Upload, described: Mapping[str, Json]) -> dict[str, Json]:
    """The fields of the form that name columns, as the rows suggest them; nothing is named where a person must say it."""
    found = survey_of(upload, described, guessed=True)
    if found is None:
        return {}
    # what is None may be left out of a configuration that is opened
    names = dict.fromkeys(name for name in (*described, *found.fields) if name.endswith("_column"))
    fields: dict[str, Json] = {name: found.fields.get(name) or ("" if name in _NEEDED else None) for name in names}
    other = "template" in described and unknown_places(str(described["template"]), upload.columns)
    if other or "template" in found.fields:
        fields["template"] = found.fields.get("template", "{prompt}")
    return fields


def show_survey(draft: Draft, path: str, upload: Upload) -> list[str]:
    """What is to be decided first, then what the rows become; returns the names that a field may have."""
    described = draft.get(path)
    named = described if isinstance(described, dict) else {}
    guess = survey_of(upload, named, guessed=True)
    if guess is None:
        return []
    suggested = columns_for(upload, named)
    other = {name: value for name, value in suggested.items() if named.get(name) != value}
    if guess.question is not None and not named.get("prompt_column"):
        st.warning(plain(guess.question), icon=":material/help:")
    elif not other:
        for said in guess.said:
            st.caption(_sentence(said))
    found = survey_of(upload, named) if named.get("prompt_column") else guess
    if found is not None and found.problem is not None:
        st.error(_sentence(found.problem), icon=":material/error:")
    if found is not None and found.examples:
        _show_examples(found)
    if other and suggested.get("prompt_column"):
        st.button(
            "Columns as the rows suggest",
            key=draft.key(f"{path}.suggested"),
            icon=":material/build:",
            on_click=draft.change,
            args=({f"{path}.{name}": value for name, value in suggested.items()},),
        )
    return guess.columns


def _sentence(text: str) -> str:
    return plain(f"{text[:1].upper()}{text[1:]}.")


def _show_examples(found: Survey) -> None:
    """The first rows; how many references are of each kind, and what two of them would say."""
    titles = {"prompt": "the model reads", "reference": "reference answer"}
    rows = pd.DataFrame([one.model_dump() for one in found.examples]).rename(columns=titles)
    st.dataframe(rows.dropna(axis="columns", how="all"), hide_index=True)
    if not found.matches:
        return
    kinds = [counted(number, _KINDS[kind]) for kind, number in found.matches.items()]
    st.caption(plain(f"Reference answers: {', '.join(kinds)}. With match “task” each is compared as what it is."))
    for one in found.worked:
        st.caption(plain(f"For the reference “…{one.reference[-60:]}” “{one.right}” is right, “{one.wrong}” is wrong."))
