"""What the numbers of an observation and of an action are: names, units and frames, in their order.

An environment offers it as `env.unwrapped.signals`, a tuple of `Signal`. A policy that is exported
writes it into its contract, for those who feed it on a robot.
"""

from dataclasses import dataclass

__all__ = ["ACTION", "Signal"]

ACTION = "action"
"""`part` of the signals of an action."""


@dataclass(frozen=True)
class Signal:
    """Some numbers of one part."""

    part: str
    """Key of the observation, or `ACTION`."""
    what: str
    """What they are."""
    first: int = 0
    """Place of the first, where the part is a vector."""
    numbers: int | None = None
    """How many; None: all of the part."""
    unit: str = ""
    """Of each; none for shares, sines and the like."""
    frame: str = ""
    """What axes they are along; none where there are no axes."""
    order: str = ""
    """What the numbers are, or the axes of an image, one after the other."""
