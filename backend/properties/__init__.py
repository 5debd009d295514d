"""What the reward pays for: which properties of completions go with it, within groups."""
