"""Episodes labelled by the expert: who walks in them, how they are collected, kept and read.

An episode depends on its `Task` alone and episodes come back in the order of their tasks, so a
data set is the same bit for bit however many processes collect it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

import policies
from policies.footholds import ACTION_SIZE
from training import config as configuration
from training.checkpoint import check_tensors, make_env
from training.config import UserError
from training.episode import Episode, Policy, run_episode
from training.files import check_regular, write_atomically
from training.pool import open_pool
from training.seeds import EVALUATION_SEEDS_FROM
from training.workers import explained

__all__ = ["Collector", "Demonstrations", "Task", "Walk"]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Demonstrations:
    """Decisions of whole episodes, each with what the expert would have done.

    Attributes:
        depth_m: (decisions, cameras, height, width) float16, metres.
        proprio: (decisions, k) float32.
        actions: (decisions, 9) float32, the expert's.
        held_out: (decisions,) bool, those of the episodes that are not trained on.
    """

    depth_m: Tensor
    proprio: Tensor
    actions: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, walks: Sequence[Walk], held_out: float) -> Demonstrations:
        """Those of several episodes, the share `held_out` of them, rounded down, held out: spread
        evenly, and at least the last."""
        lengths = torch.tensor([len(walk.actions) for walk in walks])
        due = torch.arange(len(walks) + 1, dtype=torch.float64) * held_out
        marks = (due + 1e-9).floor().diff() > 0  # 100 * 0.29 is a little less than 29
        marks[-1] |= not marks.any()
        return cls(
            torch.from_numpy(np.concatenate([walk.depth_m for walk in walks])),
            torch.from_numpy(np.concatenate([walk.proprio for walk in walks])),
            torch.from_numpy(np.concatenate([walk.actions for walk in walks])),
            marks.repeat_interleave(lengths),
        )

    @classmethod
    def joined(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Several collections as one."""
        names = [part.name for part in dataclasses.fields(cls)]
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})

    def split(self) -> tuple[Demonstrations, Demonstrations]:
        """What is trained on, and what is held out."""
        return self[~self.held_out], self[self.held_out]

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, index: Tensor) -> Demonstrations:
        fields = (self.depth_m, self.proprio, self.actions, self.held_out)
        return Demonstrations(*(values[index] for values in fields))

    def save(self, path: Path) -> None:
        """Write a safetensors file in one step."""
        tensors = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, safetensors_torch.save(tensors))
        except OSError as error:
            raise UserError(f"cannot write the demonstrations {path}: {error.strerror}") from None

    def sha256(self) -> str:
        """Of all numbers, in hexadecimal digits."""
        digest = hashlib.sha256()
        for part in dataclasses.fields(self):
            digest.update(getattr(self, part.name).numpy().tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, path: Path) -> Demonstrations:
        """Read what `save` wrote; UserError when it is missing or damaged."""
        try:
            check_regular(path)
            return cls(**safetensors_torch.load(path.read_bytes()))
        except (OSError, SafetensorError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot read the demonstrations {path}: {reason}") from None

    def check(self, path: Path, image: tuple[int, ...], proprio: int) -> None:
        """UserError, for the file that they are from, unless they are of such images and
        proprioception, and some but not all of them held out. Numbers that are not finite are the
        environment's: training tells of them."""
        shapes = {
            "depth_m": (image, torch.float16),
            "proprio": ((proprio,), torch.float32),
            "actions": ((ACTION_SIZE,), torch.float32),
            "held_out": ((), torch.bool),
        }
        count = self.held_out.numel()
        needed = {
            name: torch.empty((count, *shape), dtype=dtype, device="meta")
            for name, (shape, dtype) in shapes.items()
        }
        given = {name: getattr(self, name).to("meta") for name in shapes}
        check_tensors(path, "collection of demonstrations", given, needed)
        held_out = int(self.held_out.sum())
        if not 0 < held_out < count:
            raise UserError(
                f"{path} holds {count} decisions of which {held_out} are held out, where some must "
                "be, but not all"
            )


@dataclass(frozen=True)
class Task:
    """One episode to walk."""

    seed: int
    disturbance: float = 0.0
    """Standard deviation of noise on the actions."""
    disturbance_steps: float = 1.0
    """Decisions over which it is correlated."""
    learner: dict[str, NDArray[Any]] | None = None
    """State of the policy that acts; None lets the expert act."""

    def __str__(self) -> str:
        return f"the episode with seed {self.seed}"


@dataclass(frozen=True)
class Walk:
    """An episode, what was seen at each decision, and what the expert would have done."""

    episode: Episode
    depth_m: NDArray[np.float16]
    proprio: Floats
    actions: Floats


class _Labelled:
    """A walker whose every observation is kept with the expert's action in its place."""

    def __init__(self, env: gymnasium.Env, learner: Policy | None, task: Task) -> None:
        self.depth_m: list[Floats] = []
        self.proprio: list[Floats] = []
        self.labels: list[Floats] = []
        self._env, self._learner, self._task = env, learner, task
        self._rng = np.random.default_rng(task.seed)
        self._noise = 0.0

    def reset(self) -> None:
        if self._learner is not None:
            self._learner.reset()

    def act(self, observation: Any) -> NDArray[Any]:
        label = self._env.get_wrapper_attr("expert_action")()
        self.depth_m.append(observation["depth"])
        self.proprio.append(observation["proprio"])
        self.labels.append(label)
        action = label if self._learner is None else self._learner.act(observation)
        keep = 1 - 1 / self._task.disturbance_steps
        fresh = self._task.disturbance * self._rng.standard_normal(len(label))
        self._noise = keep * self._noise + np.sqrt(1 - keep**2) * fresh
        return np.clip(action + self._noise, -1, 1)


class _Walker:
    """One environment and one policy; walks one task at a time."""

    def __init__(self, env_id: str, env: dict[str, Any], policy: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self._env = make_env(env_id, env)
        settings = configuration.validate(policies.PolicyConfig, policy, "policy")
        self._policy = policies.build(settings, self._env.observation_space, self._env.action_space)

    def run(self, task: Task) -> Walk:
        """Walk a task."""
        assert task.seed < EVALUATION_SEEDS_FROM, f"seed {task.seed} is for evaluation"
        if task.learner is not None:
            state = {name: torch.from_numpy(value) for name, value in task.learner.items()}
            self._policy.load_state_dict(state)
        learner = None if task.learner is None else self._policy
        walker = _Labelled(self._env, learner, task)
        episode = run_episode(self._env, walker, task.seed)
        return Walk(
            dataclasses.replace(episode, info={}),
            np.stack(walker.depth_m).astype(np.float16),
            np.stack(walker.proprio).astype(np.float32),
            np.stack(walker.labels).astype(np.float32),
        )

    def close(self) -> None:
        self._env.close()


class Collector:
    """Walks tasks in this process, or in several others.

    Args:
        env_id, env, policy: environment and policy, as in a run's configuration.
        workers: how many processes.

    Raises:
        UserError: if the environment cannot be made; with several workers, `walk` does.
    """

    def __init__(
        self, env_id: str, env: dict[str, Any], policy: dict[str, Any], workers: int
    ) -> None:
        self._pool = open_pool(partial(_Walker, env_id, env, policy), workers)

    def walk(self, tasks: Sequence[Task]) -> list[Walk]:
        """Episodes in the order of the tasks; UserError when the policy's action is not finite."""
        with explained():
            return self._pool.run(tasks)

    def close(self) -> None:
        """Release processes and environments."""
        self._pool.close()
