"""Former path of `training.algorithms.trainer`."""

from training.algorithms.trainer import *  # noqa: F403
