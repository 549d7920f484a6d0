"""One xArm6 with a spatula: its URDF, and position control of its joints in PyBullet."""

import math
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np
import pybullet_data
from numpy.typing import NDArray

from envs.bimanual_sweep.config import BimanualSweepConfig
from envs.bimanual_sweep.kinematics import SerialArm
from envs.bimanual_sweep.tools import TOOL_LINK, add_tool
from envs.bullet import BulletClient, HoldsPhysics

Floats = NDArray[np.float64]

SIDES = (1, -1)
"""Left, at positive y, then right: the order in actions and observations."""
_URDF = Path(pybullet_data.getDataPath()) / "xarm" / "xarm6_robot.urdf"
_SHAPES = "xarm6_primitives.urdf"
_COLOURS = ("0.75 0.75 0.75 1", "0.55 0.55 0.55 1")  # links in turn; no red, no green
_ELBOW, _STRAIGHTEST_RAD = 2, -2.9
_FORCE_N_M = 200.0
_POSITION_GAIN, _VELOCITY_GAIN = 0.3, 1.0
_TOOL_FRICTION = 0.3


class ArmModel:
    """The constant part of an arm: the URDF's text and the kinematics.

    Args:
        config: the task's settings.
        side: 1 for the left arm, -1 for the right.
    """

    def __init__(self, config: BimanualSweepConfig, side: int) -> None:
        self.side = side
        self.position_m = [0.0, side * config.arm_distance_m, 0.0]
        self.yaw_rad = -side * math.pi / 2  # the arms face each other
        robot = _with_shapes(ElementTree.parse(_URDF).getroot())
        add_tool(robot, config, side)
        self.urdf = ElementTree.tostring(robot, encoding="unicode")
        cosine, sine = math.cos(self.yaw_rad), math.sin(self.yaw_rad)
        base = np.eye(4)
        base[:2, :2] = [[cosine, -sine], [sine, cosine]]
        base[:3, 3] = self.position_m
        self.kinematics = SerialArm(robot, TOOL_LINK, base)
        # Beyond the straight arm lies a second, elbow-down solution: never go there.
        self.kinematics.lower_rad[_ELBOW] = _STRAIGHTEST_RAD


class Arm(HoldsPhysics):
    """An arm in a physics client.

    Args:
        client: the physics client.
        model: of the arm.
        folder: where its URDF may be written, for PyBullet to read.
        visible: whether images show it.
    """

    def __init__(
        self, client: BulletClient, model: ArmModel, folder: Path, *, visible: bool = True
    ) -> None:
        self._client, self.model = client, model
        path = folder / f"arm{model.side:+d}.urdf"
        path.write_text(model.urdf, encoding="utf-8")
        self.body = client.loadURDF(
            str(path),
            model.position_m,
            client.getQuaternionFromEuler([0, 0, model.yaw_rad]),
            useFixedBase=True,
            flags=0 if visible else client.URDF_IGNORE_VISUAL_SHAPES,
        )
        joints = [client.getJointInfo(self.body, j) for j in range(client.getNumJoints(self.body))]
        self._motors = [joint[0] for joint in joints if joint[2] == client.JOINT_REVOLUTE]
        self.tool = next(joint[0] for joint in joints if joint[12].decode() == TOOL_LINK)
        for link in range(-1, len(joints)):
            client.changeDynamics(
                self.body,
                link,
                linearDamping=0,
                angularDamping=0,
                jointDamping=0.5,
                lateralFriction=_TOOL_FRICTION,
                rollingFriction=0,
                spinningFriction=0,
                restitution=0,
            )
        self.num_links = len(joints)

    def place(self, joints_rad: Floats) -> None:
        """Stand still at these joint angles."""
        for motor, angle in zip(self._motors, joints_rad.tolist(), strict=True):
            self._client.resetJointState(self.body, motor, angle, 0)
        self.drive(joints_rad, np.zeros_like(joints_rad))

    def drive(self, joints_rad: Floats, speeds_rad_s: Floats) -> None:
        """Set the motors' targets for the next physics steps."""
        count = len(self._motors)
        self._client.setJointMotorControlArray(
            self.body,
            self._motors,
            self._client.POSITION_CONTROL,
            targetPositions=joints_rad.tolist(),
            targetVelocities=speeds_rad_s.tolist(),
            forces=[_FORCE_N_M] * count,
            positionGains=[_POSITION_GAIN] * count,
            velocityGains=[_VELOCITY_GAIN] * count,
        )

    def tool_pose(self) -> tuple[Floats, Floats]:
        """Return the tool's actual position, metres, and (roll, pitch, yaw), radians."""
        state = self._client.getLinkState(self.body, self.tool, computeForwardKinematics=1)
        return np.array(state[4]), np.array(self._client.getEulerFromQuaternion(state[5]))


def _with_shapes(robot: Element) -> Element:
    """The arm with the primitive shapes of `sim_assets` in place of its meshes."""
    text = (resources.files("sim_assets") / _SHAPES).read_text(encoding="utf-8")
    shapes = {link.get("name"): link for link in ElementTree.fromstring(text).findall("link")}
    for index, link in enumerate(robot.findall("link")):
        for kind in ("visual", "collision"):
            for part in link.findall(kind):
                link.remove(part)
        for shape in shapes.get(link.get("name"), Element("link")).findall("visual"):
            for kind in ("visual", "collision"):
                part = SubElement(link, kind)
                part.extend(shape)
                if kind == "visual":
                    colour = _COLOURS[index % 2]
                    material = SubElement(part, "material", name=f"arm{index % 2}")
                    SubElement(material, "color", rgba=colour)
    return robot
