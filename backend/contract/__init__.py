"""What travels between the three processes: pydantic models and the typed HTTP client. Needs the base install only."""
