"""Checks of settings, which YAML or JSON may have filled with anything."""

import math


def is_number(value: object) -> bool:
    """Whether value is a finite number; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_index(value: object) -> bool:
    """Whether value is an integer from 0 up; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_positive(argument: str, value: object) -> None:
    """Raise ValueError unless value is a positive finite number."""
    if not (is_number(value) and value > 0):  # type: ignore[operator]
        raise ValueError(f"{argument} must be a positive finite number, got {value!r}")
