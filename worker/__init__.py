"""The trainer: claims runs, samples groups, scores them and moves the policy."""
