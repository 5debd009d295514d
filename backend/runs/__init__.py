"""Runs: their rows, what they need of a worker, and the curve of their reward."""
