"""What a person takes away from a run: a report for others, tables for a notebook, its models, its configuration."""
