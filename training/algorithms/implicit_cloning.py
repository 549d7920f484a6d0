"""Behaviour cloning of recorded demonstrations with a Vision-Performer.

Implicit behavioural cloning (Florence et al. 2021) as in Hybrid Random Features, appendix K.2: the
policy's head gives its loss, InfoNCE against uniform negatives or, for the explicit baseline,
squared errors. `python -m training.bc` runs it where `policy.name` is vision_performer.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

import envs
from training.algorithms.devices import Group, current_group
from training.algorithms.implicit_bc_config import ImplicitBCConfig
from training.algorithms.implicit_learner import Job, Learner, learning_rate
from training.algorithms.map_fitting import announce
from training.collect.outcomes import outcomes_of
from training.io import checkpoint, run_log

__all__ = ["columns", "identity", "prepare", "train"]


def columns(env_id: str) -> tuple[str, ...]:
    """Of metrics.csv; outcomes are those of the evaluation in training."""
    return (
        "iteration", "frames", "loss", "val_loss", "grad_norm", "learning_rate", "skipped",
        "data_share", "success", *_outcomes(env_id), "wall_s",
    )  # fmt: skip


def _outcomes(env_id: str) -> tuple[str, ...]:
    return tuple(outcome.name for outcome in outcomes_of(envs.find_task(env_id)))


prepare = Job


def identity(config: ImplicitBCConfig) -> str:
    """What tells the demonstrations that a run would clone from others."""
    with closing(Job(config)) as job:
        return job.identity


def train(job: Job, run: Path) -> None:
    """Train in the run directory `run`."""
    config, group = job.config, current_group()
    torch.set_num_threads(config.threads)
    with closing(Learner(job, run, group)) as learner:
        if learner.iteration >= config.iterations:
            return
        if not group.is_first:
            while learner.iteration < config.iterations:
                learner.fit()
                learner.iteration += 1
                group.share(None)  # the first process validates, evaluates and saves before
            return
        size = sum(parameter.numel() for parameter in learner.policy.parameters())
        print(f"{size} parameters, {config.policy.head} head, in {run}", flush=True)
        updates = config.iterations * config.updates
        announce(learner.policy, config.fit_after, learner.fitted, updates)
        if not checkpoint.in_run(run):
            learner.save()
        with closing(job.open_log(run, learner.iteration)) as log:
            learn(learner, log, group)


def learn(learner: Learner, log: run_log.RunLog, group: Group) -> None:
    """The training loop: fit, validate, evaluate, log, save."""
    config = learner.config
    earlier_s = float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    while learner.iteration < config.iterations:
        fitted = learner.fit()
        learner.iteration += 1
        iteration = learner.iteration
        val_loss = learner.validate()
        found = dict.fromkeys(("success", *_outcomes(config.env_id)), math.nan)
        every = config.evaluate_every
        if every and (iteration % every == 0 or iteration == config.iterations):
            found |= learner.evaluate()
        row = {
            "iteration": iteration,
            "frames": iteration * config.updates * learner.frames_per_update,
            "loss": float(np.mean(fitted.losses)),
            "val_loss": val_loss,
            "grad_norm": float(np.mean(fitted.norms)),
            "learning_rate": learning_rate(config, iteration * config.updates - 1),
            "skipped": fitted.skipped,
            "data_share": fitted.waited_s / fitted.took_s,
            **found,
            "wall_s": round(earlier_s + time.perf_counter() - began, 3),
        }
        log.row(row, f"loss {row['loss']:.3g}, held out {val_loss:.3g}")
        learner.save()
        group.share(None)
