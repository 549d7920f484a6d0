"""Record, resume and verify a directory of demonstrations, in this process or in several others."""

import dataclasses
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs import find_task
from envs.task import SUCCESS
from training.collect import environments
from training.collect.environments import make_env
from training.collect.episode import Policy, finite_numbers, run_episode
from training.collect.pool import WorkerDiedError, open_pool
from training.collect.processes import ProcessPool
from training.command.errors import UserError
from training.command.files import CONFIG, made_and_locked, reason, write_json, writing
from training.command.progress import ProgressBar
from training.demonstrations.arguments import SEGMENT_STEPS
from training.demonstrations.format import (
    EPISODES,
    MASTER,
    EpisodeWriter,
    Recording,
    check_same,
    episode_path,
    write_master,
)
from training.demonstrations.reader import DemoReader, read_demo, read_master, verify_demo
from training.demonstrations.summary import PICTURE, SUMMARY, draw, summarise
from training.io.checkpoint import CHECKPOINTS

_DISTURBED_SHARE = 0.5  # of the segments, on average
_NOISE_STREAM = 1
_MASTER_EVERY_S = 60.0


@dataclass(frozen=True)
class Job:
    """The specification from which a worker records any episode."""

    directory: Path
    settings: dict[str, Any]
    """Keywords of `gymnasium.make`."""
    recording: Recording


@dataclass(frozen=True)
class Task:
    """The number of an episode to record or verify."""

    number: int

    def __str__(self) -> str:
        return f"episode {self.number}"


class _EndWhenDone(gymnasium.Wrapper):
    """Ends an episode a number of steps after `info["success"]` first holds, or the environment's
    `expert_done`, if it has one; with -1 steps only the environment ends it."""

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
        elif self._steps >= 0 and (info.get("success") or self._expert_done()):
            self._left = self._steps
        return observation, reward, terminated, truncated or self._left == 0, info

    def _expert_done(self) -> bool:
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
        env = make_env(job.recording.env_id, job.settings)
        self._env = _EndWhenDone(env, job.recording.after_done_steps)

    def run(self, task: Task) -> int:
        """Record an episode; returns its number of steps. Raises UserError if it fails."""
        recording, directory = self._job.recording, self._job.directory
        seed = recording.seed + task.number
        writer = EpisodeWriter(recording, task.number)
        expert = _Expert(self._env, recording.noise, seed)

        def keep(
            env: gymnasium.Env, observation: Any, action: Any, reward: float, policy: Policy
        ) -> None:
            writer.add(observation, expert.label, reward)

        with closing(writer), writing(directory / episode_path(task.number)):
            try:
                episode = run_episode(self._env, expert, seed, on_step=keep)
                writer.save(directory, seed, finite_numbers(episode.info))
            except FloatingPointError as error:
                raise UserError(str(error)) from None
        return episode.steps

    def close(self) -> None:
        self._env.close()


def _resumed(job: Job) -> Job:
    """The job according to the directory's files, which may lack newer settings of the environment;
    raises UserError if they hold demonstrations of another job."""
    master = job.directory / MASTER
    if not master.exists():
        return job
    found, _, _ = read_master(master)
    settings = environments.completed(job.recording.env_id, found.env)
    check_same(master, dataclasses.replace(found, env=settings), job.recording)
    return dataclasses.replace(job, recording=found)


def _finished(job: Job) -> dict[int, int]:
    """Steps of each complete episode in the directory, by number; removes files of killed writers.

    Raises UserError if the directory holds demonstrations of another job or a damaged file.
    """
    for left_over in (job.directory / EPISODES).glob(".*.hdf5.*"):
        left_over.unlink()
    names = (path.stem for path in (job.directory / EPISODES).glob("*.hdf5"))
    numbers = sorted(int(name) for name in names if re.fullmatch("[0-9]{6}", name))
    return {number: len(read_demo(job.directory, number, job.recording)) for number in numbers}


def _record_missing(
    job: Job, lengths: dict[int, int], episodes: int, workers: int, valid_share: float
) -> None:
    """Record the episodes that are not in `lengths`, keeping the master file up to date. If this
    ends early, the workers stop, and unfinished episodes leave no files."""
    lengths = dict(lengths)
    missing = [number for number in range(episodes) if number not in lengths]
    if not missing:
        return
    written = -_MASTER_EVERY_S
    with (
        ProgressBar(total=len(missing) + len(lengths), initial=len(lengths), unit="episode") as bar,
        closing(open_pool(partial(_Recorder, job), min(workers, len(missing)))) as pool,
        closing(pool.as_finished(list(map(Task, missing)))) as finished,  # in any order
    ):
        for index, steps in finished:
            lengths[missing[index]] = steps
            bar.set_postfix_str(f"{steps} steps", refresh=False)
            bar.update()
            if time.monotonic() - written > _MASTER_EVERY_S:
                write_master(job.directory, job.recording, lengths, valid_share)
                written = time.monotonic()


def record_all(job: Job, episodes: int, workers: int, valid_share: float) -> DemoReader:
    """Record the missing ones of `episodes`, write and print a summary; returns the reader.

    Args:
        job: the recording job.
        episodes: total number of episodes.
        workers: number of processes.
        valid_share: share of the episodes held out in mask/valid.

    Raises:
        UserError: the directory holds something else, or an episode cannot be recorded.
        KeyboardInterrupt: stopped; finished episodes can be read, as a line reports.
    """
    directory, began = job.directory, time.monotonic()
    for name in (CONFIG, CHECKPOINTS):
        if os.path.exists(directory / name):  # unlike Path's, False for impossible names
            raise UserError(
                f"--out {directory} holds a training run ({name}): give another directory"
            )
    with made_and_locked(directory), writing(directory):
        (directory / EPISODES).mkdir(exist_ok=True)
        job = _resumed(job)
        before = _finished(job)
        try:
            _record_missing(job, before, episodes, workers, valid_share)
        except (UserError, OSError, KeyboardInterrupt) as error:
            state = _rescue(job, valid_share)
            if isinstance(error, KeyboardInterrupt):
                print(f"\ninterrupted; {state}")
                raise
            raise UserError(f"recording stopped: {error}; {state}") from None
        lengths, wall_s = _finished(job), time.monotonic() - began
        write_master(directory, job.recording, lengths, valid_share)
        return _report(directory, {n: k for n, k in lengths.items() if n not in before}, wall_s)


def _rescue(job: Job, valid_share: float) -> str:
    """Make the finished episodes readable after an interruption; returns a status sentence."""
    finished = _finished(job)
    place = f"{len(finished)} finished episodes are in {job.directory}"
    state = f"{place}, and the same command records the others"
    try:
        write_master(job.directory, job.recording, finished, valid_share)
    except OSError as error:
        state += f" ({MASTER} could not be brought up to date: {reason(error)})"
    return state


def _report(directory: Path, new: dict[int, int], wall_s: float) -> DemoReader:
    """Write and print the summary; `new` has the steps of the new episodes. The reader."""
    reader = DemoReader(directory)
    facts = summarise(reader)
    steps = sum(new.values())
    facts["last_recording"] = {"episodes": len(new), "steps": steps, "wall_s": round(wall_s, 1)}
    write_json(directory / SUMMARY, facts, allow_nan=False)
    draw(reader, directory / PICTURE)
    rate = f", {steps / wall_s:.1f} steps/s" if new else ""
    frame = f", {facts['frame_bytes'] / 1e3:.1f} kB a frame" if facts["frame_bytes"] else ""
    print(
        f"{len(reader)} episodes ({len(new)} new) in {directory}: {facts['steps']} steps, "
        f"{facts['bytes'] / 1e6:.1f} MB{frame}; {wall_s:.0f} s{rate}"
    )
    means = {**facts["final_info_mean"], "reward": facts["reward_last"]["mean"]}
    task = find_task(reader.recording.env_id)
    if task is not None and task.headline != SUCCESS and task.headline in means:
        means = {task.headline: means.pop(task.headline), **means}
        means.pop(SUCCESS, None)
    shown = ", ".join(f"{key} {value:.3f}" for key, value in means.items())
    print(f"expert, mean at the end of an episode: {shown}")
    return reader


@dataclass(frozen=True)
class _Verifier:
    verify: Callable[[Path, int, Recording], int]
    reader: DemoReader

    def run(self, task: Task) -> int:
        """Check an episode and return its steps. Raises UserError if it is damaged."""
        return self.verify(self.reader.directory, task.number, self.reader.recording)

    def close(self) -> None:
        """Nothing is held."""


def verify(directory: Path, workers: int) -> None:
    """Read every frame of a directory and print a confirmation; raises UserError for damage."""
    reader, quiet = DemoReader(directory), not sys.stderr.isatty()
    count, make = len(reader), partial(_Verifier, verify_demo, reader)
    with closing(ProcessPool(make, min(workers, max(count, 1)))) as pool:  # HDF5 may crash
        try:
            results = pool.in_order([Task(demo.number) for demo in reader.demos])
            steps = sum(ProgressBar(results, total=count, unit="episode", disable=quiet))
        except WorkerDiedError as error:
            raise UserError(f"--verify {directory}: {error}") from None
    print(f"{count} episodes in {reader.directory} are whole: {steps} steps, every checksum right")
