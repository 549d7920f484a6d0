"""The spatulas: two scoops whose blades meet edge to edge, one nesting in the other.

A tool's frame lies at the middle of its blade's edge; its axes are the world's when the tool is
level. The blade rises outwards from the edge, two walls stand beside it, and a vertical handle
joins its upper end to the arm's flange.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.kinematics import rotation_of

TOOL_LINK = "tool"
_FLANGE = "link6"
_OVER_TABLE_M = 0.003  # walls end above the edge, so that the edge touches first
_HANDLE_M = (0.03, 0.02)
_MASS_KG = 0.3
_COLOUR = "0.25 0.33 0.45 1"


@dataclass(frozen=True)
class _Box:
    centre_m: tuple[float, float, float]
    roll_rad: float
    size_m: tuple[float, float, float]


def blade_width_m(config: BimanualSweepConfig, side: int) -> float:
    """Width between a tool's walls; `side` is 1 for the left arm, -1 for the right."""
    narrower = 2 * (config.blade_clearance_m + config.blade_plate_m) if side < 0 else 0.0
    return config.blade_width_m - narrower


def half_width_m(config: BimanualSweepConfig) -> float:
    """Return the distance from the middle of the wider tool to the outside of its walls."""
    return config.blade_width_m / 2 + config.blade_plate_m


def _boxes(config: BimanualSweepConfig, side: int) -> tuple[list[_Box], NDArray[np.float64]]:
    """The tool's parts, and where the handle ends, in the tool's frame."""
    width, slope = blade_width_m(config, side), config.blade_slope_rad
    length, thick = config.blade_length_m, config.blade_plate_m
    along = np.array([0.0, side * math.cos(slope), math.sin(slope)])
    up = np.array([0.0, -side * math.sin(slope), math.cos(slope)])
    blade = along * length / 2 - up * thick / 2
    boxes = [_Box((0.0, blade[1], blade[2]), side * slope, (width, length, thick))]
    ahead = config.wall_ahead_m if side > 0 else 0.0
    depth = length * math.cos(slope) + ahead
    for sign in (-1, 1):
        centre = (
            sign * (width + thick) / 2,
            side * (depth / 2 - ahead),
            _OVER_TABLE_M + config.wall_height_m / 2,
        )
        boxes.append(_Box(centre, 0.0, (thick, depth, config.wall_height_m)))
    foot = along * (length - _HANDLE_M[1] / 2) - up * thick / 2
    middle = foot + np.array([0.0, 0.0, config.handle_m / 2])
    boxes.append(_Box((0.0, middle[1], middle[2]), 0.0, (*_HANDLE_M, config.handle_m)))
    return boxes, foot + np.array([0.0, 0.0, config.handle_m])


def add_tool(robot: Element, config: BimanualSweepConfig, side: int) -> None:
    """Append the spatula of one side to an arm's URDF, fixed to its flange.

    The flange points down when the tool is level.
    """
    boxes, top_m = _boxes(config, side)
    link = SubElement(robot, "link", name=TOOL_LINK)
    inertial = SubElement(link, "inertial")
    SubElement(inertial, "origin", xyz=f"0 {top_m[1] / 2:.6f} {top_m[2] / 2:.6f}")
    SubElement(inertial, "mass", value=str(_MASS_KG))
    inertia = dict.fromkeys(("ixx", "iyy", "izz"), "0.001")
    SubElement(inertial, "inertia", inertia | dict.fromkeys(("ixy", "ixz", "iyz"), "0"))
    for box in boxes:
        for kind in ("visual", "collision"):
            part = SubElement(link, kind)
            SubElement(
                part, "origin", xyz=_numbers(box.centre_m), rpy=_numbers((box.roll_rad, 0, 0))
            )
            SubElement(SubElement(part, "geometry"), "box", size=_numbers(box.size_m))
            if kind == "visual":
                material = SubElement(part, "material", name="tool")
                SubElement(material, "color", rgba=_COLOUR)
    # Half a turn about x points the flange down; the quarter about z centres the wrist's range.
    turn_rad = np.array([math.pi, 0.0, -side * math.pi / 2])
    mount = -rotation_of(turn_rad) @ top_m
    joint = SubElement(robot, "joint", name="tool_joint", type="fixed")
    SubElement(joint, "parent", link=_FLANGE)
    SubElement(joint, "child", link=TOOL_LINK)
    SubElement(joint, "origin", xyz=_numbers(mount), rpy=_numbers(turn_rad))


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{float(value):.6f}" for value in values)
