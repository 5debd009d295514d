"""Where the backend is, and the token that it asks for: from the environment or `<home>/.env`, read once."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backend.contract.home import DEFAULT, LISTED, CannotStart, Token, stored_token


class Settings(BaseSettings):
    """The dashboard's settings, all prefixed GROUPSCOPE_."""

    model_config = SettingsConfigDict(
        env_prefix="GROUPSCOPE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    backend_url: str = Field("http://127.0.0.1:8000", description="The backend's address.")
    token: Token | None = Field(
        None, description="What the backend asks for; else the file `token` in the home is read."
    )
    home: Path = Field(DEFAULT, description="The data directory; here only the token is read from it.")
    dashboard_allowed_hosts: Annotated[tuple[str, ...], NoDecode, LISTED] = Field(
        (),
        description="Host names under which the dashboard may be opened besides the loopback ones, separated by commas.",
    )

    viewing: bool = Field(
        False, description="Whether runs are only looked at: then nothing is said of workers, which nobody misses."
    )

    def secret(self) -> str:
        """The token; empty where there is none, which the backend then refuses in words of its own."""
        if self.token is not None:
            return self.token.get_secret_value()
        try:
            return stored_token(self.home)
        except CannotStart:
            return ""
