"""Hints about a run's health: what was measured, by which rule, and the way to the groups behind it."""
