"""The numbers of SteppingStones-v0, in their order."""

from envs.geometry import Mirror, Reflection
from envs.signals import ACTION, Signal
from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.felt_ground import appearance_key

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
        if config.felt_ground.is_on:
            what = f"appearance of the tile in each pixel ({', '.join(names)})"
            found.append(Signal(appearance_key(key), what, order=f"{axes}, number"))
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
    if config.action_legs == "lifting":
        pair = "front, hind leg that lifts off"
        acts = [(acts[0][0], 2, f"{forward} m", _LEVEL, pair), acts[2]]
    return (*found, *_placed(ACTION, acts))


def _placed(part: str, rows: list[tuple[str, int, str, str, str]]) -> list[Signal]:
    found, first = [], 0
    for what, numbers, unit, frame, order in rows:
        found.append(Signal(part, what, first, numbers, unit, frame, order))
        first += numbers
    return found


def leg_name(config: SteppingStonesConfig, leg: int) -> str:
    """The name of a leg among the terms of the reward."""
    if config.action_legs == "lifting":
        return "front" if leg < 2 else "hind"
    return ("fr", "fl", "rr", "rl")[leg]


def reward_terms(config: SteppingStonesConfig) -> dict[str, tuple[int, ...]]:
    """The terms of the reward, and the numbers of the action that each of them judges."""
    if config.action_legs == "lifting":
        legs: dict[str, tuple[int, ...]] = {"front": (0,), "hind": (1,)}
        steering: tuple[int, ...] = (2,)
    else:
        legs = {leg_name(config, leg): (leg, leg + 4) for leg in range(4)}
        steering = tuple(range(8, config.action_size))
    found = {"progress": tuple(sorted(n for numbers in legs.values() for n in numbers))}
    for term in ("margin", "effort"):
        found |= {f"{term}_{name}": numbers for name, numbers in legs.items()}
    return {**found, "centre": steering}


_SWAPPED = (1, 0, 3, 2)


def mirror(config: SteppingStonesConfig, keys: dict[str, tuple[str, ...]]) -> Mirror | None:
    """Left and right exchanged; None where the task is not the same then.

    Args:
        config: the environment's settings.
        keys: names of the cameras by the key of their images.
    """
    cameras = config.chosen_cameras
    rows = {key: {cameras[n].width_along == "travel" for n in keys[key]} for key in keys}
    aside = any(c.position_m[1] or c.yaw_deg or c.roll_deg for c in cameras.values())
    one_way = (
        config.felt_ground.is_on
        or any(len(found) > 1 for found in rows.values())
        or config.camera_pose_told
    )
    if aside or one_way or config.commands_twist or config.front_camera_moved_m[1]:
        return None
    images = {}
    for key, names in keys.items():
        size = cameras[names[0]].height_px if True in rows[key] else cameras[names[0]].width_px
        images[key] = Reflection(tuple(reversed(range(size))), (), -2 if True in rows[key] else -1)
    if config.action_legs == "lifting":
        action = [(0, 1.0), (1, 1.0), (2, -1.0)]
    else:
        action = [(leg, 1.0) for leg in _SWAPPED] + [(4 + leg, -1.0) for leg in _SWAPPED]
        action += [(8, -1.0)]
    # roll, pitch, yaw; angular velocity; velocity; height
    proprio = list(enumerate((-1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0)))
    proprio += [(10 + 3 * leg + i, s) for leg in _SWAPPED for i, s in enumerate((1.0, -1.0, 1.0))]
    proprio += [(22 + 2 * leg + i, s) for leg in _SWAPPED for i, s in enumerate((1.0, -1.0))]
    proprio += [(30, -1.0), (31, -1.0), *((32 + leg, 1.0) for leg in _SWAPPED)]
    proprio += [(36 + place, sign) for place, sign in action]
    return Mirror({**images, "proprio": _reflection(proprio)}, _reflection(action))


def _reflection(places: list[tuple[int, float]]) -> Reflection:
    order, sign = zip(*places, strict=True)
    return Reflection(order, sign)
