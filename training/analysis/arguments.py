"""Arguments of commands that run policies. Nothing here loads PyTorch, so that --help is quick."""

import argparse
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, get_args

import gymnasium

from policies.common.settings import Repair
from training.collect import environments
from training.collect.callables import import_object
from training.collect.seeds import EVALUATION_SEEDS_FROM

SCRIPTED = ("oracle", "blind", "random", "constant")
_MOST = 10**6
INTERVENTIONS = ("swap", "freeze", "blank", "shuffle")
"""Kinds of images that replace a policy's own, see `training.analysis.replacements`."""
EVALUATION_SEED = EVALUATION_SEEDS_FROM
"""First of the seeds that no training uses."""


def add_arguments(
    parser: argparse.ArgumentParser, episodes: int, device: bool = True, workers: bool = False
) -> None:
    """The arguments shared by commands that run policies, except the positional one."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = environments.describe()
    text = (
        "scripted policy: oracle (uses the simulator's state), blind (no correction: every action "
        "is 0), random (uniform in the action space) or constant (the best constant action, found "
        "on separate scenes)"
    )
    parser.add_argument("--policy", action="append", default=[], choices=SCRIPTED, help=text)
    text = f"Gymnasium id; default: the first run's, or else {environments.DEFAULT}"
    parser.add_argument("--env", metavar="ID", help=text)
    text = "setting of the environment, as in --set gap_m=[0.15,0.25] or --set balls=40"
    parser.add_argument("--set", **KEY_VALUES, help=text)
    text = (
        "custom policy, controller, feature map, wrapper or registration that the policy's file "
        "names; what is neither "
        "named here nor an entry point of an installed package is not imported"
    )
    parser.add_argument("--custom", "--own", **COMPONENTS, help=text)
    text = (
        "run policies with another robot or other cameras than in training, although they do not "
        "read their geometry"
    )
    parser.add_argument("--force", "--anyway", action="store_true", help=text)
    text = (
        "depth-image repair that replaces the policies' setting: none, holes (what returns nothing "
        "is filled) or full (false returns too)"
    )
    parser.add_argument("--repair", choices=get_args(Repair), help=text)
    text = (
        "draw discrete actions by the policies' probabilities, with each episode's seed; default: "
        "the most probable"
    )
    parser.add_argument("--sample-actions", action="store_true", help=text)
    text = "episodes a policy (default %(default)s)"
    parser.add_argument("--episodes", type=positive, default=episodes, help=text)
    text = (
        "episode i uses seed S + i, scene and noise both; training uses none from "
        f"{EVALUATION_SEED} up (default %(default)s)"
    )
    parser.add_argument("--seed", type=_seed, default=EVALUATION_SEED, help=text)
    if workers:
        parser.add_argument("--workers", type=positive, default=1, help="processes (default 1)")
    if device:
        parser.add_argument("--device", default="cpu", help="PyTorch device of the policies")


def admitted(name: str) -> str:
    """Import a custom component by name, for argparse."""
    from policies.common.plugins import admit_name  # imported late because --help does not need it

    with suppress(Exception):  # the sentence comes from below
        found = import_object(name) if ":" in name else import_module(name)
        if isinstance(found, ModuleType) or issubclass(found, gymnasium.Wrapper):
            return name
    try:
        admit_name(name, "--custom")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


KEY_VALUES: dict[str, Any] = {
    "nargs": "+", "action": "extend", "default": [], "metavar": "KEY=VALUE",
}  # fmt: skip
"""argparse options of --set."""
COMPONENTS: dict[str, Any] = {
    "metavar": "MODULE:CLASS", "type": admitted, "action": "append", "default": [],
}  # fmt: skip
"""argparse options of --custom."""


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    if not text.isdecimal() or int(text[:20]) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {text!r}")
    if len(text) > 9 or int(text) > _MOST:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST}, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2^32 - 1, got {text!r}")
    return int(text)
