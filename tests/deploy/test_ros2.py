"""The example of ROS 2: its messages as inputs, and the node with its watchdog."""

import array
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from deploy.contract_file import Port
from deploy.runtime import Policy
from tests.ros2 import Image, Robot, depth_image, joint_state, stamped

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "robot"
sys.path.insert(0, str(FOLDER))
import ros2_messages as messages  # noqa: E402

sys.path.remove(str(FOLDER))

DEPTH = Port("depth", (2, 3, 4), np.dtype(np.float32), np.array(0.0), np.array(1.5), "pass")
NAMES = ["hip", "knee", "toe"]
TOPICS = {
    "images": {"depth": ["/depth"]},
    "joints": {"proprio": {"topic": "/joints", "names": NAMES, "fields": ["position"]}},
    "command": "/commands",
}


def image(encoding, pixels, *, big=False, padding=0):
    """An image message of these pixels, (height, width) or (height, width, channels)."""
    pixels = pixels.astype(pixels.dtype.newbyteorder(">" if big else "<"))
    rows = [row.tobytes() + b"\xff" * padding for row in pixels]
    data = array.array("B", b"".join(rows))
    return Image(
        height=len(pixels), width=pixels.shape[1], encoding=encoding, is_bigendian=int(big),
        step=len(rows[0]), data=data,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "dtype", "channels"),
    [
        ("rgb8", "u1", 3), ("rgba8", "u1", 4), ("bgr8", "u1", 3), ("bgra8", "u1", 4),
        ("mono8", "u1", 1), ("16UC1", "u2", 1), ("32FC1", "f4", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("big", "padding"), [(False, 0), (True, 5)])
def test_images_are_read_by_their_encoding(encoding, dtype, channels, big, padding):
    sent = np.random.default_rng(0).integers(0, 255, (3, 5, channels)).astype(dtype)
    sent = sent[..., 0] if channels == 1 else sent
    found = messages.pixels(image(encoding, sent, big=big, padding=padding))
    if dtype != "u1":
        assert found.dtype == np.float32
        assert found == pytest.approx(sent / 1000 if dtype == "u2" else sent)
    else:
        blue_first = {"rgb": [2, 1, 0], "bgr": [0, 1, 2]}.get(encoding[:3])
        assert np.array_equal(found, sent if blue_first is None else sent[..., blue_first])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoding": "bayer_rggb8"}, "encoding must be one of rgb8, .*32FC1, got 'bayer_rggb8'"),
        ({"step": 7}, "rows of at least 8 bytes, got step = 7 and 24 bytes"),
        ({"height": 4}, "an image of 4 x 4, 16UC1, must .*, got step = 8 and 24 bytes"),
        ({"width": 0}, "at least 1 bytes"),
    ],
)
def test_images_that_are_none_are_refused(change, sentence):
    sent = depth_image(3, 4)
    vars(sent).update(change)
    with pytest.raises(ValueError, match=sentence):
        messages.pixels(sent)


def test_depth_of_several_cameras_takes_the_nearest_pixel():
    near = np.kron(np.arange(1, 13).reshape(3, 4), np.ones((2, 2))) / 10
    near[2, 2] = 99  # not the nearest of any
    near[1, 1], near[1, 3], near[1, 5] = np.nan, np.inf, 0
    far = depth_image(9, 8, value_mm=2000, padding=2)
    found = messages.image_input([image("32FC1", near.astype("f4")), far], DEPTH)
    assert found.dtype == np.float32
    expected = np.arange(1, 13).reshape(3, 4) / 10
    expected[0, :3] = 1.5
    assert found[0] == pytest.approx(expected)
    assert np.array_equal(found[1], np.full((3, 4), np.float32(1.5)))


@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 2, 2), (2, 2), (2, 2, 1)])
def test_colours_are_resized_and_laid_out(shape):
    pytest.importorskip("cv2")
    red = np.zeros((4, 6, 3), np.uint8)
    red[..., 0] = 200
    found = messages.image_input([image("rgb8", red)], Port("rgb", shape, np.dtype(np.uint8)))
    assert (found.shape, found.dtype) == (shape, np.uint8)
    if 3 in shape:
        mean = found.mean((0, 1) if shape[-1] == 3 else (1, 2))
        assert mean.tolist() == [200, 0, 0]
    else:
        assert {*found.ravel().tolist()} == {60}


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ([depth_image(3, 4)] * 3, r"depth \(2, 3, 4\) cannot be made of 3 images"),
        ([depth_image(3, 4)], "depth .* must have one topic per camera, got one image"),
        ([image("mono8", np.ones((3, 4), "u1"))] * 2, "depth must be of float32, got an .*mono8"),
    ],
)
def test_images_that_do_not_fit_the_input_are_refused(sent, sentence):
    with pytest.raises(ValueError, match=sentence):
        messages.image_input(sent, DEPTH)


def test_joints_are_found_by_name():
    state = joint_state(["toe", "knee", "hip"], position=[3, 2, 1], velocity=[30, 20, 10])
    found = messages.joint_input(state, ["hip", "toe"], ["position", "velocity"])
    assert found.tolist() == [1, 3, 10, 30]
    with pytest.raises(ValueError, match="joints must be hip, ankle, got no ankle"):
        messages.joint_input(state, ["hip", "ankle"], ["position"])
    with pytest.raises(ValueError, match="effort must have 3 numbers, one per joint, got 0"):
        messages.joint_input(state, ["hip"], ["effort"])


@pytest.fixture
def play(folder, tmp_path, monkeypatch):
    """Run the node against a robot that sends such messages: the robot, and what `main` returns."""

    def run(sends, topics=TOPICS, steps=5, max_age_s=5.0, wait_s=30.0):
        contract = json.loads((folder / "contract.json").read_text())
        contract |= {"rate_hz": 100.0, "max_age_s": max_age_s}
        (tmp_path / "contract.json").write_text(json.dumps(contract))
        shutil.copy(folder / "model.onnx", tmp_path)
        (tmp_path / "topics.json").write_text(json.dumps(topics))
        robot = Robot(sends)
        for name, module in robot.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.syspath_prepend(str(FOLDER))
        monkeypatch.delitem(sys.modules, "ros2_node", raising=False)
        monkeypatch.setattr("signal.signal", lambda *_: None)
        import ros2_node

        monkeypatch.setattr(ros2_node, "WAIT_S", wait_s)
        arguments = [str(tmp_path), str(tmp_path / "topics.json"), str(steps)]
        robot.ended = lambda: ros2_node.main(*arguments, str(tmp_path / "times.csv"))
        return robot

    return run


def usual(kind, topic, now_s, count):
    """Images of 0.5 m, and joints in another order than the policy's."""
    if kind is Image:
        return stamped(depth_image(12, 16, padding=3), now_s)
    return stamped(joint_state(["toe", "hip", "knee"], position=[0.3, 0.1, 0.2]), now_s)


def test_the_node_does_what_the_policy_does(play, folder, tmp_path):
    robot = play(usual)
    times = robot.ended()
    policy = Policy(folder)
    seen = {"depth": np.full((6, 8), 0.5, np.float32), "proprio": np.array([0.1, 0.2, 0.3])}
    expected = [("/commands", policy.act(seen).astype(float).tolist()) for _ in range(5)]
    assert robot.commands == expected
    assert not times.stopped
    assert 0 <= max(times.age) < 5000
    assert len((tmp_path / "times.csv").read_text().splitlines()) == 6


def test_the_watchdog_stops_when_a_camera_is_silent(play):
    def sends(kind, topic, now_s, count):
        silent = kind is Image and len(robot.commands) > 3
        return None if silent else usual(kind, topic, now_s, count)

    robot = play(sends, steps=999, max_age_s=0.3)
    assert "11 decisions without a usable observation; the obs" in robot.ended().stopped
    commands = [numbers for _, numbers in robot.commands]
    assert commands[-1] == [0, 0]
    assert commands[-2] == commands[-12] != [0, 0]


def test_an_error_leaves_a_stop_action_behind(play):
    def sends(kind, topic, now_s, count):
        message = usual(kind, topic, now_s, count)
        if kind is Image and len(robot.commands) > 3:
            message.encoding = "yuv422"
        return message

    robot = play(sends, steps=99)
    with pytest.raises(ValueError, match="encoding must be one of"):
        robot.ended()
    assert robot.commands[-1] == ("/commands", [0, 0])
    assert not robot.open


@pytest.mark.parametrize(
    ("sends", "topics", "sentence"),
    [
        (lambda *sent: usual(*sent) if sent[0] is Image else None, {}, "0.1 s on /joints"),
        (usual, {"images": {}}, "each of the inputs depth, proprio once, got proprio"),
    ],
)
def test_the_node_says_what_is_missing(play, sends, topics, sentence):
    robot = play(sends, {**TOPICS, **topics}, wait_s=0.1)
    with pytest.raises((TimeoutError, ValueError), match=sentence):
        robot.ended()
    assert robot.commands == []
