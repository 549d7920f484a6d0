"""Former path of `training.io.config`."""

from training.io.config import *  # noqa: F403
