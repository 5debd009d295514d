"""The group as a card: its completions, its arithmetic spelled out, and the way from one to the next."""
