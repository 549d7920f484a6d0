"""Behaviour cloning with dataset aggregation (DAgger, Ross et al. 2011, algorithm 3.1).

The first demonstrations are the expert's, later ones are the policy's own walks labelled by the
expert. `python -m training.bc` runs it for Implicit Attention Policies.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import field
from functools import partial
from pathlib import Path

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor

import envs
from policies.common.seeing import SeeingPolicy as Policy
from training.algorithms import lifecycle
from training.algorithms.bc_config import BCConfig
from training.algorithms.cloning import fit, validate
from training.algorithms.labelled_walks import (
    Demonstrations,
    Layout,
    Task,
    Walk,
    Walker,
    layout_of,
    walked,
)
from training.algorithms.lifecycle import state_of
from training.algorithms.map_fitting import announce, is_due
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.collect.crew import Pool
from training.collect.outcomes import mean_columns, mean_success, mean_values
from training.collect.seeds import derived_seeds
from training.command.command_lines import command_line
from training.io import checkpoint, run_log
from training.io import config as configuration
from training.io.config import UserError
from training.io.state_files import Count, State

__all__ = ["columns", "prepare", "train"]

DATA = "data"
_WALKS, _BATCHES = 0, 1


def columns(env_id: str) -> tuple[str, ...]:
    """Of metrics.csv."""
    return (
        "iteration", "decisions", "episodes", "loss", "val_loss", "val_accuracy", "grad_norm",
        "success", *mean_columns(envs.find_task(env_id)), "wall_s",
    )  # fmt: skip


@dataclass(config=ConfigDict(extra="forbid"))
class Progress:
    """Counters of a run; with policy, optimiser and demonstrations, all that it consists of."""

    iteration: Count = 0
    episodes: Count = 0
    fitted: bool = False
    """Whether the policy's feature maps are fitted to its queries and keys."""
    data_sha256: list[str] = field(default_factory=list)
    """Of the demonstrations of each iteration; empty in runs of earlier versions."""


@dataclass(frozen=True, config=State)
class _Saved:
    """What a run goes on from, beside tensors."""

    progress: Progress
    optimiser_tensors: Count | None = None
    """How many there are; null in checkpoints from before they were counted."""


class Job(lifecycle.Job[BCConfig]):
    """What a run begins with, and the layout of its demonstrations."""

    def prepare(self) -> None:
        """UserError where there is nothing to clone, or nothing that could."""
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
        self.layout = layout_of(self.env, self.policy.remembers)


prepare = Job


def make_tasks(config: BCConfig, iteration: int, learner: dict[str, Tensor]) -> list[Task]:
    """The walks that end an iteration: before the first the disturbed expert's, then the
    policy's."""
    if iteration == 0:
        noise = config.disturbance, config.disturbance_steps
        seeds = derived_seeds(config.seed, iteration, _WALKS, config.expert_episodes)
        return [Task(seed, *noise) for seed in seeds]
    seeds = derived_seeds(config.seed, iteration, _WALKS, config.episodes)
    state = {name: tensor.numpy(force=True) for name, tensor in learner.items()}
    return [Task(seed, learner=state) for seed in seeds]


def data_path(run: Path, iteration: int) -> Path:
    """File of the demonstrations that were collected at the end of an iteration."""
    return run / DATA / f"{iteration:06d}.safetensors"


def save(
    run: Path,
    policy: Policy,
    optimiser: torch.optim.AdamW,
    progress: Progress,
    config: BCConfig,
) -> None:
    """Write the iteration's checkpoint; drop old ones."""
    tensors, plain = optimiser_tensors(optimiser), configuration.dump(config)
    state = {"progress": dataclasses.asdict(progress), "optimiser_tensors": len(tensors)}
    checkpoint.save_in_run(run, progress.iteration, policy, tensors, plain, state)


def train(job: Job, run: Path) -> None:
    """Train in the run directory `run`."""
    config, policy = job.config, job.policy
    optimiser = torch.optim.AdamW(
        policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    progress = Progress(fitted=job.fitted)
    if job.start is not None:
        saved = state_of(job.start, _Saved)
        set_optimiser(optimiser, job.start, saved.optimiser_tensors)
        progress = saved.progress
    size = sum(parameter.numel() for parameter in policy.parameters())
    kind = getattr(config.policy, "controller", None)
    what = f"{kind} controller" if kind else config.policy.name
    print(f"{size} parameters, {what}, in {run}", flush=True)
    if progress.iteration >= config.iterations:
        return
    announce(policy, config.fit_after, progress.fitted, config.iterations * config.updates)
    with job.opened(partial(Walker, *job.settings), run, progress.iteration) as (pool, log):
        learn(job, run, optimiser, progress, pool, log)


def collected(run: Path, progress: Progress, layout: Layout) -> list[Demonstrations]:
    """All demonstrations so far; UserError when a file is not the one that was trained on."""
    found: list[Demonstrations] = []
    for i in range(progress.iteration + 1):
        path, before = data_path(run, i), progress.data_sha256[i : i + 1]
        try:
            data = Demonstrations.load(path)
            data.check(path, layout)
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
        progress.data_sha256[i : i + 1] = [data.sha256()]
        found.append(data)
    return found


def learn(
    job: Job, run: Path, optimiser: torch.optim.AdamW, progress: Progress,
    pool: Pool[Task, Walk], log: run_log.RunLog,
) -> None:  # fmt: skip
    """The training loop: fit, validate, walk, log, save."""
    config, policy = job.config, job.policy
    earlier_s = float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    if not checkpoint.in_run(run):
        walks = walked(pool, make_tasks(config, 0, {}))
        first = Demonstrations.of(walks, config.held_out, policy.remembers)
        first.save(data_path(run, 0))
        progress.data_sha256 = [first.sha256()]
        progress.episodes = len(walks)
        save(run, policy, optimiser, progress, config)
    data = [part.prepared(policy) for part in collected(run, progress, job.layout)]
    while progress.iteration < config.iterations:
        progress.iteration += 1
        iteration = progress.iteration

        train_data, held_out = Demonstrations.joined(data).split()
        if config.init_from is None:
            policy.set_statistics(train_data.observations)
        generator = torch.Generator()
        generator.manual_seed(derived_seeds(config.seed, iteration, _BATCHES, 1)[0])
        due = dataclasses.replace(config, fit_after=None) if progress.fitted else config
        fitted = fit(policy, optimiser, train_data, due, iteration, generator)
        progress.fitted |= is_due(config.fit_after, False, iteration * config.updates)
        val_loss, val_accuracy = validate(policy, held_out, config.speed_weight)

        walks = walked(pool, make_tasks(config, iteration, policy.state_dict()))
        newest = Demonstrations.of(walks, config.held_out, policy.remembers)
        newest.save(data_path(run, iteration))
        progress.data_sha256.append(newest.sha256())
        data.append(newest.prepared(policy))

        episodes = [walk.episode for walk in walks]
        progress.episodes += len(episodes)
        row = {
            "iteration": iteration,
            "decisions": len(train_data),
            "episodes": progress.episodes,
            "loss": fitted.loss,
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "grad_norm": fitted.grad_norm,
            "success": mean_success(episodes),
            **mean_values(mean_columns(envs.find_task(config.env_id)), episodes),
            "wall_s": round(earlier_s + time.perf_counter() - began, 3),
        }
        log.row(row, f"loss {row['loss']:.3g}, success {row['success']:.2f}")
        save(run, policy, optimiser, progress, config)
