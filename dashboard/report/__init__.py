"""A run as one file that opens without a server: charts, hints, chosen groups, configuration."""
