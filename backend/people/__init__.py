"""What people say about groups and completions, and what can be made of it."""
