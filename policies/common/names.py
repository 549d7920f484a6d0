"""Names of custom policies, controllers and feature maps: "module:Class".

Such a name may import its module only if it comes from the user: from a call, a command line or
their configuration (`policies.common.own.admit`). Imported or given objects are registered here by
name, so that later code finds them without importing anything.
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
    """The sorted entry points of a group, without importing any."""
    from importlib import metadata  # late, as it takes longer than all of this package

    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))
