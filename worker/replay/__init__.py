"""A step of a run, done again from a checkpoint, and explained."""
