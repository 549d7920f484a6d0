from attention import *  # noqa: F403
