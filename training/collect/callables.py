"""Custom policies, given as "module:name" or as an object."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium

from training.collect.episode import Policy
from training.command.errors import UserError
from training.command.suggestions import did_you_mean

__all__ = ["as_policy", "import_object", "is_import_path"]


class _Stateless:
    """A policy from a function of one observation."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self.act = act

    def reset(self) -> None:
        """There is nothing to forget."""


def is_import_path(word: str) -> bool:
    """Whether a word of a command line is "module:name" and no file of that name is there."""
    return bool(re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", word)) and not os.path.exists(word)


def import_object(word: str) -> Any:
    """What "module:name" stands for; imports the module, so only a user may have typed it.

    UserError where there is no such module or no such name in it.
    """
    module, _, path = word.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # one that the module itself needs
        raise UserError(f"{word}: there is no module {error.name} on Python's path") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise UserError(
                f"{word}: {module} has no {path}{did_you_mean(name, sorted(vars(found)))}"
            )
        found = getattr(found, name)
    return found


def as_policy(given: Any, env: gymnasium.Env, word: str = "policy") -> Policy:
    """A policy for the episode loop.

    Args:
        given: an object with `act(observation)` and, if it is to know where episodes begin,
            `reset()`; or a function of one observation; or a class of such objects, which is called
            with the environment, or without anything where it takes nothing.
        env: the environment, open.
        word: how an error names it.

    Raises UserError for anything else.
    """
    if isinstance(given, type):
        given = given(env) if inspect.signature(given).parameters else given()
    act = getattr(given, "act", given)
    if not callable(act):
        raise UserError(
            f"{word} must be a function of an observation, an object with act(observation) or a "
            f"class of such, got {type(given).__name__}"
        )
    policy: Policy = given if hasattr(given, "act") and hasattr(given, "reset") else _Stateless(act)
    return policy
