"""The robot's computer: an exported policy against a simulator in another process, at 20 Hz.

    python examples/robot/walk.py FOLDER [EPISODES]

It requires NumPy and ONNX Runtime; the simulated robot that it starts requires Foveate.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from frames import receive, send

from deploy.runtime import Policy

HERE = Path(__file__).parent
WAIT_S = 60.0


def main(folder: str, episodes: str = "6") -> None:
    """Walk, and print how it went and how long decisions took."""
    policy = Policy(folder, late="hold")
    settings = json.dumps(policy.contract.everything["environment"]["settings"])
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "robot")
        command = [sys.executable, str(HERE / "simulator.py"), path, settings, episodes]
        with subprocess.Popen(command) as body:
            try:
                with _connected(path, body) as robot:
                    _report(*_walk(robot, policy))
            finally:
                body.terminate()


def _connected(path: str, body: subprocess.Popen[bytes]) -> socket.socket:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s and body.poll() is None:
        robot = socket.socket(socket.AF_UNIX)
        try:
            robot.connect(path)
        except OSError:
            robot.close()
            time.sleep(0.1)
        else:
            return robot
    raise ConnectionError("the simulator did not begin")


def _walk(robot: socket.socket, policy: Policy) -> tuple[list[float], list[float], int]:
    """Milliseconds of `act`, and from what was seen to the answer; late observations."""
    act_ms, answer_ms, late = [], [], 0
    while True:
        message, seen = receive(robot)
        if "over" in message:
            return act_ms, answer_ms, late
        if "episode" in message:
            late += policy.late_count
            words = [f"{key} {value:.2f}" if key == "distance_m" else f"{key} {value}"
                     for key, value in message["episode"].items()]  # fmt: skip
            print(", ".join(words))
            continue
        if message["begins"]:
            policy.reset()
        begun_s = time.monotonic()
        action = policy.act(seen, age_s=begun_s - message["seen_s"])
        act_ms.append(1e3 * (time.monotonic() - begun_s))
        send(robot, {"step": message["step"]}, {"action": action})
        answer_ms.append(1e3 * (time.monotonic() - message["seen_s"]))


def _report(act_ms: list[float], answer_ms: list[float], late: int) -> None:
    shares = (50, 95, 99, 100)
    for name, times_ms in (("a decision", act_ms), ("from picture to answer", answer_ms)):
        found = zip(shares, np.percentile(times_ms, shares), strict=True)
        print(f"{name}, ms:", ", ".join(f"{share} % {value:.2f}" for share, value in found))
    print(f"{len(act_ms)} decisions, {late} observations too old")


if __name__ == "__main__":
    main(*sys.argv[1:])
