"""The list of runs: its filters, its rows, and what can be done from a row."""
