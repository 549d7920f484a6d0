"""Episodes of a policy, each printed, recorded as a video or shown in a live window."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium

from training.analysis.agents import Agent
from training.collect.checked import EnvironmentFault
from training.collect.environments import render_modes, step_s
from training.collect.episode import Episode, run_episode
from training.collect.outcomes import described
from training.io.config import UserError
from training.video.video import FPS, FrameWriter, LastInfo, VideoRecorder, frames_a_step


def roll(
    agent: Agent,
    seeds: Sequence[int],
    video: str | Path | None = None,
    still_s: float = 4.0,
    render: bool = False,
) -> list[Episode]:
    """Run one episode per seed and print its result.

    Args:
        agent: the policy and its environment.
        seeds: seeds of the episodes, in order.
        video: file of a video of all of them, or, a .png, one frame of the first.
        still_s: time of that frame, seconds.
        render: show live windows, in real time.

    Raises:
        UserError: the environment cannot be drawn, or an action or reward is not finite.
    """
    episodes: list[Episode] = []
    complete = False
    try:
        with LastInfo(agent.make_env(_render_mode(agent, video, render))) as env:
            fps = 1 / step_s(env, 1 / FPS)
            writer = FrameWriter(video, fps * frames_a_step(env)) if video else None
            recorder = VideoRecorder(env, writer, still_s, agent.name) if writer else None
            on_step = LiveWindow(env, fps, agent.name) if render else recorder
            policy = agent.make_policy(env)
            try:
                for seed in seeds:
                    if recorder:
                        recorder.start_episode()
                    policy = agent.for_episode(policy, env, seed)
                    episodes.append(run_episode(env, policy, seed, on_step=on_step))
                    if recorder:
                        recorder.end_episode()
                    print(described(episodes[-1], agent.task), flush=True)
                complete = True
            finally:
                if writer:
                    writer.close(keep=complete)
    except (FloatingPointError, EnvironmentFault) as error:
        raise UserError(f"{agent.name}: {error}") from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{agent.env_id} cannot be drawn here: {error}") from None
    return episodes


def _render_mode(agent: Agent, video: str | Path | None, render: bool) -> str | None:
    """The render mode of the environment; None if none is needed or there is no outside view."""
    if not (render or video):
        return None
    with agent.make_env() as env:
        modes = render_modes(env)
    if render:
        check_windows(agent.env_id, "human" in modes)
    human = render and "human" in modes
    return "human" if human else "rgb_array" if "rgb_array" in modes else None


def check_windows(name: str, has_own: bool) -> None:
    """Print a note if OpenCV cannot open the policy's window; raises UserError if the environment
    of that name has no window either."""
    lack = _lack()
    if lack is not None and not has_own:
        raise UserError(f"--render: {name} opens no window, and {lack}")
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
        self._scene: Any = None
        if _lack() is None:
            from training.video.scene import Scene  # needs OpenCV

            with suppress(*([UserError] if self._has_own else [])):
                self._scene = Scene(env)

    def __call__(self, env: Any, observation: Any, action: Any, reward: float, policy: Any) -> None:
        if self._has_own:
            env.render()
        if self._scene is not None:
            import cv2

            frame = self._scene.frame(observation, policy, "")
            cv2.imshow(self._title, cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
            cv2.waitKey(1)
        self._due = max(self._due + self._step_s, time.perf_counter() - self._step_s)
        time.sleep(max(0.0, self._due - time.perf_counter()))
