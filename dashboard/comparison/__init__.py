"""Runs beside each other: which they are, each alone, and in groups over their seeds."""
