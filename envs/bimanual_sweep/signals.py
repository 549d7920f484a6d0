"""The numbers of BimanualSweep-v0, in their order."""

from envs.signals import ACTION, Signal

_WORLD = "world: z = 0 on the table, x away from the camera, y from the right arm to the left"
_ARMS, _UNITS, _ORDERS = ("left", "right"), ("m", "rad"), ("x, y, z", "roll, pitch, yaw")


def signals() -> tuple[Signal, ...]:
    """Return the signals of the observation and the action."""
    found = [Signal("rgb", "the camera's image, rows from the top", frame="camera",
                    order="row, column, colour (red, green, blue)")]  # fmt: skip
    whats = (("pose", "{} tool as it is"), (ACTION, "change of the {} tool's target"))
    for part, what in whats:
        for arm, name in enumerate(_ARMS):
            for half, (unit, order) in enumerate(zip(_UNITS, _ORDERS, strict=True)):
                first = 6 * arm + 3 * half
                found.append(Signal(part, what.format(name), first, 3, unit, _WORLD, order))
    return tuple(found)
