"""The robot's body: the simulator in real time. It does not wait: a late action is ignored.

    python examples/robot/simulator.py SOCKET [SETTINGS] [EPISODES]

Each 50 ms it sends what it sees, and takes the last action that has come.
"""

import json
import select
import socket
import sys
import time

import gymnasium
import numpy as np
from frames import receive, send

import envs  # noqa: F401 - registers SteppingStones-v0

PERIOD_S = 0.05
FIRST_SEED = 100000


def main(path: str, settings: str = "{}", episodes: str = "6") -> None:
    """Play episodes for whoever connects."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)
    robot, _ = server.accept()
    with robot, gymnasium.make("SteppingStones-v0", **json.loads(settings)) as env:
        for episode in range(int(episodes)):
            play(env, robot, FIRST_SEED + episode)
        send(robot, {"over": True}, {})


def play(env: gymnasium.Env, robot: socket.socket, seed: int) -> None:
    """One episode in real time."""
    observation, _ = env.reset(seed=seed)
    action, missed, steps, begins = np.zeros(env.action_space.shape, np.float32), 0, 0, True
    due_s = time.monotonic()
    while True:
        send(robot, {"seen_s": time.monotonic(), "begins": begins, "step": steps}, observation)
        due_s = max(due_s + PERIOD_S, time.monotonic())
        heard = False
        while select.select([robot], [], [], max(0, due_s - time.monotonic()))[0]:
            message, arrays = receive(robot)
            if message["step"] == steps:  # an answer to what was seen before is too late
                action, heard = arrays["action"], True
        missed, steps, begins = missed + (not heard), steps + 1, False
        observation, _, ended, cut, info = env.step(action)
        if ended or cut:
            break
    success, distance_m = bool(info["success"]), float(info["distance_m"])
    message = {"success": success, "distance_m": distance_m, "steps": steps, "missed": missed}
    send(robot, {"episode": message}, {})


if __name__ == "__main__":
    main(*sys.argv[1:])
