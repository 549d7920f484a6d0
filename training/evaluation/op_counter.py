"""Former path of `training.analysis.op_counter`."""

from training.analysis.op_counter import *  # noqa: F403
