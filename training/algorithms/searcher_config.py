"""Settings of the searchers, apart from what they do, which needs PyTorch."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

__all__ = ["ARSConfig", "CMAESConfig", "PGPEConfig", "SearcherConfig"]

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


@dataclass(frozen=True, config=_STRICT)
class CMAESConfig:
    """Covariance matrix adaptation (Hansen 2016): the choice up to a few hundred parameters."""

    name: Literal["cmaes"] = "cmaes"
    """CMA-ES with active covariance update."""
    sigma: float = Field(default=0.5, gt=0, le=1e6)
    """Initial standard deviation, in units of the policy's parameters."""
    separable: bool = False
    """Adapt the diagonal of the covariance alone: for many parameters."""


@dataclass(frozen=True, config=_STRICT)
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
    """What follows the gradient: ClipUp (Toklu et al. 2020) or Adam."""


@dataclass(frozen=True, config=_STRICT)
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


SearcherConfig = CMAESConfig | PGPEConfig | ARSConfig
