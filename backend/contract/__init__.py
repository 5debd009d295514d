"""What travels between the three processes: pydantic models and the typed HTTP client. Needs pydantic and httpx only."""
