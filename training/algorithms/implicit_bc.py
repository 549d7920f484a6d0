"""Behaviour cloning of recorded demonstrations with a Vision-Performer.

Implicit behavioural cloning (Florence et al. 2021) as in Hybrid Random Features, appendix K.2: the
policy's head gives its loss, InfoNCE against uniform negatives or, for the explicit baseline,
squared errors. `python -m training.bc` runs it where `policy.name` is vision_performer.
"""

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import envs
from policies import VisionPerformerPolicy
from policies.common.feature_maps import map_state
from training.algorithms.devices import current_group
from training.algorithms.exploration import Explorer, Rollout, Task
from training.algorithms.feature_maps import OBSERVATIONS, is_due, sound
from training.algorithms.implicit_bc_config import ImplicitBCConfig, load_config
from training.collect import environments
from training.collect.outcomes import mean_of, mean_success, outcomes_of
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.command.errors import NotFiniteError, command_line, preset
from training.demonstrations.batches import Batch, FrameSet, Prefetcher, frames_of_update
from training.demonstrations.dataset import Dataset, open_source
from training.demonstrations.reader import DemoReader
from training.io.checkpoint import Checkpoint
from training.io.config import UserError
from training.io.overrides import assignment
from training.io.state_files import Count, State
from training.runner import Algorithm, Saved, build_policy

NOT_FINITE = "not_finite.jsonl"
"""File of a run directory: reports of batches whose loss or gradient was not finite."""
_TRAINING, _VALIDATION = 0, 1  # streams of random numbers
_MOST_SKIPPED = 0.5  # of a round's batches; beyond, nothing is learned


def learning_rate(config: ImplicitBCConfig, update: int) -> float:
    """A linear rise over `warm_up` updates, then a cosine from the peak to the final rate."""
    if update < config.warm_up:
        return config.learning_rate * (update + 1) / config.warm_up
    total = max(1, config.iterations * config.updates - config.warm_up)
    share = min(1.0, (update - config.warm_up) / total)
    span = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + span * 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True, config=State)
class Basis:
    """The inputs that a resumed run must not change."""

    demonstrations: str
    """Their identity, see `ImplicitCloning.identity`."""
    processes: Count
    """How many train."""


@dataclass(frozen=True, config=State)
class ImplicitSaved(Saved):
    """The plain data of a checkpoint."""

    basis: Basis


class ImplicitCloning(Algorithm[ImplicitBCConfig]):
    """Trains a Vision-Performer on recorded demonstrations, in one process or a group of them."""

    Saved = ImplicitSaved
    opens_pool = False  # closed-loop evaluations are rare
    policy: VisionPerformerPolicy
    """Policy with the statistics of the training frames."""

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        """The columns of metrics.csv; outcomes are those of the evaluation during training."""
        return (
            "iteration", "frames", "loss", "val_loss", "grad_norm", "learning_rate", "skipped",
            "data_share", "success", *_outcomes(env_id), "wall_s",
        )  # fmt: skip

    @classmethod
    def identity(cls, config: ImplicitBCConfig) -> str:
        """SHA-256 over the demonstrations that a run would clone, except their frames."""
        with closing(cls(config)) as job:
            return job.basis.demonstrations

    def prepare(self) -> None:
        """Load the demonstrations; raises UserError if they do not suit the run."""
        config, self._group = self.config, current_group()
        dataset = Dataset(
            open_source(config.demonstrations), self.env, config.env_id, config.env,
            config.demonstrations_keys, config.demonstrations_rate_hz, most=config.demos_used,
        )  # fmt: skip
        chosen, held_out = dataset.train, dataset.valid
        self._described = dataset.describe()
        self.frames, self.held_out = FrameSet(dataset, chosen), FrameSet(dataset, held_out)
        if len(self.frames) < self._group.size:
            raise UserError(
                f"{config.demonstrations} has {len(self.frames)} frames to train on, fewer than "
                f"the {self._group.size} processes"
            )
        self.basis = Basis(dataset.source.identity(chosen, held_out), self._group.size)
        if self.start is None and config.init_from is None:
            self.policy.set_statistics(self.frames.pose, self.frames.actions)
        self.device = self._group.device(config.device)
        self.policy.to(self.device)
        self.optimiser = self.saved_optimiser = torch.optim.AdamW(
            self.policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def restore(self, start: Checkpoint, saved: ImplicitSaved) -> None:
        """Raises UserError for other demonstrations or another number of processes."""
        was, now = saved.basis, self.basis
        if was.demonstrations != now.demonstrations:
            raise UserError(
                f"{self.config.demonstrations} holds other demonstrations now than those that "
                f"{start.path} was trained on, and a resumed run needs the same"
            )
        if was.processes != now.processes:
            raise UserError(
                f"{start.path} was trained by {was.processes} processes, and a resumed run needs "
                f"as many, got {now.processes}"
            )

    def describe(self) -> str:
        return f"{super().describe()}, {self.config.policy.head} head"

    def choices(self) -> Sequence[str]:
        return (self._described, *super().choices())

    @property
    def workers(self) -> int:
        """The seeds of the closed-loop evaluation."""
        return min(self.config.workers, self.config.episodes)

    def make_worker(self) -> Any:
        """A worker that runs episodes without exploration."""
        return partial(Explorer, 1.0, *self.settings)

    def setup(self, run: Path) -> None:
        """Start to read ahead the batches of the remaining iterations."""
        config, self._run = self.config, run
        # Gradients are averaged over the process group; this synchronises the processes.
        self._model = self._group.wrap(self.policy)
        pinned = self.device.type == "cuda"
        self._prefetcher = Prefetcher(self.frames, config.readers, pinned=pinned)
        updates = range(
            self.progress.iteration * config.updates, config.iterations * config.updates
        )
        self._batches = self._prefetcher.batches(self._indices(update) for update in updates)

    def learn(self) -> None:
        """Take a round of gradient steps; failing batches leave the policy unchanged."""
        config, iteration = self.config, self.progress.iteration
        steps, waited_s = [], 0.0
        began = time.perf_counter()
        first = (iteration - 1) * config.updates
        for update in range(first, first + config.updates):
            waits = time.perf_counter()
            batch = next(self._batches).to(self.device)
            waited_s += time.perf_counter() - waits
            step = self._step(update, batch)
            if step is None:
                continue
            steps.append(step)
            if is_due(config.fit_after, self.progress.fitted, update + 1):
                self._fit_maps(batch)
        took_s = time.perf_counter() - began
        skipped = config.updates - len(steps)
        if skipped > _MOST_SKIPPED * config.updates:
            raise NotFiniteError(
                f"{skipped} of {config.updates} batches of iteration {iteration} were not "
                f"finite ({self._run / NOT_FINITE} says where); the last checkpoint is intact"
            )
        loss, norm = (float(np.mean(each)) for each in zip(*steps, strict=True))
        self._learned = {"loss": loss, "grad_norm": norm, "skipped": skipped}
        self._learned["data_share"] = waited_s / took_s

    def _indices(self, update: int) -> np.ndarray:
        """Frames of this process's part of an update."""
        config = self.config
        chosen = frames_of_update(update, config.batch_size, len(self.frames), config.seed)
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
        self.progress.fitted = True

    def _step(self, update: int, batch: Batch) -> tuple[float, float] | None:
        """Take a gradient step; returns loss and length of the gradient, None where the batch is
        skipped."""
        config, group = self.config, self._group
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = learning_rate(config, update)
        # One stream per update and process: a resumed run draws the same negatives.
        generator = _generator(config.seed, _TRAINING, update, group.rank)
        self.optimiser.zero_grad()
        with self._autocast():
            loss = self._model(batch.rgb, batch.pose, batch.actions, generator)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm)
        mean, length = group.mean(loss.item()), norm.item()
        if not (math.isfinite(mean) and math.isfinite(length)):
            self._report(update, batch, mean, length)
            return None
        self.optimiser.step()
        return mean, length

    def _report(self, update: int, batch: Batch, loss: float, norm: float) -> None:
        """Report the error of a batch; raises NotFiniteError unless it is to be skipped."""
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
        attention, heads = "the policy has no attention", found["attention"]
        if heads:
            attention = (
                f"the {self.config.policy.feature_map} attention has "
                f"{sum(head['non_finite'] for head in heads)} numbers that are not finite and its "
                f"smallest denominator is {min(head['smallest_denominator'] for head in heads):.2g}"
                " of the sum of absolute estimates"
            )
        summary = (
            f"update {update} has loss {loss} and gradient norm {norm}, where finite numbers are "
            f"needed; {attention}; {len(found['parameters'])} parameters are not finite; details "
            f"in {self._run / NOT_FINITE}"
        )
        if self.config.not_finite == "stop":
            raise NotFiniteError(f"{summary}; the last checkpoint is intact")
        print(f"skipped: {summary}", flush=True)

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss on frames spread evenly over the held-out demonstrations."""
        config, total, count = self.config, 0.0, 0
        number = min(config.val_frames, len(self.held_out))
        chosen = np.linspace(0, len(self.held_out) - 1, number).round().astype(np.int64)
        for part in np.array_split(chosen, math.ceil(number / config.batch_size)):
            batch = self.held_out.read(part).to(self.device)
            generator = _generator(config.seed, _VALIDATION, count, 0)
            with self._autocast():
                loss = self.policy(batch.rgb, batch.pose, batch.actions, generator)
            total, count = total + float(loss) * len(part), count + len(part)
        return total / count

    def tasks(self, outcomes: Sequence[Rollout]) -> list[Task]:
        """The episodes of a closed-loop evaluation, when one is due."""
        config, iteration = self.config, self.progress.iteration
        every = 0 if self.env.metadata.get("spaces_only") else config.evaluate_every
        due = every and (iteration % every == 0 or iteration == config.iterations)
        if outcomes or not due:
            return []
        state = self.policy_arrays()
        seeds = range(VALIDATION_SEEDS_FROM, VALIDATION_SEEDS_FROM + config.episodes)
        return [Task(seed, state, None) for seed in seeds]

    def update(self, outcomes: list[Rollout]) -> dict[str, float]:
        """Validate; returns the row."""
        config, iteration, learned = self.config, self.progress.iteration, self._learned
        found = dict.fromkeys(("success", *_outcomes(config.env_id)), math.nan)
        if outcomes:
            episodes = [rollout.episode for rollout in outcomes]
            found = {name: mean_of(episodes, name) for name in found}
            found["success"] = mean_success(episodes)
        return {
            "frames": iteration * config.updates * min(config.batch_size, len(self.frames)),
            "loss": learned["loss"],
            "val_loss": self._validate(),
            "grad_norm": learned["grad_norm"],
            "learning_rate": learning_rate(config, iteration * config.updates - 1),
            "skipped": learned["skipped"],
            "data_share": learned["data_share"],
            **found,
        }

    def summary(self, row: dict[str, float], seconds: float) -> str:
        return f"loss {row['loss']:.3g}, held out {row['val_loss']:.3g}"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The inputs that must not change."""
        return {}, {"basis": dataclasses.asdict(self.basis)}

    def close(self) -> None:
        """Stop the reader threads as well."""
        if hasattr(self, "_prefetcher"):
            self._prefetcher.close()
        super().close()

    def _autocast(self) -> torch.autocast:
        mixed = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=mixed)


def _outcomes(env_id: str) -> tuple[str, ...]:
    return tuple(outcome.name for outcome in outcomes_of(envs.find_task(env_id)))


def _generator(*numbers: int) -> torch.Generator:
    """A separate generator seeded by these numbers."""
    word = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(word >> 1)


def _plain(value: Any) -> Any:
    """JSON has no NaN: numbers that are not finite become text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def cloning_command(reader: DemoReader) -> str | None:
    """The command that clones these demonstrations with a shipped configuration.

    Among those for the environment it is the one whose robot differs least (then the one that
    trains least), with `--set` for the differences. None if no configuration fits, or there are no
    demonstrations to train or to validate on.
    """
    if not reader.mask("train") or not reader.mask("valid"):
        return None
    recorded = reader.recording
    robot = environments.embodiment(
        recorded.env_id, environments.resolved(recorded.env_id, recorded.env)
    )
    found: list[tuple[tuple[int, int], Path, list[str]]] = []
    for file in sorted(Path(str(resources.files("configs"))).glob("*.yaml")):
        try:
            config = load_config(file, [])
        except UserError:
            continue  # another trainer's
        if config.env_id != recorded.env_id:
            continue
        changed = {f"env.{key}": value for key, value in robot.items() if config.env[key] != value}
        settings = {"demonstrations": str(reader.directory), **changed}
        words = [assignment(key, value) for key, value in settings.items()]
        found.append(((len(changed), config.iterations * config.updates), file, words))
    for _, file, words in sorted(found):
        try:
            job: Any = load_config(file, words)
            build_policy(job.env_id, job.env, job.policy)
        except UserError:
            continue  # for example, its patches do not divide these images
        return command_line("training.bc", "--config", preset(file.name), "--set", *words)
    return None
