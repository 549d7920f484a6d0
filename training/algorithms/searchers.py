"""Black-box searchers that maximise: PGPE and CMA-ES (both EvoTorch's), and ARS.

Each is a pair `ask(seed)`, `tell(population, returns)`. A population is a pure function of the
searcher's state and the seed, so a run resumes exactly without saving a random generator.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from foveate_extras import needs
from training.algorithms.es_config import ARSConfig, CMAESConfig, PGPEConfig, SearcherConfig

_MOST_FOR_FULL_COVARIANCE = 1000


class Searcher(Protocol):
    """A search distribution over parameter vectors, all tensors float64 on the CPU."""

    antithetic: bool
    """Whether candidates 2i and 2i + 1 mirror each other about the centre."""

    @property
    def center(self) -> Tensor:
        """Mean of the distribution, (parameters,)."""

    @property
    def sigma(self) -> float:
        """Typical standard deviation of one parameter."""

    def ask(self, seed: int) -> Tensor:
        """Candidates (popsize, parameters), a pure function of the state and `seed`."""

    def tell(self, population: Tensor, returns: Tensor) -> None:
        """Update from the returns (popsize,) of the population that `ask` gave last."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The complete state for `load_state`: tensors and JSON numbers."""

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Restore the state returned by `state`."""


def build(config: SearcherConfig, center: Tensor, popsize: int) -> Searcher:
    """The searcher of a configuration, started at `center` (parameters,)."""
    center = center.detach().to("cpu", torch.float64).clone()
    if isinstance(config, CMAESConfig):
        return CMAES(config, center, popsize)
    if isinstance(config, PGPEConfig):
        return PGPE(config, center, popsize)
    return ARS(config, center, popsize)


def centered_ranks(returns: Tensor) -> Tensor:
    """Ranks scaled to [-1/2, 1/2], equal returns sharing their mean rank.

    EvoTorch's own "centered" ranking orders equal returns by their position: a population that
    all fell on the first stone would move the centre at random.
    """
    below = (returns[:, None] > returns[None, :]).sum(1)
    above = (returns[:, None] < returns[None, :]).sum(1)
    return (below - above).to(torch.float64) / (2 * max(len(returns) - 1, 1))


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings: EvoTorch uses torch.jit.script, which is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _evotorch_algorithms(who: str) -> Any:
    """The module `evotorch.algorithms`; MissingExtraError says that `who` needs it."""
    with _quiet(), needs(who, "es"):
        import evotorch.algorithms
        import evotorch.algorithms.functional
    return evotorch.algorithms


class CMAES:
    """EvoTorch's CMA-ES with an `ask` and `tell` interface.

    Its `step` cannot be stopped between sampling and updating, so this calls the same public
    parts in the same order. `stdev_min/max` stay unset: that option overwrites the diagonal of C
    alone, after which C may have no Cholesky factor. The stall rule h_sig is computed here, with
    the paper's exponent 2 (t + 1), where EvoTorch 0.6.1 has 2 t + 1 and so stalls too early.
    """

    antithetic = False
    _TENSORS = ("m", "sigma", "C", "A", "p_sigma", "p_c")

    def __init__(self, config: CMAESConfig, center: Tensor, popsize: int) -> None:
        if len(center) > _MOST_FOR_FULL_COVARIANCE and not config.separable:
            raise ValueError(
                f"the policy has {len(center)} parameters, and searcher.name = cmaes takes at most "
                f"{_MOST_FOR_FULL_COVARIANCE}: set searcher.separable = true, or use pgpe or ars"
            )
        algorithms = _evotorch_algorithms("searcher.name = cmaes")
        from evotorch import Problem

        with _quiet():
            logging.getLogger("evotorch").setLevel(logging.WARNING)
            problem = Problem(
                "max",
                solution_length=len(center),
                initial_bounds=(-1, 1),
                dtype=torch.float64,
                store_solution_stats=False,
            )
            with torch.random.fork_rng(devices=[]):
                self._cma = algorithms.CMAES(
                    problem,
                    stdev_init=config.sigma,
                    center_init=center,
                    popsize=popsize,
                    separable=config.separable,
                )
        self._cma.p_sigma = torch.zeros_like(center)
        self._cma.p_c = torch.zeros_like(center)
        self._generation = 0
        self._sample: tuple[Tensor, Tensor] | None = None
        self._set(self.state()[0])

    @property
    def center(self) -> Tensor:
        return self._cma.m

    @property
    def sigma(self) -> float:
        shape = self._cma.C if self._cma.separable else torch.diagonal(self._cma.C)
        return float(self._cma.sigma * shape.mean().sqrt())

    def ask(self, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            zs, ys, xs = self._cma.sample_distribution()
        self._sample = zs, ys
        return xs

    def tell(self, population: Tensor, returns: Tensor) -> None:
        assert self._sample is not None, "tell before ask"
        (zs, ys), self._sample = self._sample, None
        if bool((returns == returns[0]).all()):
            return  # ranked by their position, equal returns would move the centre at random
        cma = self._cma
        ranks = torch.argsort(torch.argsort(returns, descending=True, stable=True))
        weights = cma.weights[ranks]
        local, shaped = cma.update_m(zs, ys, weights)
        cma.update_p_sigma(local)
        cma.update_sigma()
        h_sig = self._h_sig()
        cma.update_p_c(shaped, h_sig)
        cma.update_C(zs, ys, weights, h_sig)
        self._generation += 1
        if self._generation % cma.decompose_C_freq == 0:
            try:
                cma.decompose_C()
            except torch.linalg.LinAlgError:  # rounding made C indefinite: take the last good one
                cma.C = cma.A @ cma.A.T
        self._set(self.state()[0])

    def _set(self, tensors: dict[str, Tensor]) -> None:
        """Take these tensors, each in the memory layout that it always has here: sums of products
        round by layout, and a checkpoint holds none. LAPACK gives a factor column by column."""
        for name in self._TENSORS:
            columns = name == "A" and not self._cma.separable
            tensor = tensors[name]
            setattr(self._cma, name, tensor.mT.contiguous().mT if columns else tensor.contiguous())

    def _h_sig(self) -> Tensor:
        """1, or 0 to stall the evolution path while sigma's own path is long (eq. 45)."""
        cma, dim = self._cma, len(self._cma.m)
        faded = 1 - (1 - cma.c_sigma) ** (2 * (self._generation + 1))
        squared = cma.p_sigma.square().sum() / faded
        return (squared / dim < 2 + 4 / (dim + 1)).to(torch.float64)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        return {name: getattr(self._cma, name) for name in self._TENSORS}, {
            "generation": self._generation
        }

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        self._set({name: tensors[name].clone() for name in self._TENSORS})
        self._generation = int(numbers["generation"])


class PGPE:
    """EvoTorch's functional PGPE on tie-sharing ranks."""

    antithetic = True

    def __init__(self, config: PGPEConfig, center: Tensor, popsize: int) -> None:
        self._functional = functional = _evotorch_algorithms("searcher.name = pgpe").functional
        self._popsize = popsize
        self._state = functional.pgpe(
            center_init=center,
            center_learning_rate=config.learning_rate,
            stdev_learning_rate=config.sigma_learning_rate,
            stdev_init=config.sigma,
            objective_sense="max",
            ranking_method="raw",
            optimizer=config.optimizer,
        )

    @property
    def center(self) -> Tensor:
        center: Tensor = self._state.optimizer_state.center
        return center

    @property
    def sigma(self) -> float:
        return float(self._state.stdev.square().mean().sqrt())

    def ask(self, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            population: Tensor = self._functional.pgpe_ask(self._state, popsize=self._popsize)
        return population

    def tell(self, population: Tensor, returns: Tensor) -> None:
        if torch.equal(returns[0::2], returns[1::2]):
            return  # no direction is better than its mirror image; ClipUp would divide 0 by 0
        self._state = self._functional.pgpe_tell(self._state, population, centered_ranks(returns))

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of EvoTorch's state that change, by name."""
        moving = ("center", "velocity", "m", "v", "t")
        optimizer = self._state.optimizer_state
        found = {name: getattr(optimizer, name) for name in moving if hasattr(optimizer, name)}
        return {"stdev": self._state.stdev, **found}

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        return self._tensors(), {}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        own = {name: tensors[name].clone() for name in self._tensors()}
        stdev = own.pop("stdev")
        optimizer = self._state.optimizer_state._replace(**own)
        self._state = self._state._replace(stdev=stdev, optimizer_state=optimizer)


class ARS:
    """Augmented random search, version "V1-t"; observations are normalised by the policy."""

    antithetic = True

    def __init__(self, config: ARSConfig, center: Tensor, popsize: int) -> None:
        self._config = config
        self._center = center
        self._pairs = popsize // 2

    @property
    def center(self) -> Tensor:
        return self._center

    @property
    def sigma(self) -> float:
        return self._config.sigma

    def ask(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        directions = torch.randn(
            self._pairs, len(self._center), generator=generator, dtype=torch.float64
        )
        if self._config.orthogonal:
            directions = orthogonalised(directions)
        offsets = self._config.sigma * directions
        return torch.stack([self._center + offsets, self._center - offsets], 1).flatten(0, 1)

    def tell(self, population: Tensor, returns: Tensor) -> None:
        plus, minus = returns[0::2].double(), returns[1::2].double()
        directions = (population[0::2] - population[1::2]) / (2 * self._config.sigma)
        kept_count = max(1, round(self._config.top_fraction * self._pairs))
        best_first = torch.argsort(torch.maximum(plus, minus), descending=True, stable=True)
        kept = best_first[:kept_count]
        deviation = torch.cat([plus[kept], minus[kept]]).std(correction=0)
        if deviation > 0:
            gradient = (plus - minus)[kept] @ directions[kept] / kept_count
            self._center = self._center + self._config.learning_rate * gradient / deviation

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        return {"center": self._center}, {}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        self._center = tensors["center"].clone()


def orthogonalised(directions: Tensor) -> Tensor:
    """Gaussian rows (n, d) orthogonalised in blocks of d, each with its original length."""
    blocks = []
    for block in directions.split(directions.shape[1]):
        q, r = torch.linalg.qr(block.T)
        blocks.append((q * torch.diagonal(r).sign()).T * block.norm(dim=1, keepdim=True))
    return torch.cat(blocks)
