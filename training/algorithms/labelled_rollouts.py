"""Rollouts labelled by the expert: how they are collected, stored and read.

An episode depends on its `Task` alone and episodes come back in the order of their tasks, so a
data set is the same bit for bit however many processes collect it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from policies.common.action_parts import ActionParts
from policies.common.observation import copied, parts_of
from training.algorithms.workers import EpisodeTask, PolicyWorker
from training.collect.episode import Episode, Policy
from training.command.files import check_regular, write_atomically
from training.command.progress import ProgressBar
from training.demonstrations.dataset import ACTION, Dataset, check_lengths, evenly_held_out
from training.io.checkpoint import check_tensors
from training.io.config import UserError
from training.io.fingerprint import sha256_of

Layout = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and type of the arrays that are stored for a decision, by name in a file."""
_ACTIONS, _HELD_OUT, _PART = "actions", "held_out", "observation/"
_TAKEN, _STARTS = "taken", "starts"
_BEFORE = {"depth_m": "depth", "proprio": "proprio"}
"""Names of observations' parts in files of earlier versions."""
_HALF_BELOW = 256.0
"""Images of floats whose bounds are nearer to 0 are stored in half precision, 3 digits."""


def layout_of(env: gymnasium.Env[Any, Any], remembers: bool = False) -> Layout:
    """The arrays of demonstrations in an environment, for a policy with or without memory."""
    parts = {_PART + key: _stored(part, True) for key, part in parts_of(env.observation_space)}
    action = _stored(env.action_space, False)
    more: Layout = {_TAKEN: action, _STARTS: ((), np.dtype(bool))} if remembers else {}
    return {**parts, _ACTIONS: action, **more}


def _stored(space: Any, halved: bool) -> tuple[tuple[int, ...], np.dtype[Any]]:
    dtype, shape = np.dtype(space.dtype), tuple(space.shape)
    if dtype.kind == "f":
        near = max(np.abs(space.low).max(), np.abs(space.high).max()) < _HALF_BELOW
        dtype = np.dtype(np.float16 if halved and near and len(shape) > 1 else np.float32)
    return shape, dtype


@dataclass(frozen=True)
class Demonstrations:
    """Decisions of whole episodes, each with the expert's action.

    Attributes:
        observations: their parts by name, each (decisions, ...).
        actions: (decisions, ...), the expert's actions.
        held_out: (decisions,) bool, True for the held-out episodes.
        taken: the actions taken, (decisions, ...); for policies with memory.
        starts: (decisions,) bool, the first of each episode; for policies with memory.
    """

    observations: dict[str, Tensor]
    actions: Tensor
    held_out: Tensor
    taken: Tensor | None = None
    starts: Tensor | None = None

    @classmethod
    def of(
        cls, rollouts: Sequence[LabelledRollout], held_out: float, remembers: bool = False
    ) -> Demonstrations:
        """Join several episodes and hold out the share `held_out` of them, rounded down: evenly
        spread, and at least the last; for a policy with or without memory.
        """
        lengths = torch.tensor([len(rollout.actions) for rollout in rollouts])
        marks = torch.zeros(len(rollouts), dtype=torch.bool)
        marks[evenly_held_out(len(rollouts), held_out)] = True
        parts = {
            key: torch.from_numpy(np.concatenate([one.observations[key] for one in rollouts]))
            for key in rollouts[0].observations
        }
        actions = torch.from_numpy(np.concatenate([rollout.actions for rollout in rollouts]))
        marks = marks.repeat_interleave(lengths)
        if not remembers:
            return cls(parts, actions, marks)
        taken = torch.from_numpy(np.concatenate([rollout.taken for rollout in rollouts]))
        return cls(parts, actions, marks, taken, _starts(lengths))

    @classmethod
    def recorded(cls, dataset: Dataset, layout: Layout) -> Demonstrations:
        """The episodes to train on and those held out of an opened dataset, whose actions were
        taken. Raises UserError if they do not fit the environment or memory."""
        chosen = sorted({*dataset.train, *dataset.valid})
        lengths = torch.from_numpy(dataset.lengths[chosen])
        count = int(lengths.sum())
        shapes = {name: layout[_PART + name] for name in dataset.parts}
        shapes[ACTION] = layout[_ACTIONS]
        check_lengths(
            dataset.path, dataset.lengths[chosen],
            sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values()),
        )  # fmt: skip
        stored = {name: np.empty((count, *shape), dtype) for name, (shape, dtype) in shapes.items()}
        begin = 0
        for episode in ProgressBar(chosen, unit="episode", leave=False):
            end = begin + int(dataset.lengths[episode])
            for name, values in stored.items():
                found = dataset.read(episode, name)
                try:
                    with np.errstate(over="raise"):
                        values[begin:end] = found
                except FloatingPointError:
                    raise UserError(
                        f"{dataset.path}: {name} of episode {episode} leaves the bounds of its "
                        f"space as far as to {np.abs(found).max():.3g}"
                    ) from None
            begin = end
        held_out = torch.tensor([episode in set(dataset.valid) for episode in chosen])
        tensors = {name: torch.from_numpy(values) for name, values in stored.items()}
        actions, marks = tensors.pop(ACTION), held_out.repeat_interleave(lengths)
        if _TAKEN not in layout:
            return cls(tensors, actions, marks)
        return cls(tensors, actions, marks, actions, _starts(lengths))

    @classmethod
    def joined(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Concatenate several collections."""
        if len(parts) == 1:
            return parts[0]
        named = [part._tensors() for part in parts]
        return cls._of_tensors({key: torch.cat([one[key] for one in named]) for key in named[0]})

    def split(self) -> tuple[Demonstrations, Demonstrations]:
        """The training part and the held-out part."""
        return self[~self.held_out], self[self.held_out]

    def prepared(self, policy: Any) -> Demonstrations:
        """A copy whose observations a policy has prepared for training."""
        found = policy.prepared(self.observations, self.starts)
        return dataclasses.replace(self, observations=dict(found))

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, index: Tensor) -> Demonstrations:
        return self._of_tensors({key: values[index] for key, values in self._tensors().items()})

    @classmethod
    def _of_tensors(cls, tensors: dict[str, Tensor]) -> Demonstrations:
        """The reverse of `_tensors`; KeyError where actions or marks are missing."""
        actions, held_out = tensors.pop(_ACTIONS), tensors.pop(_HELD_OUT)
        more = tensors.pop(_TAKEN, None), tensors.pop(_STARTS, None)
        parts = {_BEFORE.get(key, key.removeprefix(_PART)): part for key, part in tensors.items()}
        return cls(parts, actions, held_out, *more)

    def _tensors(self) -> dict[str, Tensor]:
        """All arrays by their names in the file."""
        parts = {_PART + key: self.observations[key] for key in sorted(self.observations)}
        found = {**parts, _ACTIONS: self.actions, _HELD_OUT: self.held_out}
        more = {_TAKEN: self.taken, _STARTS: self.starts}
        return found | {name: values for name, values in more.items() if values is not None}

    def save(self, path: Path) -> None:
        """Write a safetensors file in one step."""
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, safetensors_torch.save(self._tensors()))
        except OSError as error:
            raise UserError(f"cannot write the demonstrations {path}: {error.strerror}") from None

    def sha256(self) -> str:
        """SHA-256 of all numbers, in hexadecimal digits."""
        return sha256_of(tensor.numpy().tobytes() for tensor in self._tensors().values())

    @classmethod
    def load(cls, path: Path) -> Demonstrations:
        """Read a file written by `save` or by an earlier version; raises UserError if it is missing
        or damaged.
        """
        try:
            check_regular(path)
            return cls._of_tensors(safetensors_torch.load(path.read_bytes()))
        except (OSError, SafetensorError, KeyError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot read the demonstrations {path}: {reason}") from None

    def check(self, path: Path, layout: Layout) -> None:
        """Raise UserError, naming their file, unless they fit these observations and actions, and
        some but not all of them are held out. Numbers that are not finite come from the
        environment: training reports them.
        """
        count = self.held_out.numel()
        needed = {
            name: torch.from_numpy(np.empty((count, *shape), dtype)).to("meta")
            for name, (shape, dtype) in layout.items()
        }
        needed[_HELD_OUT] = torch.empty(count, dtype=torch.bool, device="meta")
        given = {name: values.to("meta") for name, values in self._tensors().items()}
        check_tensors(path, "collection of demonstrations", given, needed)
        held_out = int(self.held_out.sum())
        if not 0 < held_out < count:
            raise UserError(
                f"{path} holds out {held_out} of {count} decisions, where some must be held "
                f"out, but not all"
            )


def _starts(lengths: Tensor) -> Tensor:
    """Marks of the first decision of each episode, (decisions,) bool."""
    starts = torch.zeros(int(lengths.sum()), dtype=torch.bool)
    starts[lengths.cumsum(0)[:-1]] = True
    starts[0] = True
    return starts


@dataclass(frozen=True)
class Task(EpisodeTask):
    """One episode to run."""

    disturbance: float = 0.0
    """Standard deviation of noise on the actions, in halves of their range; how often a random one
    is taken where they are choices."""
    disturbance_steps: float = 1.0
    """Decisions over which it is correlated."""
    learner: dict[str, NDArray[Any]] | None = None
    """State of the policy that acts; None: the expert acts."""


@dataclass(frozen=True)
class Played:
    """An episode."""

    episode: Episode


@dataclass(frozen=True)
class LabelledRollout(Played):
    """An episode, its observations at each decision, and the expert's actions for them."""

    observations: dict[str, NDArray[Any]]
    actions: NDArray[Any]
    taken: NDArray[Any]
    """The actions that were taken; `actions` are the expert's."""


class _Recorder:
    """Acts, and records every observation with the expert's action for it."""

    def __init__(self, env: gymnasium.Env, learner: Policy | None, task: Task) -> None:
        self.seen: list[dict[str, NDArray[Any]]] = []
        self.labels: list[NDArray[Any]] = []
        self.taken: list[NDArray[Any]] = []
        self._env, self._learner, self._task = env, learner, task
        self._rng = np.random.default_rng(task.seed)
        self._noise: Any = 0.0

    def reset(self) -> None:
        if self._learner is not None:
            self._learner.reset()

    def act(self, observation: Any) -> Any:
        label = self._env.get_wrapper_attr("expert_action")()
        self.seen.append(copied(observation))
        self.labels.append(np.array(label))
        action = label if self._learner is None else self._learner.act(observation)
        taken = self._disturbed(action)
        self.taken.append(np.array(taken))
        return taken

    def _disturbed(self, action: Any) -> Any:
        task, space = self._task, self._env.action_space
        if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
            if not task.disturbance or self._rng.random() >= task.disturbance:
                return action
            space.seed(int(self._rng.integers(2**31)))
            return space.sample()
        keep = 1 - 1 / task.disturbance_steps
        fresh = task.disturbance * self._rng.standard_normal(space.shape)
        self._noise = keep * self._noise + np.sqrt(1 - keep**2) * fresh
        half = (space.high.astype(np.float64) - space.low) / 2
        half = np.where(np.isfinite(half), half, 1.0)
        found = np.clip(action + half * self._noise, space.low, space.high).astype(space.dtype)
        if not isinstance(space, ActionParts):
            return found
        space.seed(int(self._rng.integers(2**31)))
        other = self._rng.random(space.shape) < task.disturbance
        choices = np.where(other, space.sample(), action)
        return np.where(np.array(space.bins) > 0, choices, found).astype(space.dtype)


class PlayingWorker(PolicyWorker):
    """Runs episodes of the policy where no expert labels them."""

    def run(self, task: Task) -> Played:
        """Run a task's episode."""
        assert task.learner is not None
        self.set_state(task.learner)
        return Played(self.episode(self._policy, task))


class LabellingWorker(PolicyWorker):
    """Runs episodes of the policy or the expert, and labels every observation."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._layout = layout_of(self._env)

    def run(self, task: Task) -> LabelledRollout:
        """Run a task's episode."""
        if task.learner is not None:
            self.set_state(task.learner)
        learner = None if task.learner is None else self._policy
        recorder = _Recorder(self._env, learner, task)
        episode = self.episode(recorder, task)

        def stacked(rows: list[Any], name: str) -> NDArray[Any]:
            with np.errstate(over="ignore"):
                stored = np.stack(rows).astype(self._layout[name][1])
            if stored.dtype == np.float16 and not np.isfinite(stored).all():
                raise FloatingPointError(
                    f"{name} of the episode with seed {task.seed} leaves the bounds of its space "
                    f"so far, to {np.abs(rows).max():.3g}, that half precision cannot hold it"
                )
            return stored

        parts = {
            key: stacked([seen[key] for seen in recorder.seen], _PART + key)
            for key in recorder.seen[0]
        }
        actions, taken = (stacked(rows, _ACTIONS) for rows in (recorder.labels, recorder.taken))
        return LabelledRollout(episode, parts, actions, taken)
