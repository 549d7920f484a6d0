"""Former path of `training.algorithms.registry`."""

from training.algorithms.registry import *  # noqa: F403
