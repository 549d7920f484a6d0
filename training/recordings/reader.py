"""Former path of `training.demonstrations.reader`."""

from training.demonstrations.reader import *  # noqa: F403
