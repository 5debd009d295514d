"""GET /metrics: what Prometheus asks for, counted as requests pass and read when it comes."""
