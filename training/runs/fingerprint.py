"""Former path of `training.io.fingerprint`."""

from training.io.fingerprint import *  # noqa: F403
