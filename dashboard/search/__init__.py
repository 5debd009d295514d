"""Search in a run's completions: what is asked, and what was found."""
