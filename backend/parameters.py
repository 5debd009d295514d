"""Parameters that routes share: bounded numbers in paths, and the query of a list."""

from typing import Annotated

from fastapi import Path, Query

from backend.contract.queries import LAST_STEP, PageQuery

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]
StepNumber = Annotated[int, Path(ge=0, le=LAST_STEP)]
PageAsked = Annotated[PageQuery, Query()]
