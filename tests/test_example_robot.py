"""The robot example: validation of messages, and a rollout in two processes."""

import json
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploy.export import main

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "robot"
FRAMES = runpy.run_path(str(FOLDER / "frames.py"))
ARRAYS = {"depth": np.ones((2, 3), np.float32), "rgb": np.arange(4, dtype=np.uint8)}


def framed(header):
    data = json.dumps(header).encode()
    return len(data).to_bytes(4, "big") + data


def test_arrays_go_over_a_socket_as_they_are():
    here, there = socket.socketpair()
    with here, there:
        FRAMES["send"](here, {"step": 3}, ARRAYS)
        message, found = FRAMES["receive"](there)
        assert message == {"step": 3}
        assert found.keys() == ARRAYS.keys()
        assert all(np.array_equal(found[key], ARRAYS[key]) for key in ARRAYS)
        here.close()
        with pytest.raises(ConnectionError, match="the other side is gone"):
            FRAMES["receive"](there)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\xff\xff\xff\xff", "a header must have 1 to 65536 bytes, got 4294967295"),
        (framed({"message": {}, "arrays": {"a": ["object", 1]}}), "a must be an array of float32"),
        (framed({"message": {}, "arrays": {"a": ["uint8", -1]}}), "a must be an array of float32"),
        (framed({"message": {}, "arrays": {"a": ["uint8", 1 << 13, 1 << 13]}}), "at most 16777216"),
    ],
)
def test_what_is_no_frame_is_refused(data, sentence):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data)
        with pytest.raises(ValueError, match=sentence):
            FRAMES["receive"](there)


@pytest.mark.slow
def test_the_walking_policy_walks_in_another_process(tmp_path):
    out = str(tmp_path / "walker")
    assert main(["stepping_stones_angular_8x8", "--out", out, "--observations", "50"]) == 0
    command = [sys.executable, str(FOLDER / "walk.py"), out, "1"]
    done = subprocess.run(
        command, cwd=FOLDER.parents[1], env={"PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "from picture to answer, ms: 50 %" in done.stdout
    decisions = re.search(r"(\d+) decisions", done.stdout)
    assert decisions is not None
    assert int(decisions[1]) > 20
