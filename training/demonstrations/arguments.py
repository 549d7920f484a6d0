"""The command line of `training.demos`. Nothing here loads PyTorch, so that --help is quick."""

import argparse
import os

from training.analysis.arguments import positive
from training.collect import environments
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.io.config import ArgumentParser, number

SEGMENT_STEPS = 10
"""Steps of a recording that are disturbed, or left alone, together."""


def parser() -> ArgumentParser:
    """Return the argument parser of the command."""
    parser = ArgumentParser(
        prog="training.demos",
        description="Record demonstrations: episodes of an environment's scripted expert, as files "
        "to learn from.",
        epilog=environments.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--env", metavar="ID", help="Gymnasium id; it must have expert_action()")
    episodes = "total number of episodes (default %(default)s)"
    add("--episodes", type=positive, default=1000, help=episodes)
    add("--out", metavar="DIR", help="directory to record into or to continue")
    add("--verify", metavar="DIR", help="verify every byte of a directory instead")
    setting = "setting of the environment, as in --set episode_s=5"
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    processes = "processes (default: one for each core, here %(default)s)"
    add("--workers", type=positive, default=len(os.sched_getaffinity(0)), help=processes)
    add(
        "--seed", type=int, default=0,
        help=f"episode i uses seed S + i; those from {VALIDATION_SEEDS_FROM} up are for "
        "evaluation (default %(default)s)",
    )  # fmt: skip
    add(
        "--after-success-steps", type=number(int, -1, 10**6), default=10, metavar="K",
        help="steps to record after the first success, or after the environment's expert_done "
        "(nothing is left to do) first holds; -1: to the episode's end (default %(default)s)",
    )  # fmt: skip
    add(
        "--noise", type=number(float, 0, 10), default=0.0, metavar="SCALE",
        help="standard deviation of noise on the executed actions, in a random half of the "
        f"episode's {SEGMENT_STEPS}-step segments, as a share of half the action's range; the "
        "recorded action is the expert's own (default %(default)s)",
    )  # fmt: skip
    add(
        "--valid-share", type=number(float, 0, 0.9), default=0.05, metavar="SHARE",
        help="share of the episodes held out in mask/valid (default %(default)s)",
    )  # fmt: skip
    return parser
