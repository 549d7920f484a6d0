"""The configuration of behaviour cloning: `BCConfig`."""

from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

import envs
from training.algorithms.trainer import STRICT, JobConfig, Trainer
from training.command.errors import command_line, preset
from training.io.overrides import assignment


@dataclass(frozen=True, config=STRICT)
class BCConfig(JobConfig):
    """A training run by behaviour cloning: of demonstrations, or of an expert (DAgger)."""

    trainer: Literal["bc"] = "bc"
    """Which trainer the file is for."""
    demonstrations: str | None = None
    """What to clone: a LeRobotDataset (v2.1, v3.0), a file of robomimic's, a folder of npz files,
    or what `training.demos` recorded; null: the environment's expert, which also labels rollouts.
    env_id RecordedSpaces-v0 needs no simulator."""
    demonstrations_keys: dict[str, str] = field(default_factory=dict)
    """Part of the observation, or `action`, by name in these files, as in {observation.images.top:
    camera, observation.state: proprio}; parts without one are matched by name."""
    demonstrations_rate_hz: float | None = Field(default=None, gt=0, le=1e6)
    """Steps per second of the demonstrations, in place of the rate in their files."""
    demos_used: int | None = Field(default=None, ge=1, le=10**9)
    """How many of the demonstrations to train on, from the first; null: all."""
    iterations: int = Field(default=3, ge=1, le=10**9)
    """Rounds: train on everything collected, then collect rollouts of the policy."""
    expert_episodes: int = Field(default=40, ge=2, le=10**5)
    """Episodes that the disturbed expert acts in before the first round."""
    episodes: int = Field(default=30, ge=0, le=10**5)
    """Episodes that the policy acts in after each round, labelled by the expert unless there are
    demonstrations; the share of them that succeed is `success`."""
    disturbance: float = Field(default=0.1, ge=0, le=1)
    """Standard deviation of the noise on the expert's actions, in units of the action; the labels
    have none."""
    disturbance_steps: float = Field(default=10.0, ge=1, le=1e6)
    """Decisions over which that noise is correlated."""
    held_out: float = Field(default=0.1, gt=0, le=0.5)
    """Share of the episodes that only `val_loss` is computed on: rounded down, at least one;
    demonstrations with a split keep theirs."""
    updates: int = Field(default=1500, ge=1, le=10**9)
    """Gradient steps a round; the learning rate falls from its peak to zero in each."""
    batch_size: int = Field(default=256, ge=1, le=2**14)
    """Decisions a gradient step."""
    sequence: int = Field(default=32, ge=1, le=2**14)
    """Consecutive decisions through which gradients are propagated, for recurrent policies (lstm,
    gru, last_action); a gradient step takes batch_size / sequence such sequences."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1e6)
    """Peak learning rate of Adam."""
    weight_decay: float = Field(default=0.0, ge=0, le=1e6)
    """Decoupled weight decay (AdamW), as a share of the learning rate."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1e6)
    """Gradients longer than this are shortened to it."""
    init_from: str | None = None
    """Start from this policy, with its normalisation: a checkpoint, a run directory or the
    name of a shipped policy."""
    fit_after: int | None = Field(default=1000, ge=1)
    """Gradient steps, of all rounds, after which the feature maps' parameters that depend on data
    (A of OPRF, clusters of a clustered hybrid) are fitted to the policy's own queries and keys,
    once; null: never. Maps that were fitted in the training of `init_from` are kept, unless the
    feature map changes."""
    speed_weight: float = Field(default=5.0, ge=0, le=1e6)
    """Weight of the lateral speed's squared error beside the footholds' cross-entropy."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.demonstrations is None:
            if self.episodes < 2:
                raise ValueError(
                    f"episodes must be at least 2 without demonstrations, got {self.episodes}"
                )
            for key in ("demonstrations_keys", "demonstrations_rate_hz", "demos_used"):
                if getattr(self, key):
                    raise ValueError(f"{key} must be left out where demonstrations is null")
        fill_spaces(self)
        return self


def fill_spaces(config: Any) -> None:
    """Give a new configuration of cloning without a simulator the spaces of its demonstrations."""
    given = config.demonstrations is not None and not config.env.get("observation")
    if given and config.env_id == envs.RECORDED_SPACES:
        from training.demonstrations.dataset import open_source, spaces_of  # late, for --help

        found, keys = spaces_of(open_source(config.demonstrations), config.demonstrations_keys)
        object.__setattr__(config, "env", {**config.env, **found})
        object.__setattr__(config, "demonstrations_keys", keys)


def _following(config: BCConfig, run: Path) -> list[tuple[str, str]]:
    from training.collect.environments import DEFAULT, same  # late, as --help does not need it

    if not same(config.env_id, DEFAULT):  # the preset's environment
        return []
    finetune = preset("stepping_stones_finetune.yaml")
    start = assignment("init_from", str(run))
    command = command_line("training.es", "--config", finetune, "--set", start)
    return [(command, "improve it by evolution strategies")]


BC = Trainer(
    name="bc",
    config=BCConfig,
    algorithm="training.algorithms.dagger:DAgger",
    summary="Train a policy by cloning a scripted expert, or recorded demonstrations.",
    preset="stepping_stones_clone.yaml",
    free_on_resume=("iterations", "workers", "demonstrations"),
    following=_following,
)
"""No result depends on what a resumed run may change: `demonstrations` must be the same ones in
another place."""
load_config = BC.load
