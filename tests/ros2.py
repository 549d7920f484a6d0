"""The part of ROS 2 that `examples/robot/ros2_node.py` uses, by its published definitions.

    python tests/ros2.py FOLDER    # plays random messages to the node, as .ci/run does

Messages have the fields of builtin_interfaces, std_msgs and sensor_msgs; `rclpy` has the functions
of Humble and Jazzy, and `spin` calls the callbacks until `shutdown`. Python 3.10 runs this file.
"""

import array
import json
import sys
import tempfile
import time
import types
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_S = 1_700_000_000
"""ROS's clock counts from 1970, unlike `time.monotonic`."""


@dataclass
class Time:
    """builtin_interfaces/Time."""

    sec: int = 0
    nanosec: int = 0


@dataclass
class Header:
    """std_msgs/Header."""

    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
class Image:
    """sensor_msgs/Image."""

    header: Header = field(default_factory=Header)
    height: int = 0
    width: int = 0
    encoding: str = ""
    is_bigendian: int = 0
    step: int = 0
    data: array.array = field(default_factory=lambda: array.array("B"))


@dataclass
class JointState:
    """sensor_msgs/JointState; an array without information is empty."""

    header: Header = field(default_factory=Header)
    name: list = field(default_factory=list)
    position: array.array = field(default_factory=lambda: array.array("d"))
    velocity: array.array = field(default_factory=lambda: array.array("d"))
    effort: array.array = field(default_factory=lambda: array.array("d"))


@dataclass
class Float64MultiArray:
    """std_msgs/Float64MultiArray."""

    layout: object = None
    data: list = field(default_factory=list)

    def __post_init__(self):
        assert all(isinstance(number, float) for number in self.data)  # as the real one does


class ExternalShutdownException(Exception):
    """Raised by `spin` after the context was shut down."""


class Robot:
    """The rest of the robot: sends messages to the node's callbacks, and keeps the commands.

    Args:
        sends: gives a message for a type, a topic, the time in seconds and the number of messages
            sent before on the topic; None: this topic is silent.
    """

    def __init__(self, sends):
        self.sends, self.commands, self.topics, self.open = sends, [], {}, None

    def now_s(self):
        return START_S + time.monotonic()

    def spin(self, node):
        counts = dict.fromkeys(self.topics, 0)
        while self.open:
            for topic, (kind, callback) in self.topics.items():
                message = self.sends(kind, topic, self.now_s(), counts[topic])
                if message is not None:
                    callback(message)
                counts[topic] += 1
            time.sleep(0.002)
        raise ExternalShutdownException

    def shutdown(self):
        self.open = False

    def init(self, *, args=None, signal_handler_options=None):
        assert signal_handler_options == "NO"
        self.open = True

    def modules(self):
        """What `import` finds."""
        robot = self

        class Node:
            def __init__(self, node_name):
                assert robot.open

            def create_subscription(self, msg_type, topic, callback, qos_profile):
                assert qos_profile == "sensor data"
                robot.topics[topic] = msg_type, callback

            def create_publisher(self, msg_type, topic, qos_profile):
                def publish(message):
                    assert robot.open
                    assert type(message) is msg_type
                    robot.commands.append((topic, message.data))

                return types.SimpleNamespace(publish=publish)

            def get_clock(self):
                now = types.SimpleNamespace(nanoseconds=int(1e9 * robot.now_s()))
                return types.SimpleNamespace(now=lambda: now)

        options = types.SimpleNamespace(NO="NO")
        contents = {
            "rclpy": {"init": self.init, "spin": self.spin, "shutdown": self.shutdown},
            "rclpy.executors": {"ExternalShutdownException": ExternalShutdownException},
            "rclpy.node": {"Node": Node},
            "rclpy.qos": {"qos_profile_sensor_data": "sensor data"},
            "rclpy.signals": {"SignalHandlerOptions": options},
            "sensor_msgs": {},
            "sensor_msgs.msg": {"Image": Image, "JointState": JointState},
            "std_msgs": {},
            "std_msgs.msg": {"Float64MultiArray": Float64MultiArray},
        }
        modules = {name: types.ModuleType(name) for name in contents}
        for name, names in contents.items():
            vars(modules[name]).update(names)
        return modules


def stamped(message, now_s):
    """The message with a time stamp."""
    message.header.stamp = Time(int(now_s), int(now_s % 1 * 1e9))
    return message


def depth_image(rows, columns, value_mm=500, padding=0):
    """A depth image in millimetres whose rows end in padding."""
    row = array.array("H", [value_mm] * columns).tobytes() + bytes([255] * padding)
    return Image(
        height=rows, width=columns, encoding="16UC1", step=len(row),
        data=array.array("B", row * rows),
    )  # fmt: skip


def joint_state(names, **values):
    """Joint states, in this order."""
    arrays = {field: array.array("d", numbers) for field, numbers in values.items()}
    return JointState(name=list(names), **arrays)


def main(folder):
    """Run the node on messages for a walking policy: depth cameras and some numbers."""
    sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "robot")]
    contract = json.loads((Path(folder) / "contract.json").read_text())
    ports = {one["name"]: one["shape"] for one in contract["inputs"]}
    *cameras, rows, columns = ports["depth"]
    names = [f"number {i}" for i in range(*ports["proprio"])]

    def sends(kind, topic, now_s, count):
        image = depth_image(2 * rows, 2 * columns, padding=6)
        return stamped(
            image if kind is Image else joint_state(names, position=[0.1] * len(names)), now_s
        )

    robot = Robot(sends)
    sys.modules.update(robot.modules())
    import ros2_node

    topics = {
        "images": {"depth": [f"/camera_{i}" for i in range(*cameras or [1])]},
        "joints": {"proprio": {"topic": "/joint_states", "names": names, "fields": ["position"]}},
        "command": "/commands",
    }
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "topics.json").write_text(json.dumps(topics))
        log = str(Path(place) / "times.csv")
        times = ros2_node.main(folder, str(Path(place) / "topics.json"), "40", log)
    assert not times.stopped
    assert len(robot.commands) == 40


if __name__ == "__main__":
    main(*sys.argv[1:])
