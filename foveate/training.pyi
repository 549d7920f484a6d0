from training import *  # noqa: F403
