"""Names, units and frames of the numbers of an observation and of an action, in their order.

An environment offers them as `env.unwrapped.signals`, a tuple of `Signal`. The export of a policy
writes them into its contract, which says what to feed the model on a robot.
"""

from dataclasses import dataclass

ACTION = "action"
"""`part` of the signals of an action."""


@dataclass(frozen=True)
class Signal:
    """Some numbers of one part."""

    part: str
    """Key of the observation, or `ACTION`."""
    what: str
    """Description of the numbers."""
    first: int = 0
    """Index of the first number, if the part is a vector."""
    numbers: int | None = None
    """Count of the numbers; None: all of the part."""
    unit: str = ""
    """Unit of each number; none for fractions, sines and similar."""
    frame: str = ""
    """Coordinate frame; none where there are no axes."""
    order: str = ""
    """Names of the numbers, or of an image's axes, in order."""
