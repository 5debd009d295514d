"""Two texts side by side: what they share, and where they differ."""
