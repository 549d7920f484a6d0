"""Former path of `training.analysis.agents`."""

from training.analysis.agents import *  # noqa: F403
