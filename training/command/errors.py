"""UserError, which commands print without a traceback, and how values appear in it."""

from typing import Any

__all__ = ["NotFiniteError", "UserError", "shown"]

_WIDTH = 100


class UserError(ValueError):
    """An error that the user can fix: one sentence, printed without a traceback, exit status 2."""


class NotFiniteError(UserError):
    """Training produced numbers that are not finite and would do so again."""


def shown(value: Any) -> str:
    """A value for an error message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
