"""Runs as jobs of a Ray cluster. Ray is imported by a worker that is to use one, and by nobody else."""
