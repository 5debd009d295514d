"""What training brings: reports, metrics, groups, token traces, logs and events."""
