"""The configuration of evolution strategies: `ESConfig`, and that of each searcher."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

import envs
from training.algorithms.trainer import STRICT, JobConfig, Trainer
from training.collect.env_settings import split
from training.io import config as configuration
from training.io.config import UserError

_MOST_EPISODES = 10**6
MOST_FOR_FULL_COVARIANCE = 1000
"""Largest number of parameters of CMA-ES with a full covariance."""


@dataclass(frozen=True, config=STRICT)
class CMAESConfig:
    """Covariance matrix adaptation (Hansen 2016): the choice up to a few hundred parameters."""

    name: Literal["cmaes"] = "cmaes"
    """CMA-ES with active covariance update."""
    sigma: float = Field(default=0.5, gt=0, le=1e6)
    """Initial standard deviation, in units of the policy's parameters."""
    separable: bool = False
    """Adapt the diagonal of the covariance alone: for many parameters."""


@dataclass(frozen=True, config=STRICT)
class PGPEConfig:
    """Policy gradients with parameter-based exploration (Sehnke et al. 2010), antithetic."""

    name: Literal["pgpe"] = "pgpe"
    """PGPE on centred ranks."""
    sigma: float = Field(default=0.1, gt=0, le=1e6)
    """Initial standard deviation of every parameter, in units of the policy's parameters."""
    learning_rate: float = Field(default=0.1, gt=0, le=1e6)
    """Step of the centre: length of a ClipUp step, or Adam's rate, in parameter units."""
    sigma_learning_rate: float = Field(default=0.1, ge=0, le=1e6)
    """Learning rate of the standard deviations; 0 keeps them."""
    optimizer: Literal["clipup", "adam"] = "clipup"
    """Optimiser of the centre: ClipUp (Toklu et al. 2020) or Adam."""


@dataclass(frozen=True, config=STRICT)
class ARSConfig:
    """Augmented random search (Mania et al. 2018), antithetic."""

    name: Literal["ars"] = "ars"
    """Pairs ranked by the better return, step divided by the kept returns' deviation."""
    sigma: float = Field(default=0.05, gt=0, le=1e6)
    """Standard deviation of the directions, in units of the policy's parameters."""
    learning_rate: float = Field(default=0.05, gt=0, le=1e6)
    """Step of the centre, in parameter units."""
    top_fraction: float = Field(default=0.5, gt=0, le=1)
    """Share of the pairs that is kept."""
    orthogonal: bool = False
    """Draw the directions orthogonal to each other in blocks of the parameter count."""


@dataclass(frozen=True, config=STRICT)
class AutoConfig:
    """CMA-ES, whose covariance is full or diagonal by the number of parameters."""

    name: Literal["auto"] = "auto"
    """cmaes up to 1,000 parameters; above, cmaes with separable = true."""
    sigma: float | None = Field(default=None, gt=0, le=1e6)
    """Initial standard deviation, in units of the policy's parameters; null: 0.5, or 0.05 with
    `sample_actions`, as larger steps make choices nearly certain."""

    def choice(self, parameters: int, sample_actions: bool = False) -> CMAESConfig:
        """Return the searcher for a policy with this number of parameters."""
        sigma = self.sigma or (0.05 if sample_actions else 0.5)
        return CMAESConfig(sigma=sigma, separable=parameters > MOST_FOR_FULL_COVARIANCE)


SearcherConfig = CMAESConfig | PGPEConfig | ARSConfig | AutoConfig


@dataclass(frozen=True, config=STRICT)
class ESConfig(JobConfig):
    """The configuration of training with evolution strategies."""

    trainer: Literal["es"] = "es"
    """Which trainer the file is for."""
    iterations: int = Field(default=300, ge=1, le=10**9)
    """Updates of the search distribution."""
    popsize: int = Field(default=12, ge=2, le=10_000)
    """Candidates an iteration; even for antithetic searchers (pgpe, ars)."""
    terrains: int = Field(default=2, ge=1, le=10_000)
    """Episodes of each candidate an iteration, each on its own terrain."""
    common_terrains: Literal["pair", "population"] = "population"
    """Candidates that share terrains (and noise): 2i and 2i + 1, or all."""
    center_terrains: int = Field(default=2, ge=1, le=10_000)
    """Episodes of the centre an iteration; their mean is `center_reward`."""
    sample_actions: bool = False
    """Whether each categorical choice is drawn by its probability, so that a sparse reward is found
    by chance; otherwise the most probable one is taken, as evaluations do that are not given
    --sample-actions. Only for actions with choices."""
    credit: Literal["shared", "terms"] = "shared"
    """Returns that parameters are judged by: the whole reward's for all (shared), or for those that
    one number of the action depends on, in the controller's last layer, that of the terms that the
    environment's `reward_terms` declare for it, with a separate search distribution; layers before
    it by the sum of these."""
    gammas: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    """Discount a step of each number of the action, with credit: terms; null: none."""
    ray_address: str | None = None
    """Address of the Ray cluster that runs the episodes ("auto", "host:6379"), which must require a
    token; null: this machine."""
    init_from: str | None = None
    """Start from this policy: a checkpoint, a run directory or the name of a shipped policy."""
    searcher: SearcherConfig = Field(default=AutoConfig(), discriminator="name")
    """The searcher."""
    curriculum: tuple[dict[str, Any], ...] = Field(default=(), max_length=1000)
    """Levels, easiest first: reset options of the environment, e.g. {gap_m: [0.02, 0.06]}."""
    fit_after: int | None = Field(default=10, ge=1)
    """Iterations after which the feature maps' parameters that depend on data (A of OPRF, clusters
    of a clustered hybrid) are fitted to the centre's own queries and keys, once; null: never. Maps
    that were fitted in the training of `init_from` are kept, unless the feature map changes."""
    advance_at: float = Field(default=0.6, gt=0, le=1)
    """Success rate of the population at which the next level begins."""
    advance_window: int = Field(default=1, ge=1, le=10**6)
    """Iterations at a level over which that success rate is averaged."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        antithetic = self.searcher.name in ("pgpe", "ars")
        if antithetic and self.popsize % 2:
            raise ValueError(
                f"popsize must be even with searcher.name = {self.searcher.name}, "
                f"which draws pairs, got {self.popsize}"
            )
        if self.common_terrains == "pair" and not antithetic:
            raise ValueError(
                "common_terrains = pair needs a searcher that draws pairs (pgpe, ars), "
                f"got searcher.name = {self.searcher.name}"
            )
        if self.gammas is not None and self.credit == "shared":
            raise ValueError(f"gammas need credit: terms, got {list(self.gammas)} with shared")
        if self.popsize * self.terrains > _MOST_EPISODES:
            raise ValueError(
                f"popsize times terrains, the episodes of an iteration, must be at most "
                f"{_MOST_EPISODES}, got {self.popsize} times {self.terrains}"
            )
        return self


def _check(config: ESConfig, source: str) -> None:
    """Raise UserError for a curriculum that the environment does not support."""
    task = envs.find_task(config.env_id)
    if task is None or task.settings is None:
        return
    for i, level in enumerate(config.curriculum):
        if set(level) - set(task.per_episode):
            raise UserError(
                f"{source}: curriculum.{i} may hold {' and '.join(task.per_episode) or 'nothing'}, "
                f"which an episode may change, got {', '.join(sorted(level))}"
            )
        settings = {**split(config.env)[0], **level}
        configuration.validate(task.settings, settings, source, f"curriculum.{i}.")


ES = Trainer(
    name="es",
    config=ESConfig,
    algorithm="training.algorithms.es:EvolutionStrategies",
    summary="Train a policy by evolution strategies.",
    preset="stepping_stones.yaml",
    free_on_resume=("iterations", "workers", "ray_address"),
    check=_check,
)
"""No result depends on what a resumed run may change."""
load_config = ES.load
