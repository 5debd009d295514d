"""Checkpoints: registered by workers, listed, downloaded."""
