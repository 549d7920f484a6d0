"""The trot's clock: which legs stand and how far each swing has come."""

from dataclasses import dataclass

from envs.compiled import compiled

STANDS = -1.0
"""Time of a leg that does not swing."""


@dataclass(frozen=True)
class Trot:
    """A periodic gait, legs in the order FR, FL, RR, RL.

    Attributes:
        stance_s: time that a leg stands in each cycle, seconds.
        duty_factor: share of the cycle that a leg stands.
        offsets: phase of each leg at time 0, in cycles.
    """

    stance_s: float = 0.30
    duty_factor: float = 0.60
    offsets: tuple[float, float, float, float] = (0.0, 0.5, 0.5, 0.0)

    @property
    def cycle_s(self) -> float:
        """Length of a whole cycle, seconds."""
        return self.stance_s / self.duty_factor

    @property
    def swing_s(self) -> float:
        """Time that a leg is in the air in each cycle, seconds."""
        return self.cycle_s - self.stance_s

    def phase(self, time_s: float) -> tuple[float, ...]:
        """Phase of each leg in [0, 1): standing below `duty_factor`, swinging above."""
        return _phases(time_s / self.cycle_s, self.offsets)

    def swings(self, time_s: float) -> tuple[float, ...]:
        """The normalised time of each leg's swing in [0, 1), or `STANDS`."""
        return _swings(time_s / self.cycle_s, self.duty_factor, self.offsets)


@compiled
def _phases(cycles: float, offsets: tuple[float, float, float, float]) -> tuple[float, ...]:
    a, b, c, d = offsets
    # The small number keeps an event that falls on a control tick on that tick.
    early = 1e-9
    return (
        (cycles + a + early) % 1.0,
        (cycles + b + early) % 1.0,
        (cycles + c + early) % 1.0,
        (cycles + d + early) % 1.0,
    )


@compiled
def _swings(
    cycles: float, stands: float, offsets: tuple[float, float, float, float]
) -> tuple[float, ...]:
    a, b, c, d = _phases(cycles, offsets)
    return _swing(a, stands), _swing(b, stands), _swing(c, stands), _swing(d, stands)


@compiled
def _swing(phase: float, stands: float) -> float:
    return (phase - stands) / (1.0 - stands) if phase >= stands else STANDS
