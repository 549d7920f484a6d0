"""The small image of each task that studies' pages begin with, written beside its description.

    python -m experiments.robots.task_pictures [PNG ...]

Given PNG files, such as frames of `training.rollout --video frame.png`, it writes each as a WebP
file beside it instead, without loss, for the documentation.
"""

import sys
from pathlib import Path

import cv2
import gymnasium
import numpy as np

import envs
from policies.common.scripted import Oracle

WIDTH_PX, QUALITY = 320, 60
AFTER_S = {"SteppingStones-v0": 4.0, "BimanualSweep-v0": 7.0, "CarRacingRepeat-v0": 1.4}
"""When in an episode the image is taken."""
SEED = 100_000


def image(env_id: str) -> bytes:
    """A WebP image of the expert at work, or of a car that drives straight ahead."""
    with gymnasium.make(env_id, render_mode="rgb_array") as env:
        observation, _ = env.reset(seed=SEED)
        act = Oracle(env).act if env.has_wrapper_attr("expert_action") else _straight_on
        for _ in range(round(AFTER_S[env_id] * float(env.metadata["render_fps"]))):
            observation, *_ = env.step(act(observation))
        frame = np.asarray(env.render())
    height = round(WIDTH_PX * frame.shape[0] / frame.shape[1])
    small = cv2.resize(frame, (WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    found, data = cv2.imencode(".webp", small[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, QUALITY])
    assert found
    return data.tobytes()


def _straight_on(_: object) -> np.ndarray:
    return np.array([0.0, 0.2], np.float32)


def main(files: list[str]) -> None:
    """Write all of them, or the given images as WebP."""
    for name in files:
        lossless = [cv2.IMWRITE_WEBP_QUALITY, 101]
        cv2.imwrite(str(Path(name).with_suffix(".webp")), cv2.imread(name), lossless)
    for task in envs.tasks() if not files else ():
        if task.scene is not None:
            task.scene.write_bytes(image(task.env_id))
            print(f"wrote that of {task.env_id}, {task.scene.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
