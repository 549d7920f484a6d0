"""A node of ROS 2 (Humble, Jazzy) that runs an exported policy with the watchdog of `deploy.loop`.

    python examples/robot/ros2_node.py exported/reacher topics.json

Callbacks keep the newest message of each topic; a decision is due at the contract's rate, and its
observation is as old as its oldest message. `topics.json` has topics by input, cameras in order:

    {"images": {"depth": ["/front/depth/image_rect_raw"]},
     "joints": {"proprio": {"topic": "/joint_states", "names": ["shoulder", "elbow"],
                            "fields": ["position", "velocity"]}},
     "command": "/forward_position_controller/commands"}
"""

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from numpy.typing import NDArray
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from ros2_messages import image_input, joint_input, seconds
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray

from deploy.frames import Seen
from deploy.loop import STOPPED, Times, run
from deploy.runtime import Policy

WAIT_S = 10.0
"""How long the first message of every topic may take."""


class PolicyNode(Node):
    """Subscribes to images and joint states, and publishes actions."""

    def __init__(self, policy: Policy, images: Any, joints: Any, command: str) -> None:
        super().__init__("foveate_policy")
        self._ports = {port.name: port for port in policy.contract.inputs}
        if sorted([*images, *joints]) != sorted(self._ports):
            raise ValueError(
                f"images and joints must give each of the inputs {', '.join(self._ports)} once, "
                f"got {', '.join([*images, *joints]) or 'nothing'}"
            )
        self._images, self._joints, self._newest = images, joints, {}
        self._topics = {topic: Image for topics in images.values() for topic in topics}
        self._topics |= {one["topic"]: JointState for one in joints.values()}
        for topic, kind in self._topics.items():
            self.create_subscription(kind, topic, self._keeps(topic), qos_profile_sensor_data)
        self._publisher = self.create_publisher(Float64MultiArray, command, 1)

    def _keeps(self, topic: str) -> Callable[[Any], None]:
        def keep(message: Any) -> None:
            self._newest[topic] = message

        return keep

    def wait(self) -> None:
        """Wait for the first message of every topic. Raises TimeoutError if one is missing."""
        end_s = time.monotonic() + WAIT_S
        while missing := [topic for topic in self._topics if topic not in self._newest]:
            if time.monotonic() > end_s:
                raise TimeoutError(f"no message within {WAIT_S:g} s on {', '.join(missing)}")
            time.sleep(0.01)

    def observe(self) -> Seen:
        """The newest observation, and the time stamp of its oldest message."""
        newest, found = dict(self._newest), {}
        for name, topics in self._images.items():
            found[name] = image_input([newest[topic] for topic in topics], self._ports[name])
        for name, one in self._joints.items():
            found[name] = joint_input(newest[one["topic"]], one["names"], one["fields"])
        return found, min(seconds(message.header.stamp) for message in newest.values())

    def publish(self, action: NDArray[Any]) -> None:
        """Publish an action, in the message that the controllers of ros2_control take."""
        self._publisher.publish(Float64MultiArray(data=np.ravel(action).astype(float).tolist()))

    def now_s(self) -> float:
        """Time of the clock of which the stamps are, seconds."""
        return float(self.get_clock().now().nanoseconds * 1e-9)


def main(folder: str, topics: str, steps: str = "72000", log: str = "times.csv") -> Times:
    """Run a policy for a number of decisions, and write how long each took."""
    policy = Policy(folder, late="hold")
    # Control-C must not end the context before the stop action is published.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    node = PolicyNode(policy, **json.loads(Path(topics).read_text(encoding="utf-8")))
    spinning = threading.Thread(target=_spin, args=(node,))
    spinning.start()
    try:
        node.wait()
        times = run(
            policy, node.observe, node.publish, clock=node.now_s, steps=int(steps),
            rate_hz=policy.contract.everything["rate_hz"],
        )  # fmt: skip
    finally:
        rclpy.shutdown()
        spinning.join()
    times.write(Path(log))
    print(times.report())
    return times


def _spin(node: Node) -> None:
    with contextlib.suppress(ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    raise SystemExit(STOPPED if main(*sys.argv[1:]).stopped else 0)
