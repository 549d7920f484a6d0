"""UserError, which commands print without a traceback, and how values appear in it."""

from typing import Any

__all__ = ["NotFiniteError", "UserError", "shown"]

_WIDTH = 100


class UserError(ValueError):
    """A mistake that the user can mend: one sentence, printed without a traceback, status 2."""


class NotFiniteError(UserError):
    """What is trained gave numbers that are not finite, and would give them again."""


def shown(value: Any) -> str:
    """A value in a sentence, cut short where it is long."""
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
