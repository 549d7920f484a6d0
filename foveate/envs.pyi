from envs import *  # noqa: F403
