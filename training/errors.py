"""The error of everything that a user can mend."""

__all__ = ["UserError"]


class UserError(ValueError):
    """A mistake that the user can mend: one sentence, printed without a traceback, status 2."""
