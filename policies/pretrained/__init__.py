"""Policies trained by this project; `training.io.checkpoint.shipped` finds them by name."""
