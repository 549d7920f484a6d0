"""Behaviour cloning of recorded demonstrations with a Vision-Performer.

Implicit behavioural cloning (Florence et al. 2021) as in Hybrid Random Features, appendix K.2: the
policy's head gives its loss, InfoNCE against uniform negatives or, for the explicit baseline,
squared errors. `python -m training.bc` runs it where `policy.name` is vision_performer.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import policies
from policies import VisionPerformerPolicy
from training import checkpoint, evaluate, run_log
from training import config as configuration
from training.config import UserError
from training.demo_batches import Batch, FrameSet, Prefetcher, frames_of_update
from training.demo_files import DemoReader
from training.devices import Group
from training.implicit_bc_config import ImplicitBCConfig
from training.optimiser_state import optimiser_tensors, set_optimiser
from training.players import Player, check_device

__all__ = ["COLUMNS", "learning_rate", "prepare", "train"]

COLUMNS = (
    "iteration", "frames", "loss", "val_loss", "grad_norm", "learning_rate", "skipped",
    "data_share", "success", "in_bowls", "wall_s",
)  # fmt: skip
NOT_FINITE = "not_finite.jsonl"
"""File of a run directory: what was found in batches whose loss or gradient was not finite."""
VALIDATION_SEEDS_FROM = 90_000
"""First scene of the closed-loop evaluations; demonstrations must come from those before it."""
_VALIDATION = 1  # stream of random numbers, beside that of training
_MOST_SKIPPED = 0.5  # of a round's batches; beyond, nothing is learned


def prepare(config: ImplicitBCConfig) -> None:
    """UserError for a run that cannot begin: policy, environment, device or demonstrations."""
    check_device(config.device)
    _initial(config)


def _initial(config: ImplicitBCConfig) -> tuple[VisionPerformerPolicy, FrameSet, FrameSet]:
    """The initial policy, the frames to train on and those held out."""
    with checkpoint.make_env(config.env_id, config.env) as env:
        spaces = env.observation_space, env.action_space
    try:
        policy = policies.build(config.policy, *spaces)
    except ValueError as error:
        raise UserError(f"cannot build the policy for {config.env_id}: {error}") from None
    reader = DemoReader(
        config.demonstrations,
        env_id=config.env_id,
        observation_space=spaces[0],
        action_space=spaces[1],
    )
    beyond = [demo.seed for demo in reader.demos if demo.seed >= VALIDATION_SEEDS_FROM]
    if beyond:
        raise UserError(
            f"{config.demonstrations} has a demonstration of seed {beyond[0]}, but those from "
            f"{VALIDATION_SEEDS_FROM} up are kept for validation and evaluation"
        )
    chosen, held_out = reader.mask("train"), reader.mask("valid")
    if not chosen or not held_out:
        raise UserError(
            f"{config.demonstrations} has {len(chosen)} demonstrations to train on and "
            f"{len(held_out)} held out, where at least one of each is needed"
        )
    frames = FrameSet(reader, chosen[: config.demos_used])
    policy.set_statistics(frames.pose, frames.actions)
    return policy, frames, FrameSet(reader, held_out)


def learning_rate(config: ImplicitBCConfig, update: int) -> float:
    """A linear rise over `warm_up` updates, then a cosine from the peak to the final rate."""
    if update < config.warm_up:
        return config.learning_rate * (update + 1) / config.warm_up
    total = max(1, config.iterations * config.updates - config.warm_up)
    share = min(1.0, (update - config.warm_up) / total)
    span = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + span * 0.5 * (1 + math.cos(math.pi * share))


@dataclass
class Fit:
    """What a round of gradient steps came to."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    waited_s: float = 0.0
    took_s: float = 0.0


class Learner:
    """The policy, its optimiser and its data in one process of a group."""

    def __init__(
        self, config: ImplicitBCConfig, run: Path, group: Group, start: checkpoint.Checkpoint | None
    ) -> None:
        self.config, self._run, self._group = config, run, group
        self.device = group.device(config.device)
        policy, self._frames, self._held_out = _initial(config)
        self.iteration = 0
        if start is not None:
            checkpoint.load_into(policy, start)
            self.iteration = start.state["progress"]["iteration"]
        self.policy = policy.to(self.device)
        self._model = group.wrap(self.policy)
        self.optimiser = torch.optim.AdamW(
            self.policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        if start is not None:
            set_optimiser(self.optimiser, start.search)

    def fit(self) -> Fit:
        """Take a round of gradient steps; the policy is left as it is by batches that fail."""
        config, result = self.config, Fit()
        began = time.perf_counter()
        first = self.iteration * config.updates
        updates = range(first, first + config.updates)
        with closing(Prefetcher(self._frames, config.readers)) as prefetcher:
            batches = prefetcher.batches(self._indices(update) for update in updates)
            for update, batch in zip(updates, batches, strict=True):
                self._step(update, batch.to(self.device), result)
        result.waited_s, result.took_s = prefetcher.waited_s, time.perf_counter() - began
        if result.skipped > _MOST_SKIPPED * config.updates:
            raise UserError(
                f"{result.skipped} of {config.updates} batches of iteration {self.iteration + 1} "
                f"were not finite ({self._run / NOT_FINITE} says where); the last checkpoint is "
                "intact"
            )
        return result

    def _indices(self, update: int) -> np.ndarray:
        """Frames of this process's part of an update."""
        config = self.config
        chosen = frames_of_update(update, config.batch_size, len(self._frames), config.seed)
        return chosen[self._group.rank :: self._group.size]

    def _step(self, update: int, batch: Batch, result: Fit) -> None:
        config, group = self.config, self._group
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = learning_rate(config, update)
        # One stream an update and process: a resumed run draws the same negatives.
        generator = _generator(config.seed, 0, update, group.rank)
        self.optimiser.zero_grad()
        with self._autocast():
            loss = self._model(batch.rgb, batch.pose, batch.actions, generator)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm)
        mean, length = group.mean(loss.item()), norm.item()
        if not (math.isfinite(mean) and math.isfinite(length)):
            self._report(update, batch, mean, length)
            result.skipped += 1
            return
        self.optimiser.step()
        result.losses.append(mean)
        result.norms.append(length)

    def _report(self, update: int, batch: Batch, loss: float, norm: float) -> None:
        """Write down what is wrong with a batch; UserError unless it is to be skipped."""
        with self._autocast():
            found = self.policy.diagnose(batch.rgb, batch.pose)
        facts = {
            "update": update,
            "process": self._group.rank,
            "loss": str(loss),
            "grad_norm": str(norm),
            "actions_not_finite": int((~batch.actions.isfinite()).sum()),
            **found,
        }
        with (self._run / NOT_FINITE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(_plain(facts)) + "\n")
        heads = found["attention"]
        summary = (
            f"update {update} has loss {loss} and gradient norm {norm}, where finite numbers are "
            f"needed; the {self.config.policy.feature_map} attention has "
            f"{sum(h['non_finite'] for h in heads)} numbers that are not finite and its smallest "
            f"denominator is {min(h['smallest_denominator'] for h in heads):.2g} of the sum of "
            f"absolute estimates; {len(found['parameters'])} parameters are not finite; details "
            f"in {self._run / NOT_FINITE}"
        )
        if self.config.not_finite == "stop":
            raise UserError(f"{summary}; the last checkpoint is intact")
        print(f"skipped: {summary}", flush=True)

    @torch.no_grad()
    def validate(self) -> float:
        """Mean loss on frames spread evenly over the held-out demonstrations."""
        config, total, count = self.config, 0.0, 0
        number = min(config.val_frames, len(self._held_out))
        chosen = np.linspace(0, len(self._held_out) - 1, number).round().astype(np.int64)
        for part in np.array_split(chosen, math.ceil(number / config.batch_size)):
            batch = self._held_out.read(part).to(self.device)
            generator = _generator(config.seed, _VALIDATION, count, 0)
            with self._autocast():
                loss = self.policy(batch.rgb, batch.pose, batch.actions, generator)
            total, count = total + float(loss) * len(part), count + len(part)
        return total / count

    def save(self) -> None:
        """Write the iteration's checkpoint; drop old ones."""
        state = {"progress": {"iteration": self.iteration}}
        tensors, plain = optimiser_tensors(self.optimiser), configuration.dump(self.config)
        checkpoint.save_in_run(self._run, self.iteration, self.policy, tensors, plain, state)

    def evaluate(self) -> tuple[float, float]:
        """Success rate and mean fraction in bowls of the latest checkpoint, in closed loop."""
        config = self.config
        path = checkpoint.in_run(self._run)[-1]
        env = configuration.dump(config)["env"]
        player = Player(self._run.name, config.env_id, env, path)
        seeds = range(VALIDATION_SEEDS_FROM, VALIDATION_SEEDS_FROM + config.episodes)
        (entry,) = evaluate.evaluate([player], seeds, config.workers)
        return entry["success_rate"], entry.get("in_bowls_mean", math.nan)

    def _autocast(self) -> torch.autocast:
        mixed = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=mixed)


def _generator(*numbers: int) -> torch.Generator:
    """A generator of its own for these numbers."""
    word = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(word >> 1)


def _plain(value: Any) -> Any:
    """JSON has no NaN: numbers that are not finite become text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def train(
    config: ImplicitBCConfig, run: Path, start: checkpoint.Checkpoint | None, group: Group
) -> None:
    """Train in the run directory `run`, from the beginning or from the checkpoint `start`."""
    torch.set_num_threads(config.threads)
    if config.batch_size % group.size:
        raise UserError(
            f"batch_size must be a multiple of the {group.size} processes, got {config.batch_size}"
        )
    learner = Learner(config, run, group, start)
    if learner.iteration >= config.iterations:
        return
    if not group.is_first:
        while learner.iteration < config.iterations:
            learner.fit()
            learner.iteration += 1
            group.share(None)  # the first process validates, saves and evaluates before
        return
    size = sum(parameter.numel() for parameter in learner.policy.parameters())
    print(f"{size} parameters, {config.policy.head} head, in {run}", flush=True)
    if not checkpoint.in_run(run):
        learner.save()
    with closing(
        run_log.RunLog(run, COLUMNS, iteration=learner.iteration, total=config.iterations)
    ) as log:
        learn(learner, log, group)


def learn(learner: Learner, log: run_log.RunLog, group: Group) -> None:
    """The training loop: fit, validate, save, evaluate, log."""
    config = learner.config
    earlier_s = float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    while learner.iteration < config.iterations:
        fitted = learner.fit()
        learner.iteration += 1
        iteration = learner.iteration
        val_loss = learner.validate()
        learner.save()
        success, in_bowls = math.nan, math.nan
        every = config.evaluate_every
        if every and (iteration % every == 0 or iteration == config.iterations):
            success, in_bowls = learner.evaluate()
        group.share(None)
        row = {
            "iteration": iteration,
            "frames": iteration * config.updates * config.batch_size,
            "loss": float(np.mean(fitted.losses)),
            "val_loss": val_loss,
            "grad_norm": float(np.mean(fitted.norms)),
            "learning_rate": learning_rate(config, iteration * config.updates - 1),
            "skipped": fitted.skipped,
            "data_share": fitted.waited_s / fitted.took_s,
            "success": success,
            "in_bowls": in_bowls,
            "wall_s": round(earlier_s + time.perf_counter() - began, 3),
        }
        log.row(row, f"loss {row['loss']:.3g}, held out {val_loss:.3g}")
