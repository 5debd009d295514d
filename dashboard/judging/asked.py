"""Something that a person asked the backend to keep: done, or said why not."""

from collections.abc import Callable

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from dashboard.session import explain


def kept(write: Callable[[], object]) -> bool:
    """Whether the write went through; a refusal is shown in the backend's words."""
    try:
        write()
    except ApiError as refusal:
        st.toast(explain(refusal), icon=":material/error:")
    except Unreachable:
        st.toast("The backend does not answer; nothing was kept\\.", icon=":material/cloud_off:")
    else:
        return True
    return False
