"""Episodes of a policy, each printed, recorded as a video or shown in a live window."""

from collections.abc import Sequence
from pathlib import Path

import gymnasium

from training.analysis.agents import Agent
from training.collect.environments import render_modes, step_s
from training.collect.episode import Episode, run_episode
from training.collect.outcomes import described
from training.io.config import UserError
from training.video.live import LiveWindow, check_windows
from training.video.video import FPS, FrameWriter, LastInfo, VideoRecorder


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
    try:
        return _roll(agent, seeds, None if video is None else str(video), still_s, render)
    except FloatingPointError as error:
        raise UserError(f"{agent.name}: {error}") from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{agent.env_id} cannot be drawn here: {error}") from None


def _render_mode(agent: Agent, video: str | None, render: bool) -> str | None:
    """The render mode of the environment; None if none is needed or there is no outside view."""
    if not (render or video):
        return None
    with agent.make_env() as env:
        modes = render_modes(env)
    if render:
        check_windows(agent.env_id, "human" in modes)
    human = render and "human" in modes
    return "human" if human else "rgb_array" if "rgb_array" in modes else None


def _roll(
    agent: Agent, seeds: Sequence[int], video: str | None, still_s: float, render: bool
) -> list[Episode]:
    mode = _render_mode(agent, video, render)
    episodes: list[Episode] = []
    with LastInfo(agent.make_env(mode)) as env:
        fps = 1 / step_s(env, 1 / FPS)
        writer = FrameWriter(video, fps) if video else None
        recorder = VideoRecorder(env, writer, still_s, agent.name) if writer else None
        on_step = LiveWindow(env, fps, agent.name) if render else recorder
        policy = agent.make_policy(env)
        complete = False
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
    return episodes
