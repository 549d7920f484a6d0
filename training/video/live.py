"""Live windows: the environment's window, if it has one, and the policy's observations."""

import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np

from training.collect.episode import Policy
from training.io.config import UserError
from training.video.scene import Scene


def check_windows(name: str, has_own: bool) -> None:
    """Note that the policy's window is missing where OpenCV opens none; raises UserError if the
    environment of that name has no window of its own either."""
    lack = _lack()
    if lack is not None and not has_own:
        raise UserError(f"--render: {name} opens no window of its own, and {lack}")
    if lack is not None:
        print(f"note: what the policy sees is not shown, as {lack}", file=sys.stderr)


def _lack() -> str | None:
    """The reason why OpenCV cannot open windows; None if it can."""
    if find_spec("cv2") is None:
        return "OpenCV is not installed: pip install opencv-python"
    import cv2

    if cv2.currentUIFramework():
        return None
    return (
        "this build of OpenCV has none: pip uninstall opencv-python-headless, then "
        "pip install opencv-python"
    )


class LiveWindow:
    """An `on_step` of the episode loop that draws windows and waits until the simulated time has
    passed.

    An environment with render mode "human" opens a window itself. The policy's images are in a
    second window, inset in the outside view if the environment only returns images; that window
    uses OpenCV and is omitted without OpenCV or images.

    Args:
        env: the environment, open.
        fps: steps of it in a second.
        title: title of the policy's window.

    Raises:
        UserError: if there is nothing to show.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], fps: float, title: str = "Foveate") -> None:
        self._step_s = 1.0 / fps
        self._due = time.perf_counter()
        self._title = title
        self._has_own = env.unwrapped.render_mode == "human"
        self._scene: Scene | None = None
        if _lack() is None:
            with suppress(*([UserError] if self._has_own else [])):
                self._scene = Scene(env)

    def __call__(
        self,
        env: gymnasium.Env[Any, Any],
        observation: Any,
        action: np.ndarray,
        reward: float,
        policy: Policy,
    ) -> None:
        if self._has_own:
            env.render()
        if self._scene is not None:
            self._show(self._scene.frame(observation, policy, ""))
        self._due = max(self._due + self._step_s, time.perf_counter() - self._step_s)
        time.sleep(max(0.0, self._due - time.perf_counter()))

    def _show(self, frame: np.ndarray) -> None:
        import cv2

        cv2.imshow(self._title, cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        cv2.waitKey(1)
