"""Behaviour cloning with dataset aggregation (DAgger, Ross et al. 2011, algorithm 3.1).

The first demonstrations are the expert's, later ones are rollouts of the policy, labelled by the
expert. `python -m training.bc` runs it for policies that act without sampling. With the
configuration's `demonstrations` it clones these alone, and rollouts of the policy are evaluations.

The policy's head gives the loss (`policies.common.heads`, `policies.footholds.head`). Policies with
memory are trained by truncated backpropagation through time (Williams and Peng 1990): whole
episodes, shuffled, follow each other in lanes; a gradient step goes through the next `sequence`
decisions of every lane, from the memory before them, which is emptied where an episode begins.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

import envs
from policies.common.base_policy import SeeingPolicy
from training.algorithms.bc_config import BCConfig
from training.algorithms.feature_maps import OBSERVATIONS, is_due, sound
from training.algorithms.labelled_rollouts import (
    Demonstrations,
    LabelledRollout,
    LabellingWorker,
    Played,
    PlayingWorker,
    Task,
    layout_of,
)  # fmt: skip
from training.collect.outcomes import mean_columns, mean_success, mean_values
from training.command.errors import NotFiniteError, command_line
from training.demonstrations.dataset import Dataset, open_source
from training.io import checkpoint
from training.io.config import UserError
from training.io.state_files import Count
from training.runner import Algorithm, Progress

DATA = "data"
_ROLLOUTS, _BATCHES = 0, 1
PART = 16
"""Decisions whose gradient is computed at once: their data stay in the cache."""
_CHUNK, _CHUNK_IN_ORDER = 1024, 256  # decisions validated per chunk


@dataclass(config=ConfigDict(extra="forbid"))
class BCProgress(Progress):
    """Counters of a run; with policy, optimiser and demonstrations they are its complete state."""

    episodes: Count = 0
    data_sha256: list[str] = field(default_factory=list)
    """Checksums of the demonstrations of each iteration; empty in runs of earlier versions."""


def data_path(run: Path, iteration: int) -> Path:
    """File of the demonstrations that were collected at the end of an iteration."""
    return run / DATA / f"{iteration:06d}.safetensors"


class DAgger(Algorithm[BCConfig]):
    """Trains the policy on all demonstrations so far, then collects more with it."""

    Progress = BCProgress
    progress: BCProgress

    @classmethod
    def columns(cls, env_id: str) -> tuple[str, ...]:
        return (
            "iteration", "decisions", "episodes", "loss", "val_loss", "val_accuracy", "grad_norm",
            "success", *mean_columns(envs.find_task(env_id)), "wall_s",
        )  # fmt: skip

    def prepare(self) -> None:
        """Set up the optimiser; raises UserError without an expert or a policy that can clone."""
        config = self.config
        if config.demonstrations is None and not self.env.has_wrapper_attr("expert_action"):
            raise UserError(
                f"env_id = {config.env_id!r} has no expert_action() that could be cloned; "
                "demonstrations=PATH clones recorded ones"
            )
        if not callable(getattr(self.policy, "loss", None)):
            raise UserError(
                f"policy.name = {config.policy.name!r} has no loss(observations, actions, "
                "generator), which training.bc needs; training.es does not need it"
            )
        self._layout = layout_of(self.env, self.policy.remembers)
        self._dataset = None if config.demonstrations is None else self._opened(config)
        self.optimiser = self.saved_optimiser = torch.optim.AdamW(
            self.policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def _opened(self, config: BCConfig) -> Dataset:
        """The demonstrations of the configuration, compared with the environment."""
        return Dataset(
            open_source(str(config.demonstrations)), self.env, config.env_id, config.env,
            config.demonstrations_keys, config.demonstrations_rate_hz, config.held_out,
            config.demos_used,
        )  # fmt: skip

    def describe(self) -> str:
        kind = getattr(self.config.policy, "controller", None)
        what = f"{kind} controller" if kind else self.config.policy.name
        return f"{super().describe()}, {what}"

    def choices(self) -> Sequence[str]:
        cloned = [] if self._dataset is None else [self._dataset.describe()]
        return (*cloned, *super().choices())

    def make_worker(self) -> Any:
        worker = LabellingWorker if self._dataset is None else PlayingWorker
        return partial(worker, *self.settings)

    @property
    def opens_pool(self) -> bool:  # type: ignore[override]
        """Whether episodes are run at all."""
        return self.config.episodes > 0 and not self.env.metadata.get("spaces_only")

    def setup(self, run: Path) -> None:
        """Read the demonstrations collected by the run."""
        self._run = run
        self._data = [] if self.start is None else self._collected()

    def first(self) -> None:
        """The demonstrations of the expert with noise, or the recorded ones."""
        if self._dataset is not None:
            self._data = self._collected()
            return
        self._keep(self.collect(self.tasks([])))
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
        if self._dataset is not None:
            recorded = Demonstrations.recorded(self._dataset, self._layout)
            if known not in ([], [recorded.sha256()]):
                raise UserError(
                    f"{self._dataset.path} holds other demonstrations now than those that {run} "
                    "was trained on, and a resumed run needs the same"
                )
            known[:] = [recorded.sha256()]
            return [recorded.prepared(self.policy)]
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
                    f"{error}; the newest checkpoint that does not need it is {earlier[-1]}: "
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
            "decisions": len(train_data),
            "episodes": self._episodes(),
            "loss": fitted["loss"],
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "grad_norm": fitted["grad_norm"],
        }

    def _episodes(self) -> int:
        if self._dataset is not None:
            return len(self._dataset.train) + len(self._dataset.valid)
        return self.progress.episodes + self.config.episodes

    def tasks(self, outcomes: Sequence[Played]) -> list[Task]:
        """Episodes of the policy or, before the first iteration, of the expert with noise."""
        config = self.config
        if outcomes or not self.opens_pool:
            return []
        if self.progress.iteration == 0:
            noise = config.disturbance, config.disturbance_steps
            return [Task(seed, *noise) for seed in self.seeds(_ROLLOUTS, config.expert_episodes)]
        state = self.policy_arrays()
        return [Task(seed, learner=state) for seed in self.seeds(_ROLLOUTS, config.episodes)]

    def update(self, outcomes: list[Any]) -> dict[str, float]:
        """Aggregate the labelled rollouts; returns the row."""
        if self._dataset is None:
            self._data.append(self._keep(outcomes).prepared(self.policy))
        episodes = [rollout.episode for rollout in outcomes]
        columns = mean_columns(envs.find_task(self.config.env_id))
        if not episodes:
            return {**self._learned, **dict.fromkeys(("success", *columns), math.nan)}
        return {
            **self._learned,
            "success": mean_success(episodes),
            **mean_values(columns, episodes),
        }

    def summary(self, row: dict[str, float], seconds: float) -> str:
        end = f"held out {row['val_loss']:.3g}"
        if self.opens_pool:
            end = f"success {row['success']:.2f}"
        return f"loss {row['loss']:.3g}, {end}"


# --- one round of gradient steps ---


def learning_rate(peak: float, update: int, updates: int) -> float:
    """Cosine from the peak at the first of a round's updates to zero after the last."""
    return peak * 0.5 * (1 + math.cos(math.pi * update / updates))


def batches(size: int, batch: int, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`count` batches of indices below `size` from shuffled passes, remainders dropped."""
    batch = min(batch, size)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(count):
        if len(order) < batch:
            order = torch.randperm(size, generator=generator)
        yield order[:batch]
        order = order[batch:]


def fit(
    policy: SeeingPolicy, optimiser: torch.optim.Optimizer,
    data: Demonstrations, config: BCConfig, iteration: int, generator: torch.Generator,
    part_size: int = PART,
) -> dict[str, float]:  # fmt: skip
    """Train a policy on demonstrations for one round, in place, `part_size` decisions at once.

    Its feature maps are fitted to its queries and keys after update `fit_after` of all rounds.

    Returns:
        Means over the round's batches: `loss`, and `grad_norm`, the length of the gradient before
        it is shortened.

    Raises:
        NotFiniteError: if a loss or gradient is not finite; the parameters are then unchanged.
    """
    losses, norms = [], []
    parameters = list(policy.parameters())
    made = (
        _in_lanes(policy, data, config, generator)
        if policy.unrolls
        else _in_parts(policy, data, config, generator, part_size)
    )
    optimiser.zero_grad()
    for update, (loss, index) in enumerate(made):
        losses.append(loss)
        norm = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        norms.append(norm.item())
        if not (math.isfinite(losses[-1]) and math.isfinite(norms[-1])):
            raise NotFiniteError(
                f"batch {update + 1} of iteration {iteration} has loss {losses[-1]} and gradient "
                f"norm {norms[-1]}, where finite numbers are needed; the last checkpoint is "
                "intact (a lower learning_rate may help)"
            )
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(config.learning_rate, update, config.updates)
        optimiser.step()
        if (iteration - 1) * config.updates + update + 1 == config.fit_after:
            with sound():
                policy.fit_attention(data[index[:OBSERVATIONS]].observations)
        optimiser.zero_grad()
    return {"loss": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms)}


def _in_parts(
    policy: Any, data: Demonstrations, config: BCConfig,
    generator: torch.Generator, part_size: int,
) -> Iterator[tuple[float, Tensor]]:  # fmt: skip
    """Yield, for each update of a round, its loss and the decisions that it covers, after its
    gradient was added to the parameters'."""
    weight = (config.speed_weight,) if hasattr(policy, "decide") else ()  # custom ones lack it
    for index in batches(len(data), config.batch_size, config.updates, generator):
        total = 0.0
        for part in index.split(part_size):
            batch = data[part]
            loss = policy.loss(batch.observations, batch.actions, generator, *weight)
            loss = loss * (len(part) / len(index))
            loss.backward()
            total += loss.item()
        yield total, index


def _in_lanes(
    policy: SeeingPolicy, data: Demonstrations, config: BCConfig, generator: torch.Generator
) -> Iterator[tuple[float, Tensor]]:
    """The same as `_in_parts`, for a policy with memory."""
    assert data.starts is not None
    steps = min(config.sequence, config.batch_size)
    count = max(1, config.batch_size // steps)
    lanes = _lanes(data.starts, count, steps * config.updates, generator)
    starts = data.starts[lanes]
    starts[:, 0] = True
    memory = policy.start(count)
    for first in range(0, lanes.shape[1], steps):
        rows = slice(first, first + steps)
        index = lanes[:, rows]
        batch = data[index]
        assert batch.taken is not None
        decision, memory = policy.unroll(batch.observations, batch.taken, starts[:, rows], memory)
        loss = decision.loss(batch.actions.flatten(0, 1), config.speed_weight)
        loss.backward()
        yield loss.item(), index.flatten()


def _lanes(begins: Tensor, count: int, steps: int, generator: torch.Generator) -> Tensor:
    """Decisions (count, steps): whole episodes in shuffled passes, except that a lane may begin
    within one; `begins` marks the first decision of each."""
    episodes = torch.arange(len(begins)).tensor_split(begins.nonzero().flatten()[1:])
    order: list[Tensor] = []
    length = 0
    while length < count * steps:
        for i in torch.randperm(len(episodes), generator=generator).tolist():
            order.append(episodes[i])
            length += len(episodes[i])
    return torch.cat(order)[: count * steps].view(count, steps)


@torch.no_grad()
def validate(policy: Any, data: Demonstrations, speed_weight: float) -> tuple[float, float]:
    """Mean loss on demonstrations, and the share of the actions' numbers that are near the
    expert's; NaN for a custom policy without `decide`."""
    decides, memory = hasattr(policy, "decide"), policy.start(1) if policy.unrolls else None
    loss, right = 0.0, 0.0 if decides else math.nan
    generator = torch.Generator().manual_seed(0)
    for index in torch.arange(len(data)).split(_CHUNK_IN_ORDER if policy.unrolls else _CHUNK):
        batch, count = data[index], len(index)
        if not decides:
            loss += float(policy.loss(batch.observations, batch.actions, generator)) * count
            continue
        if policy.unrolls:
            lane = data[index.unsqueeze(0)]
            decision, memory = policy.unroll(lane.observations, lane.taken, lane.starts, memory)
        else:
            decision = policy.decide(batch.observations)
        loss += float(decision.loss(batch.actions, speed_weight)) * count
        right += float(decision.right(batch.actions)) * count
    return loss / len(data), right / len(data)
