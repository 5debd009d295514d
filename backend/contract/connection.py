"""Where the command line and scripts find the backend, and the token that they show."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.contract.client import Client
from backend.contract.home import DEFAULT, CannotStart, Token, stored_token


class Connection(BaseSettings):
    """The settings of who asks a backend, read once from the environment (GROUPSCOPE_…) or `<home>/.env`."""

    model_config = SettingsConfigDict(
        env_prefix="GROUPSCOPE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    backend_url: str = Field("http://127.0.0.1:8000", description="The backend's address.")
    token: Token | None = Field(None, description="What the backend asks for; else the file `token` in the home.")
    home: Path = Field(
        DEFAULT, description="The data directory: the token is read from it, and what a script records waits there."
    )

    def client(self) -> Client:
        """A client for the backend. Raises CannotStart if there is no token to show."""
        return Client(self.backend_url, self._secret())

    def known_token(self) -> str | None:
        """The token, if there is one to show."""
        try:
            return self._secret()
        except CannotStart:
            return None

    def _secret(self) -> str:
        if self.token is not None:
            return self.token.get_secret_value()
        return stored_token(self.home)
