"""Former path of `training.analysis.gaze`."""

from training.analysis.gaze import *  # noqa: F403
