from policies import *  # noqa: F403
