from deploy import *  # noqa: F403
