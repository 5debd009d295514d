"""Hints about a run's health: small rules over plain facts."""
