"""Uploads: JSONL files that runs take their prompts from."""
