"""A step of a run, explained: where it is asked for, and what was found."""
