"""Uploads: rows that runs take their prompts from, kept as JSON lines."""
