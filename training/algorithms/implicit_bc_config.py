"""The configuration of cloning from recorded demonstrations: `ImplicitBCConfig`."""

from dataclasses import field
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

import envs
import policies
from training.algorithms.bc_config import fill_spaces
from training.algorithms.trainer import STRICT, JobConfig, Trainer


@dataclass(frozen=True, config=STRICT)
class ImplicitBCConfig(JobConfig):
    """A training run by behaviour cloning of recorded demonstrations, with a Vision-Performer."""

    trainer: Literal["bc"] = "bc"
    """Which trainer the file is for."""
    demonstrations: str = "demos/sweep"
    """What `training.demos` recorded, or another dataset (docs/guide/demonstrations.md)."""
    demonstrations_keys: dict[str, str] = field(default_factory=dict)
    """Part of the observation, rgb or pose, or `action`, by name in these files; parts without one
    are matched by name."""
    demonstrations_rate_hz: float | None = Field(default=None, gt=0, le=1e6)
    """Steps a second of the demonstrations, in place of what their files say."""
    demos_used: int | None = Field(default=None, ge=1, le=10**9)
    """How many of its training demonstrations to use, from the first; null: all."""
    iterations: int = Field(default=200, ge=1, le=10**9)
    """Rounds of `updates` gradient steps; each writes a row and a checkpoint."""
    updates: int = Field(default=100, ge=1, le=10**9)
    """Gradient steps a round."""
    batch_size: int = Field(default=64, ge=1, le=2**14)
    """Frames per gradient step, over all devices together."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1e6)
    """Peak learning rate of AdamW; it falls along a cosine over the whole run to
    `final_learning_rate`."""
    final_learning_rate: float = Field(default=1e-5, ge=0, le=1e6)
    """Learning rate at the end of the run."""
    warm_up: int = Field(default=200, ge=0, le=10**9)
    """Gradient steps over which the learning rate rises to its peak."""
    weight_decay: float = Field(default=0.01, ge=0, le=1e6)
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
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of matrix products (mixed precision: parameters and energies stay float32)."""
    not_finite: Literal["stop", "skip"] = "stop"
    """When a batch's loss or gradient is not finite, after reporting it: stop, or skip it."""
    val_frames: int = Field(default=512, ge=1, le=10**9)
    """Frames of held-out demonstrations that `val_loss` is computed on."""
    evaluate_every: int = Field(default=50, ge=0, le=10**9)
    """Rounds between closed-loop evaluations, with one more at the end; 0: no evaluations."""
    episodes: int = Field(default=4, ge=1, le=10**4)
    """Episodes of a closed-loop evaluation, on scenes that are in no demonstration."""
    readers: int = Field(default=1, ge=1, le=256)
    """Threads of each process that read frames ahead."""
    threads: int = Field(default=2, ge=1, le=1024)
    """Threads that a process computes with."""
    workers: int = Field(default=2, ge=1, le=4096)
    """Processes of the closed-loop evaluation."""
    device: str = "cpu"
    """PyTorch device: cpu or cuda; under torchrun each process takes its own GPU."""
    env_id: str = envs.BIMANUAL_SWEEP
    """Gymnasium id."""
    policy: policies.VisionPolicyConfig = policies.VisionPolicyConfig()  # type: ignore[assignment]
    """The policy."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        fill_spaces(self)
        policy = self.policy
        if policy.attend and policy.embed_dim == policy.heads and policy.qk_length is not None:
            raise ValueError(
                "policy.qk_length must be null where heads have one dimension (embed_dim = heads = "
                f"{policy.heads}), whose length alone can be learned, got {policy.qk_length}"
            )
        if self.final_learning_rate > self.learning_rate:
            raise ValueError(
                f"final_learning_rate must be at most learning_rate = {self.learning_rate}, "
                f"got {self.final_learning_rate}"
            )
        return self


IMPLICIT_BC = Trainer(
    name="bc",
    config=ImplicitBCConfig,
    algorithm="training.algorithms.implicit_bc:ImplicitCloning",
    where="where policy.name is vision_performer, and policy.form not pooled",
    free_on_resume=(
        "iterations",
        "workers",
        "readers",
        "episodes",
        "evaluate_every",
        "demonstrations",
        "device",
    ),
    in_processes=True,
    clones_recordings=True,
    following=lambda config, run: [],
)
"""With other `iterations` the learning rate of a resumed run follows its new schedule, and another
`device` rounds differently. The policy does not depend on the other keys: `demonstrations` must be
the same ones in another place."""
load_config = IMPLICIT_BC.load
