"""What was measured: kept as it came from the processes, and turned into tables."""
