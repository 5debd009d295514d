"""Rewards: pure scoring functions, and the process that they run in, which can be killed."""
