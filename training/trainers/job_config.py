"""Former path of `training.algorithms.job_config`."""

from training.algorithms.job_config import *  # noqa: F403
