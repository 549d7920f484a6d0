"""What implicit cloning trains in one process: policy, optimiser and demonstrations."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from torch import nn

import envs
from policies import VisionPerformerPolicy
from policies.common.feature_maps import map_state
from training.algorithms import lifecycle
from training.algorithms.devices import Group
from training.algorithms.exploration import Explorer, Rollout, Task
from training.algorithms.implicit_bc_config import ImplicitBCConfig
from training.algorithms.lifecycle import state_of
from training.algorithms.map_fitting import OBSERVATIONS, is_due, sound
from training.algorithms.optimiser_state import optimiser_tensors, set_optimiser
from training.algorithms.workers import explained
from training.collect import environments
from training.collect.crew import Pool
from training.collect.outcomes import mean_of, mean_success, outcomes_of
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.command.errors import NotFiniteError
from training.demonstrations.batches import Batch, FrameSet, Prefetcher, frames_of_update
from training.demonstrations.reader import DemoReader
from training.io import checkpoint
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, sha256_of
from training.io.state_files import Count, State

__all__ = ["NOT_FINITE", "Fit", "Job", "Learner", "learning_rate"]

NOT_FINITE = "not_finite.jsonl"
"""File of a run directory: what was found in batches whose loss or gradient was not finite."""
_TRAINING, _VALIDATION = 0, 1  # streams of random numbers
_MOST_SKIPPED = 0.5  # of a round's batches; beyond, nothing is learned


class Job(lifecycle.Job[ImplicitBCConfig]):
    """What a run begins with, and what its policy may learn from."""

    policy: VisionPerformerPolicy
    """With the statistics of the frames to train on."""
    train: FrameSet
    held_out: FrameSet
    identity: str
    """SHA-256 over all of the demonstrations used but their frames: a run may only go on with the
    same ones."""

    def prepare(self) -> None:
        """UserError when the demonstrations are not fit for the run."""
        config = self.config
        reader = DemoReader(
            config.demonstrations,
            env_id=config.env_id,
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
        )
        _check_recording(config, reader)
        chosen, held_out = reader.mask("train")[: config.demos_used], reader.mask("valid")
        if not chosen or not held_out:
            raise UserError(
                f"{config.demonstrations} has {len(chosen)} demonstrations to train on and "
                f"{len(held_out)} held out, where at least one of each is needed"
            )
        self.train, self.held_out = FrameSet(reader, chosen), FrameSet(reader, held_out)
        self.identity = _identity(reader, chosen, held_out)
        if self.start is None and config.init_from is None:
            self.policy.set_statistics(self.train.pose, self.train.actions)


def _identity(reader: DemoReader, chosen: list[int], held_out: list[int]) -> str:
    """SHA-256 over all of these demonstrations but their frames, which are not in memory."""
    used = [reader.demos[i] for i in (*chosen, *held_out)]
    lengths = [(demo.seed, len(demo)) for demo in used]
    facts = json.dumps([reader.recording.to_json(), len(chosen), lengths])
    arrays = (a for demo in used for a in (demo.actions, demo.rewards, *demo.arrays.values()))
    return sha256_of(chain([facts.encode()], (values.tobytes() for values in arrays)))


def _check_recording(config: ImplicitBCConfig, reader: DemoReader) -> None:
    """UserError when the robot or the seeds of the demonstrations are others than the run's."""
    there, here = (
        environments.embodiment(config.env_id, environments.resolved(config.env_id, settings))
        for settings in (reader.recording.env, config.env)
    )
    for change in differences(there, here):
        told = change.told(f"the run has env.{change.key} =")
        raise UserError(f"{config.demonstrations} was recorded with {told}; give the same value")
    late = [demo.seed for demo in reader.demos if demo.seed >= VALIDATION_SEEDS_FROM]
    if late:
        raise UserError(
            f"{config.demonstrations} has a demonstration of seed {late[0]}, but those from "
            f"{VALIDATION_SEEDS_FROM} up are kept for validation and evaluation"
        )


def learning_rate(config: ImplicitBCConfig, update: int) -> float:
    """A linear rise over `warm_up` updates, then a cosine from the peak to the final rate."""
    if update < config.warm_up:
        return config.learning_rate * (update + 1) / config.warm_up
    total = max(1, config.iterations * config.updates - config.warm_up)
    share = min(1.0, (update - config.warm_up) / total)
    span = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + span * 0.5 * (1 + math.cos(math.pi * share))


@checked_dataclass(frozen=True, config=State)
class Basis:
    """What a run may not change."""

    demonstrations: str
    """Their identity, see `Data`."""
    processes: Count
    """How many train."""


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Progress:
    """Counters of a run."""

    iteration: Count
    fitted: bool = False
    """Whether the policy's feature maps are fitted to its queries and keys."""


@checked_dataclass(frozen=True, config=State)
class _Saved:
    """What a run goes on from, beside tensors."""

    progress: Progress
    basis: Basis
    optimiser_tensors: Count | None = None
    """How many there are; null in checkpoints from before they were counted."""


@dataclass
class Fit:
    """What a round of gradient steps came to."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    waited_s: float = 0.0
    took_s: float = 0.0


class Learner:
    """What trains in one process of a group.

    UserError when the run cannot go on from `start` with these data and processes.
    """

    def __init__(self, job: Job, run: Path, group: Group) -> None:
        config, start = job.config, job.start
        self.config, self._job, self._run, self._group = config, job, run, group
        self._frames, self._held_out, policy = job.train, job.held_out, job.policy
        if len(self._frames) < group.size:
            raise UserError(
                f"{config.demonstrations} has {len(self._frames)} frames to train on, fewer than "
                f"the {group.size} processes"
            )
        self.frames_per_update = min(config.batch_size, len(self._frames))
        self._basis = Basis(job.identity, group.size)
        self._pool: Pool[Task, Rollout] | None = None
        self.iteration, self.fitted = 0, job.fitted
        if start is not None:
            saved = state_of(start, _Saved)
            self._check_basis(start.path, saved.basis)
            self.iteration, self.fitted = saved.progress.iteration, saved.progress.fitted
        self.device = group.device(config.device)
        self.policy = policy.to(self.device)
        self._model = group.wrap(self.policy)
        self.optimiser = torch.optim.AdamW(
            self.policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        if start is not None:
            set_optimiser(self.optimiser, start, saved.optimiser_tensors)
        pinned = self.device.type == "cuda"
        self._prefetcher = Prefetcher(self._frames, config.readers, pinned=pinned)
        first, last = (n * config.updates for n in (self.iteration, config.iterations))
        self._batches: Iterator[Batch] = self._prefetcher.batches(
            self._indices(update) for update in range(first, last)
        )

    def _check_basis(self, path: Path, before: Basis) -> None:
        for key, was, now in differences(*map(dataclasses.asdict, (before, self._basis))):
            if key == "processes":
                raise UserError(
                    f"{path} was trained by {was} processes, and a resumed run needs as many, got "
                    f"{now}"
                )
            raise UserError(
                f"{self.config.demonstrations} holds other demonstrations now than those that "
                f"{path} was trained on, and a resumed run needs the same"
            )

    def fit(self) -> Fit:
        """Take a round of gradient steps; the policy is left as it is by batches that fail."""
        config, result = self.config, Fit()
        began = time.perf_counter()
        first = self.iteration * config.updates
        for update in range(first, first + config.updates):
            waits = time.perf_counter()
            batch = next(self._batches).to(self.device)
            result.waited_s += time.perf_counter() - waits
            learned = self._step(update, batch, result)
            if learned and is_due(config.fit_after, self.fitted, update + 1):
                self._fit_maps(batch)
        result.took_s = time.perf_counter() - began
        if result.skipped > _MOST_SKIPPED * config.updates:
            raise NotFiniteError(
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

    def _fit_maps(self, batch: Batch) -> None:
        """Fit the feature maps to the first process's part of a batch, in every process."""
        found: dict[str, torch.Tensor] | UserError = {}
        if self._group.is_first:
            try:
                with sound():
                    self.policy.fit_attention(batch.rgb[:OBSERVATIONS], batch.pose[:OBSERVATIONS])
                found = {name: values.cpu() for name, values in map_state(self.policy).items()}
            except UserError as error:
                found = error
        found = self._group.share(found)
        if isinstance(found, UserError):
            raise found
        self.policy.load_state_dict(found, strict=False)
        self.fitted = True

    def _step(self, update: int, batch: Batch, result: Fit) -> bool:
        """Take a gradient step; False where the batch is skipped."""
        config, group = self.config, self._group
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = learning_rate(config, update)
        # One stream an update and process: a resumed run draws the same negatives.
        generator = _generator(config.seed, _TRAINING, update, group.rank)
        self.optimiser.zero_grad()
        with self._autocast():
            loss = self._model(batch.rgb, batch.pose, batch.actions, generator)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm)
        mean, length = group.mean(loss.item()), norm.item()
        if not (math.isfinite(mean) and math.isfinite(length)):
            self._report(update, batch, mean, length)
            result.skipped += 1
            return False
        self.optimiser.step()
        result.losses.append(mean)
        result.norms.append(length)
        return True

    def _report(self, update: int, batch: Batch, loss: float, norm: float) -> None:
        """Write down what is wrong with a batch; NotFiniteError unless it is to be skipped."""
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
        attention = _soundness(self.config.policy.feature_map, heads)
        summary = (
            f"update {update} has loss {loss} and gradient norm {norm}, where finite numbers are "
            f"needed; {attention}; {len(found['parameters'])} parameters are not finite; details "
            f"in {self._run / NOT_FINITE}"
        )
        if self.config.not_finite == "stop":
            raise NotFiniteError(f"{summary}; the last checkpoint is intact")
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
        tensors, plain = optimiser_tensors(self.optimiser), configuration.dump(self.config)
        state = {
            "progress": dataclasses.asdict(Progress(self.iteration, self.fitted)),
            "basis": dataclasses.asdict(self._basis),
            "optimiser_tensors": len(tensors),
        }
        checkpoint.save_in_run(self._run, self.iteration, self.policy, tensors, plain, state)

    def evaluate(self) -> dict[str, float]:
        """Success rate and mean outcomes of the present policy, in closed loop, by name."""
        config, threads = self.config, torch.get_num_threads()
        torch.set_num_threads(1)
        if self._pool is None:
            most = min(config.workers, config.episodes)
            make = partial(Explorer, 1.0, *self._job.settings)
            self._pool = self._job.open_pool(make, most)
        state = {name: part.numpy(force=True) for name, part in self.policy.state_dict().items()}
        seeds = range(VALIDATION_SEEDS_FROM, VALIDATION_SEEDS_FROM + config.episodes)
        with explained():
            played = self._pool.run([Task(seed, state, None) for seed in seeds])
        episodes = [rollout.episode for rollout in played]
        torch.set_num_threads(threads)
        names = [outcome.name for outcome in outcomes_of(envs.find_task(config.env_id))]
        return {"success": mean_success(episodes), **{n: mean_of(episodes, n) for n in names}}

    def close(self) -> None:
        """End the reading threads and the evaluation's workers."""
        self._prefetcher.close()
        if self._pool is not None:
            self._pool.close()

    def _autocast(self) -> torch.autocast:
        mixed = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=mixed)


def _soundness(feature_map: str, heads: list[dict[str, Any]]) -> str:
    """What a sentence says of the diagnoses of a policy's heads."""
    if not heads:
        return "the policy has no attention"
    return (
        f"the {feature_map} attention has {sum(head['non_finite'] for head in heads)} numbers that "
        "are not finite and its smallest denominator is "
        f"{min(head['smallest_denominator'] for head in heads):.2g} of the sum of absolute "
        "estimates"
    )


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
