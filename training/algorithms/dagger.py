"""Behaviour cloning with dataset aggregation (DAgger, Ross et al. 2011, algorithm 3.1).

The first demonstrations are the expert's, later ones are rollouts of the policy, labelled by the
expert. `python -m training.bc` runs it for policies that act without sampling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor

import envs
from training.algorithms.bc_config import BCConfig
from training.algorithms.cloning import fit, validate
from training.algorithms.feature_maps import is_due
from training.algorithms.labelled_rollouts import (
    Demonstrations,
    LabelledRollout,
    LabellingWorker,
    Task,
    layout_of,
)
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.collect.outcomes import mean_columns, mean_success, mean_values
from training.command.errors import command_line
from training.io import checkpoint
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.state_files import Count, State
from training.runner import Algorithm, Collect, Progress, Saved

DATA = "data"
_ROLLOUTS, _BATCHES = 0, 1


@dataclass(config=ConfigDict(extra="forbid"))
class BCProgress(Progress):
    """Counters of a run; with policy, optimiser and demonstrations they are its complete state."""

    episodes: Count = 0
    data_sha256: list[str] = field(default_factory=list)
    """Of the demonstrations of each iteration; empty in runs of earlier versions."""


@dataclass(frozen=True, config=State)
class BCSaved(Saved):
    """The plain data of a checkpoint."""

    progress: BCProgress
    optimiser_tensors: Count | None = None
    """How many there are; null in checkpoints from before they were counted."""


def data_path(run: Path, iteration: int) -> Path:
    """File of the demonstrations that were collected at the end of an iteration."""
    return run / DATA / f"{iteration:06d}.safetensors"


class DAgger(Algorithm[BCConfig]):
    """Trains the policy on all demonstrations so far, then collects more with it."""

    Progress, Saved = BCProgress, BCSaved
    progress: BCProgress

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        """Of metrics.csv."""
        return (
            "iteration", "decisions", "episodes", "loss", "val_loss", "val_accuracy", "grad_norm",
            "success", *mean_columns(envs.find_task(env_id)), "wall_s",
        )  # fmt: skip

    def prepare(self) -> None:
        """Set up the optimiser; raises UserError without an expert or a policy that can clone."""
        config = self.config
        if not self.env.has_wrapper_attr("expert_action"):
            raise UserError(
                f"env_id = {config.env_id!r} has no expert_action() that could be cloned"
            )
        if not callable(getattr(self.policy, "loss", None)):
            raise UserError(
                f"policy.name = {config.policy.name!r} has no loss(observations, actions, "
                "generator), which training.bc needs; training.es does without"
            )
        self._layout = layout_of(self.env, self.policy.remembers)
        self.optimiser = torch.optim.AdamW(
            self.policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def restore(self, start: Checkpoint, saved: BCSaved) -> None:
        """Set the optimiser."""
        set_optimiser(self.optimiser, start, saved.optimiser_tensors)

    def describe(self) -> str:
        """The number of parameters and the kind of policy."""
        kind = getattr(self.config.policy, "controller", None)
        what = f"{kind} controller" if kind else self.config.policy.name
        return f"{super().describe()}, {what}"

    def make_worker(self) -> Any:
        """A worker that runs labelled episodes."""
        return partial(LabellingWorker, *self.settings)

    def setup(self, run: Path) -> None:
        """Read the demonstrations collected by the run."""
        self._run = run
        self._data = [] if self.start is None else self._collected()

    def first(self, collect: Collect) -> None:
        """The demonstrations of the expert with noise."""
        self._keep(collect(self.tasks([])))
        self._data = self._collected()

    def _keep(self, rollouts: Sequence[LabelledRollout]) -> Demonstrations:
        """Write an iteration's demonstrations."""
        newest = Demonstrations.of(rollouts, self.config.held_out, self.policy.remembers)
        newest.save(data_path(self._run, self.progress.iteration))
        self.progress.data_sha256.append(newest.sha256())
        self.progress.episodes += len(rollouts)
        return newest

    def _collected(self) -> list[Demonstrations]:
        """All demonstrations so far; raises UserError if a file is not the one trained on."""
        run, known = self._run, self.progress.data_sha256
        found: list[Demonstrations] = []
        for i in range(self.progress.iteration + 1):
            path, before = data_path(run, i), known[i : i + 1]
            try:
                data = Demonstrations.load(path)
                data.check(path, self._layout)
                if before not in ([], [data.sha256()]):
                    raise UserError(f"{path} is not the file that {run} has trained on")
            except UserError as error:
                earlier = [p for p in checkpoint.in_run(run) if checkpoint.iteration_of(p) < i]
                if not earlier:
                    raise
                raise UserError(
                    f"{error}; the newest checkpoint that does without it is {earlier[-1]}: "
                    f"{command_line('training.bc', '--resume', earlier[-1])}"
                ) from None
            known[i : i + 1] = [data.sha256()]
            found.append(data.prepared(self.policy))
        return found

    def learn(self) -> None:
        """A round of gradient steps on all collected demonstrations."""
        config, policy, progress = self.config, self.policy, self.progress
        train_data, held_out = Demonstrations.joined(self._data).split()
        if config.init_from is None:
            policy.set_statistics(train_data.observations)
        generator = torch.Generator().manual_seed(self.seeds(_BATCHES, 1)[0])
        due = dataclasses.replace(config, fit_after=None) if progress.fitted else config
        fitted = fit(policy, self.optimiser, train_data, due, progress.iteration, generator)
        updates = progress.iteration * config.updates
        progress.fitted |= is_due(config.fit_after, False, updates)
        val_loss, val_accuracy = validate(policy, held_out, config.speed_weight)
        self._learned = {
            "loss": fitted.loss,
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "grad_norm": fitted.grad_norm,
        }
        self._decisions = len(train_data)

    def tasks(self, outcomes: Sequence[LabelledRollout]) -> list[Task]:
        """Episodes of the policy or, before the first iteration, of the expert with noise."""
        config = self.config
        if outcomes:
            return []
        if self.progress.iteration == 0:
            noise = config.disturbance, config.disturbance_steps
            return [Task(seed, *noise) for seed in self.seeds(_ROLLOUTS, config.expert_episodes)]
        state = self.policy_arrays()
        return [Task(seed, learner=state) for seed in self.seeds(_ROLLOUTS, config.episodes)]

    def update(self, outcomes: list[LabelledRollout]) -> dict[str, float]:
        """Aggregate the labelled rollouts; returns the row."""
        self._data.append(self._keep(outcomes).prepared(self.policy))
        episodes = [rollout.episode for rollout in outcomes]
        return {
            "decisions": self._decisions,
            "episodes": self.progress.episodes,
            **self._learned,
            "success": mean_success(episodes),
            **mean_values(mean_columns(envs.find_task(self.config.env_id)), episodes),
        }

    def summary(self, row: dict[str, float], seconds: float) -> str:
        """Loss and success."""
        return f"loss {row['loss']:.3g}, success {row['success']:.2f}"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimiser's."""
        tensors = optimiser_tensors(self.optimiser)
        return tensors, {"optimiser_tensors": len(tensors)}
