"""The configuration of proximal policy optimisation: `PPOConfig`."""

from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

import policies
from training.algorithms.trainer import STRICT, JobConfig, Trainer
from training.io import config as configuration
from training.io.config import UserError

Deviation = Annotated[float, Field(gt=0, le=1e3)]


@dataclass(frozen=True, config=STRICT)
class PPOConfig(JobConfig):
    """A training run by proximal policy optimisation, whose updates are Stable-Baselines3's."""

    trainer: Literal["ppo"] = "ppo"
    """Which trainer the file is for."""
    iterations: int = Field(default=200, ge=1, le=10**9)
    """Updates: episodes, then `n_epochs` passes over their steps."""
    steps: int = Field(default=2048, ge=2, le=10**7)
    """Least environment steps an iteration: `episodes` are run repeatedly, until there are at least
    this many."""
    episodes: int = Field(default=8, ge=1, le=10_000)
    """Episodes that run together, each with a separate seed; all run to their end."""
    center_episodes: int = Field(default=2, ge=1, le=10_000)
    """Episodes an iteration without exploration, which are not trained on; their mean is
    `center_reward`."""
    n_epochs: int = Field(default=10, ge=1, le=1000)
    """Passes over the steps of an iteration. This and the following are Stable-Baselines3's."""
    batch_size: int = Field(default=64, ge=2, le=2**16)
    """Steps a gradient step."""
    learning_rate: float = Field(default=3e-4, gt=0, le=1e6)
    """Learning rate of Adam."""
    learning_rate_end: float | None = Field(default=None, ge=0, le=1e6)
    """The learning rate of the last iteration, to which it changes linearly; null: it stays."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount a step."""
    gammas: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    """Discount of each number of the action, with credit: terms; null: gamma for all."""
    credit: Literal["shared", "terms"] = "shared"
    """Reward that an action's numbers are credited with: the whole reward for all (shared), or for
    each the terms that the environment's `reward_terms` declare, with a separate value."""
    whole_decisions: bool = False
    """Whether, with credit: terms, a gradient step takes all numbers of its decisions, so that
    actor and critic are evaluated once a decision; otherwise any numbers of any decisions. A
    step takes `batch_size` numbers either way."""
    mirror: bool = False
    """Whether each step is also learned from with left and right exchanged, by the environment's
    `mirror`."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda of generalised advantage estimation, between low variance (0) and low bias (1)."""
    clip_range: float = Field(default=0.2, gt=0, le=1e6)
    """Clipping range of the ratio of new and old probabilities."""
    ent_coef: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the entropy."""
    vf_coef: float = Field(default=0.5, ge=0, le=1e6)
    """Weight of the critic's squared error."""
    max_grad_norm: float = Field(default=0.5, gt=0, le=1e6)
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = Field(default=None, gt=0)
    """Approximate KL divergence at which an iteration's passes end; null: no limit."""
    exploration: Deviation | tuple[Deviation, ...] = 0.5
    """Standard deviation of the action's regressed numbers at the start, of all or of each, in
    halves of their range; it is learned. Discrete choices, and the legs' offsets by votes, are
    drawn by their logits instead."""
    temperature: float = Field(default=1.0, gt=0, le=1e3)
    """Temperature of those logits: the smaller, the nearer to the action that is taken without
    exploration."""
    critic: dict[str, Any] = field(default_factory=dict)
    """Settings in which the critic, a second policy whose only output is the value, differs from
    `policy`, such as {selection: all}. Its controller is mlp, `hidden` [64, 64] unless given."""
    ray_address: str | None = None
    """Address of the Ray cluster that runs the episodes ("auto", "host:6379"), which must require a
    token; null: this machine."""
    device: str = "cpu"
    """PyTorch device of the updates: cpu or cuda."""
    threads: int = Field(default=1, ge=1, le=1024)
    """Threads that the updates compute with."""
    init_from: str | None = None
    """Start from this policy: a checkpoint, a run directory or the name of a shipped policy."""
    fit_after: int | None = Field(default=10, ge=1)
    """Iterations after which the feature maps' parameters that depend on data (A of OPRF, clusters
    of a clustered hybrid) are fitted to the policy's own queries and keys, once; null: never. Maps
    that were fitted in the training of `init_from` are kept, unless the feature map changes."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        policy = self.policy
        if isinstance(policy, policies.CustomPolicyConfig):
            raise ValueError(
                "policy.name must be implicit_attention, vision_performer or cnn in training.ppo, "
                f"which needs the probabilities of decisions, got {policy.name}; training.es "
                "takes it, and policy.controller may be a custom one"
            )
        if isinstance(policy, policies.PlaceMemoryConfig) and policy.memory != "none":
            raise ValueError(
                "policy.memory must be none in training.ppo, which learns from single steps, got "
                f"memory {policy.memory}; training.es and training.bc take it"
            )
        if self.gammas is not None and self.credit == "shared":
            raise ValueError(f"gammas need credit: terms, got {list(self.gammas)} with shared")
        if self.whole_decisions and self.credit == "shared":
            raise ValueError("whole_decisions needs credit: terms, got shared")
        if self.mirror and policy.last_action:
            raise ValueError("mirror must be false with policy.last_action")
        if policy.controller in ("lstm", "gru"):
            raise ValueError(
                "policy.controller must be auto, mlp or vote in training.ppo, which learns from "
                f"single steps, got {policy.controller}; training.es and training.bc take it"
            )
        if policy.repair != "none":
            raise ValueError(
                "policy.repair must be none in training.ppo, which learns from unrepaired "
                f"images, got {policy.repair}; rollout and evaluate take --repair"
            )
        return self


def critic_settings(config: PPOConfig, source: str | Path) -> Any:
    """The critic's settings. Raise UserError, which names the `source`, for settings that do not
    fit together."""
    plain = configuration.dump(config.policy)
    changed = {**plain, "standardise": False, "last_action": False, "bins": None}
    changed["hidden"] = [64, 64]
    settings: Any = configuration.validate(
        type(config.policy),
        {**changed, **config.critic, "controller": "mlp"},
        source,
        "critic.",
    )
    if settings.last_action or settings.repair != "none":
        raise UserError(
            f"{source}: the critic receives only the present observation, unrepaired, so "
            f"critic.last_action must be "
            f"false and critic.repair none, got {settings.last_action} and {settings.repair}"
        )
    return settings


PPO = Trainer(
    name="ppo",
    config=PPOConfig,
    algorithm="training.algorithms.ppo:ProximalPolicyOptimisation",
    summary="Train a policy by proximal policy optimisation.",
    preset="stepping_stones_ppo.yaml",
    free_on_resume=("iterations", "workers", "ray_address", "device"),
    check=critic_settings,
)
"""No result depends on what a resumed run may change, except that another device rounds
otherwise."""
load_config = PPO.load
