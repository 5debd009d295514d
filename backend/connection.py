"""Where the command line finds the backend, and the token it shows."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.contract.client import Client


class NoToken(Exception):
    """Neither the environment nor the data directory has a token."""


class Connection(BaseSettings):
    """The command line's settings, read once from the environment (GROUPSCOPE_…) or `.env`."""

    model_config = SettingsConfigDict(
        env_prefix="GROUPSCOPE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    backend_url: str = Field("http://127.0.0.1:8000", description="The backend's address.")
    token: SecretStr | None = Field(None, description="What the backend asks for; else the file `token` in the home.")
    home: Path = Field(Path(".groupscope"), description="The data directory; only the token is read from it.")

    def client(self) -> Client:
        """A client for the backend. Raises NoToken where there is none to show."""
        return Client(self.backend_url, self._secret())

    def known_token(self) -> str | None:
        """The token, if there is one to show."""
        try:
            return self._secret()
        except NoToken:
            return None

    def _secret(self) -> str:
        if self.token is not None:
            return self.token.get_secret_value()
        try:
            return (self.home / "token").read_text().strip()
        except OSError:
            raise NoToken(
                f"no token: {self.home / 'token'} cannot be read; run this where `groupscope up` runs, "
                "or set GROUPSCOPE_HOME or GROUPSCOPE_TOKEN"
            ) from None
