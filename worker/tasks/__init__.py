"""Tasks: where prompts and reference answers come from."""
