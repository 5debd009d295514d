"""Runs beside each other: which they are, each alone, and by setting, over its seeds."""
