"""Policies trained by this project; `training.checkpoint.shipped` finds them by name."""
