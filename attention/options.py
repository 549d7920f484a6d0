"""Keyword options checked against the function that takes them."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def check_options(
    owner: str, function: Callable[..., Any], options: dict[str, Any], fixed: Iterable[str]
) -> None:
    """Raise ValueError for an option that `function` lacks, naming those it has but for `fixed`."""
    known = sorted(set(inspect.signature(function).parameters) - set(fixed))
    for option in options:
        if option not in known:
            takes = f"takes the options {', '.join(known)}" if known else "takes no options"
            raise ValueError(f"{owner} {takes}, got {option!r}")
