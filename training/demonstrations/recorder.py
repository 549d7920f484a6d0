"""Records episodes of an environment's expert, in this process or in several others."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from training.collect.environments import make_env
from training.collect.episode import Policy, finite_numbers, run_episode
from training.collect.pool import open_pool
from training.demonstrations.format import Recording, episode_path
from training.demonstrations.writer import EpisodeWriter
from training.io.config import UserError

SEGMENT_STEPS = 10
"""Steps that are disturbed, or left alone, together."""
_DISTURBED_SHARE = 0.5
"""Of the segments, on average."""
_NOISE_STREAM = 1


@dataclass(frozen=True)
class Job:
    """The specification from which a worker records any episode."""

    directory: Path
    settings: dict[str, Any]
    """Keywords of `gymnasium.make`."""
    recording: Recording


@dataclass(frozen=True)
class Task:
    """The number of an episode to record."""

    number: int

    def __str__(self) -> str:
        return f"episode {self.number}"


class _EndWhenDone(gymnasium.Wrapper):
    """Ends an episode a number of steps after it is done; with -1 steps only the environment ends
    it.

    Done: `info["success"]` holds, or the environment has `expert_done` and it holds: the expert has
    nothing left to do.
    """

    def __init__(self, env: gymnasium.Env, steps: int) -> None:
        super().__init__(env)
        self._steps = steps

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._left: int | None = None
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._left is not None:
            self._left -= 1
        elif self._steps >= 0 and (info.get("success") or self._expert_is_done()):
            self._left = self._steps
        return observation, reward, terminated, truncated or self._left == 0, info

    def _expert_is_done(self) -> bool:
        known = self.env.has_wrapper_attr("expert_done")
        return known and bool(self.env.get_wrapper_attr("expert_done"))


class _Expert:
    """The scripted expert, optionally with noise on its actions; `label` is its intended action.

    With noise, a random half of the segments is executed with normal noise on each action, so that
    the data show how to recover: noise injection as in DART (Laskey et al. 2017, section 3).
    """

    def __init__(self, env: gymnasium.Env, noise: float, seed: int) -> None:
        space = env.action_space
        assert isinstance(space, spaces.Box)
        self._env, self._space = env, space
        self._scale = noise * (space.high - space.low) / 2 if noise else None
        self._rng = np.random.default_rng((_NOISE_STREAM, seed))

    def reset(self) -> None:
        self._step, self._disturbed = 0, False

    def act(self, observation: Any) -> NDArray[Any]:
        self.label = np.array(self._env.get_wrapper_attr("expert_action")(), self._space.dtype)
        if self._scale is None:
            return self.label
        if self._step % SEGMENT_STEPS == 0:
            self._disturbed = self._rng.random() < _DISTURBED_SHARE
        self._step += 1
        if not self._disturbed:
            return self.label
        noise = self._scale * self._rng.standard_normal(self.label.shape)
        disturbed = np.clip(self.label + noise, self._space.low, self._space.high)
        return disturbed.astype(self.label.dtype)


class _Recorder:
    """One environment; records one episode at a time."""

    def __init__(self, job: Job) -> None:
        self._job = job
        recording = job.recording
        env = make_env(recording.env_id, job.settings)
        self._env = _EndWhenDone(env, recording.after_done_steps)

    def run(self, task: Task) -> int:
        """Record an episode into its file; returns its number of steps. Raises UserError if it
        fails.
        """
        number = task.number
        recording, directory = self._job.recording, self._job.directory
        seed = recording.seed + number
        writer = EpisodeWriter(recording, number)
        expert = _Expert(self._env, recording.noise, seed)

        def keep(
            env: gymnasium.Env, observation: Any, action: Any, reward: float, policy: Policy
        ) -> None:
            writer.add(observation, expert.label, reward)

        with closing(writer):
            try:
                episode = run_episode(self._env, expert, seed, on_step=keep)
                writer.save(directory, seed, finite_numbers(episode.info))
            except FloatingPointError as error:
                raise UserError(str(error)) from None
            except OSError as error:
                path = directory / episode_path(number)
                raise UserError(f"cannot write {path}: {error.strerror or error}") from None
        return episode.steps

    def close(self) -> None:
        self._env.close()


def record(job: Job, numbers: Sequence[int], workers: int) -> Generator[tuple[int, int]]:
    """Record episodes; yields (number, steps) for each finished episode, in any order.

    Closing the iterator stops the workers; their unfinished episodes leave no files. Raises
    UserError if an episode cannot be recorded or workers keep dying.
    """
    make = partial(_Recorder, job)
    with (
        closing(open_pool(make, min(workers, len(numbers)))) as pool,
        closing(pool.as_finished([Task(number) for number in numbers])) as finished,
    ):
        for index, steps in finished:
            yield numbers[index], steps
