"""The page of one run, part by part: its head, its tabs, and what can be done with it."""
