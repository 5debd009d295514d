"""The backend's settings, read once from the environment (GROUPSCOPE_…) or `<home>/.env`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy import URL

from backend.bucket.bucket import Address
from backend.contract.home import DATABASE, DEFAULT, LISTED, Token


class Settings(BaseSettings):
    """One value per setting; an empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix="GROUPSCOPE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    home: Path = Field(DEFAULT, description="The data directory: database, uploads, checkpoints, traces.")
    database_url: str | None = Field(None, description="Where the records lie; a SQLite file in the home by default.")
    token: Token | None = Field(None, description="What clients must show; made and kept in <home>/token if unset.")
    checkpoints: Address | None = Field(
        None,
        description="The bucket in which workers keep checkpoints, s3://bucket/prefix: for downloads and deletions.",
    )
    backend_host: str = Field("127.0.0.1", description="The address to listen on; anything but loopback needs a token.")
    backend_port: Annotated[int, Field(ge=0, le=65_535)] = Field(8000, description="The port to listen on.")
    backend_allowed_hosts: Annotated[tuple[str, ...], NoDecode, LISTED] = Field(
        (), description="Host names that requests may name besides the loopback ones, separated by commas."
    )
    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        30.0, description="A worker that is silent for longer loses its run."
    )
    sweep_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        5.0, description="How often lost runs and unheeded requests are settled."
    )
    max_failures: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="A run is given up after this number of lost leases and crashes."
    )
    max_upload_bytes: Annotated[int, Field(ge=1, le=2**40)] = Field(
        2 * 2**30, description="The largest file that can be uploaded."
    )
    busy_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        5.0, description="How long a request waits for a locked database before it is answered 503."
    )

    @property
    def resolved_database_url(self) -> str:
        """The database's URL, with the default filled in."""
        own = URL.create("sqlite", database=str(self.home.resolve() / DATABASE))  # ? and % are signs of a URL
        return self.database_url or own.render_as_string()
