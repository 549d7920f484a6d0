"""Names of policies, controllers and feature maps that a user brings: "module:Class".

Such a name may import its module only where the user typed it: in a call, on a command line or in a
configuration of their own (`policies.common.own.admit`). What was found, or given as an object, is
kept here by its name, so that everything later in the program finds it without importing anything.
"""

import inspect
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

__all__ = ["ADMITTED", "GROUP", "OWN", "OwnName", "entry_points", "is_name", "name_of"]

OWN = "module:Class"
"""How messages call what is the user's."""
GROUP = "foveate.policies"
"""Entry points of installed packages that name a policy or a controller of theirs."""
ADMITTED: dict[str, Any] = {}
"""Classes, functions that make objects, and objects, of which copies are made, by their names."""


def is_name(name: str) -> bool:
    """Whether a name is "module:Class"."""
    return bool(re.fullmatch(r"[\w.]+:[\w.<>]+", name))


def name_of(given: Any) -> Any:
    """The name of a class, function or module of PyTorch, under which it is found from now on, in
    this program; anything else as it is."""
    if inspect.isclass(given) or inspect.isroutine(given):
        name = f"{given.__module__}:{given.__qualname__}"
    elif hasattr(given, "state_dict"):
        name = f"{type(given).__module__}:{type(given).__qualname__}.object{id(given)}"
    else:
        return given
    ADMITTED[name] = given
    return name


OwnName = Annotated[str, BeforeValidator(name_of)]
"""A name, or in Python a class, function or object in its place."""


def entry_points(group: str = GROUP) -> tuple[str, ...]:
    """Those of a group, sorted; none is imported."""
    from importlib import metadata  # late, as it takes longer than all of this package

    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))
