"""A bucket that worker and backend reach: its objects, and how checkpoints lie in it."""
