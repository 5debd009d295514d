"""The inspector at the size of a year's work: a database of a hundred runs, and how fast it is looked at."""
