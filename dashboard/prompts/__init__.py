"""Prompts through time: all of a run's, and one at every draw, within a run and across runs."""
