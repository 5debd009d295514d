"""Sweeps: runs that were queued together, to be compared."""
