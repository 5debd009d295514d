"""Runs: what people create, list, change and command."""
