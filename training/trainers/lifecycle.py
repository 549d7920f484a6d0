"""Former path of `training.runner`."""

from training.runner import *  # noqa: F403
from training.runner import Algorithm as Job

__all__ = ["Job"]
