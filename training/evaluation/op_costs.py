"""Former path of `training.analysis.op_costs`."""

from training.analysis.op_costs import *  # noqa: F403
