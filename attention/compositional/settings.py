"""Validation of settings that are read from YAML or JSON."""

import math


def is_number(value: object) -> bool:
    """Whether the value is a finite number and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_index(value: object) -> bool:
    """Whether the value is a non-negative integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_positive(argument: str, value: object) -> None:
    """Raise ValueError unless the value is a positive finite number."""
    if not (is_number(value) and value > 0):  # type: ignore[operator]
        raise ValueError(f"{argument} must be a positive finite number, got {value!r}")
