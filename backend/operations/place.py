"""The installation that an operator's command is about."""

from pydantic import Field

from backend.bucket.bucket import Address
from backend.contract.connection import Connection


class Place(Connection):
    """Its settings, beyond those of who only asks the backend."""

    database_url: str | None = Field(None, description="The backend's database, where it is not the file in the home.")
    checkpoints: Address | None = Field(None, description="The bucket of checkpoints.")
