"""Policies trained by this project; `training.runs.checkpoint.shipped` finds them by name."""
