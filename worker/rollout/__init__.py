"""Rollouts: drawing a group of completions for each prompt."""
