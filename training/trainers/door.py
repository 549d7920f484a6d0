"""Former path of `training.algorithms.command`."""

from training.algorithms.command import *  # noqa: F403
