"""The numbers of SteppingStones-v0, in their order."""

from envs.signals import ACTION, Signal
from envs.stepping_stones.config import SteppingStonesConfig

_LEVEL = "level: origin at the base, x along the heading, y left, z against gravity"
_BASE = "base: x forward, y left, z up"
_LEGS = "FR, FL, RR, RL"


def signals(config: SteppingStonesConfig, keys: dict[str, tuple[str, ...]]) -> tuple[Signal, ...]:
    """Return the signals of the observation and the action.

    Args:
        config: the environment's settings.
        keys: names of the cameras by the key of their images.
    """
    found: list[Signal] = []
    for key, names in keys.items():
        axes = "row, column" if key != "depth" else "camera, row, column"
        what = f"depth along each camera's optical axis ({', '.join(names)})"
        found.append(Signal(key, what, unit="m", frame="camera", order=axes))
    parts = [
        ("roll, pitch, yaw", 3, "rad", _LEVEL, "roll, pitch, yaw"),
        ("angular velocity", 3, "rad/s", _LEVEL, "x, y, z"),
        ("velocity", 3, "m/s", _LEVEL, "x, y, z"),
        ("height of the base above the standing toes' centres", 1, "m", _LEVEL, "z"),
        ("toe centres", 12, "m", _LEVEL, f"x, y, z of {_LEGS}"),
        ("footholds without an offset, from the base", 8, "m", _LEVEL, f"x, y of {_LEGS}"),
        ("phase of the gait, leg FR", 2, "", "", "sine, cosine"),
        ("foot contacts, 0 or 1", 4, "", "", _LEGS),
        ("the previous action", config.action_size, "", _LEVEL, "as the action"),
    ]
    if config.commands_twist:
        parts += [
            ("odometry", 2, "m", "world", "x, y"),
            ("yaw in the world", 2, "", "world", "sine, cosine"),
            ("commanded speed ahead", 1, "m/s", _LEVEL, "x"),
        ]
    found += _placed("proprio", parts)
    if config.camera_pose_told:
        order = "x, y, z (m), pitch below forward, yaw, roll (rad) of each camera"
        found.append(
            Signal("camera_pose", "poses of the cameras", unit="m, rad", frame=_BASE, order=order)
        )
    forward, lateral = config.foothold_forward_m, config.foothold_lateral_m
    acts = [
        ("forward offset of the next foothold", 4, f"{forward} m", _LEVEL, _LEGS),
        ("lateral offset of the next foothold", 4, f"{lateral} m", _LEVEL, _LEGS),
        ("lateral speed of the body", 1, f"{config.lateral_speed_m_s} m/s", _LEVEL, "y"),
    ]
    if config.turns:
        acts.append(("yaw rate of the body", 1, f"{config.yaw_rate_rad_s} rad/s", _LEVEL, "z"))
    return (*found, *_placed(ACTION, acts))


def _placed(part: str, rows: list[tuple[str, int, str, str, str]]) -> list[Signal]:
    found, first = [], 0
    for what, numbers, unit, frame, order in rows:
        found.append(Signal(part, what, first, numbers, unit, frame, order))
        first += numbers
    return found
