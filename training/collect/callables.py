"""Custom policies, given as "module:name" or as an object."""

import inspect
import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium

from training.collect.episode import Policy
from training.command.errors import UserError, did_you_mean


class _Stateless:
    """A policy from a function of one observation."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self.act = act

    def reset(self) -> None:
        """Do nothing: a function has no state."""


def is_import_path(word: str) -> bool:
    """Whether a command-line argument is "module:name" and not the name of an existing file."""
    return bool(re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", word)) and not os.path.exists(word)


def import_object(word: str) -> Any:
    """Import and return "module:name", which must come from the user because importing runs code.

    Raises UserError if the module or the name does not exist.
    """
    module, _, path = word.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a missing dependency of the module
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
        given: an object with `act(observation)` and, if it has state, `reset()`; or a function of
            one observation; or a class of such objects, which is called with the environment, or
            without arguments if it takes none.
        env: the environment, open.
        word: the name used in error messages.

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
