"""Runs on disk: checkpoints, metrics, logs, and what a state file may hold."""
