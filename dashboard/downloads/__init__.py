"""The downloads of a run: a report for others, tables for a notebook, its models, its configuration."""
