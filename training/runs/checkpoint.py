"""Former path of `training.io.checkpoint`."""

from training.io.checkpoint import *  # noqa: F403
