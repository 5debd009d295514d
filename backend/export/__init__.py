"""What a person takes away: a run as JSON lines, its groups and its metrics as Parquet."""
