"""The numbers of BimanualSweep-v0, in their order."""

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.signals import ACTION, Signal

__all__ = ["signals"]

_WORLD = "world: z = 0 on the table, x away from the camera, y from the right arm to the left"
_ARMS = ("left", "right")


def signals(config: BimanualSweepConfig) -> tuple[Signal, ...]:
    """Of the observation and the action."""
    found = [Signal("rgb", "the camera's picture, rows from the top", frame="camera",
                    order="row, column, colour (red, green, blue)")]  # fmt: skip
    for part, what, units in (
        ("pose", "{} tool as it is", ("m", "rad")),
        (ACTION, "change of the {} tool's target", ("m", "rad")),
    ):
        for arm, name in enumerate(_ARMS):
            for half, (unit, order) in enumerate(zip(units, ("x, y, z", "roll, pitch, yaw"), strict=True)):
                first = 6 * arm + 3 * half
                found.append(Signal(part, what.format(name), first, 3, unit, _WORLD, order))
    return tuple(found)
