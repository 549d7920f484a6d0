"""Runs on disk: checkpoints, metrics, logs and state files."""
