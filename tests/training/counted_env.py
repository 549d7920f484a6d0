"""Environments whose every opening is counted, in a file, whichever process opens them."""

import os

import gymnasium

from tests.training.expert_env import ExpertEnv
from tests.training.picture_env import PictureEnv

COUNTS = "FOVEATE_TEST_OPENED"
"""Environment variable that names the file, which gets a line for each opening."""


def counted(entry_point):
    def make(**settings):
        if COUNTS in os.environ:
            with open(os.environ[COUNTS], "a") as file:
                file.write(f"{os.getpid()}\n")
        return entry_point(**settings)

    return make


gymnasium.register("CountedExpert-v0", entry_point=counted(ExpertEnv))
gymnasium.register("CountedPicture-v0", entry_point=counted(PictureEnv))
