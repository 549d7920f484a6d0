"""Former path of `training.algorithms.workers`."""

from training.algorithms.workers import *  # noqa: F403
