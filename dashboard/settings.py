"""Where the backend is, and the token that it asks for: from the environment or `.env`, read once."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The dashboard's settings, all prefixed GROUPSCOPE_."""

    model_config = SettingsConfigDict(
        env_prefix="GROUPSCOPE_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    backend_url: str = Field("http://127.0.0.1:8000", description="The backend's address.")
    token: SecretStr | None = Field(
        None, description="What the backend asks for; else the file `token` in the home is read."
    )
    home: Path = Field(Path(".groupscope"), description="The data directory; here only the token is read from it.")

    def secret(self) -> str:
        """The token; empty where there is none, which the backend then refuses in words of its own."""
        if self.token is not None:
            return self.token.get_secret_value()
        file = self.home / "token"
        return file.read_text().strip() if file.is_file() else ""
