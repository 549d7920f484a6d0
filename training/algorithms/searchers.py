"""Black-box searchers that maximise: PGPE and CMA-ES (both EvoTorch's), and ARS.

Each is a pair `ask(seed)`, `tell(population, returns)`. A population is a pure function of the
searcher's state and the seed, so a run resumes exactly without saving a random generator.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from foveate_extras import needs
from training.algorithms.es_config import ARSConfig, CMAESConfig, PGPEConfig, SearcherConfig

_MOST_FOR_FULL_COVARIANCE = 1000


class Searcher:
    """A search distribution over parameter vectors, all tensors float64 on the CPU.

    A subclass is built from its configuration, `center` (parameters,) and `popsize`.
    """

    center: Tensor
    """Mean of the distribution, (parameters,)."""
    sigma: float
    """Typical standard deviation of one parameter."""
    antithetic = True
    """Whether candidates 2i and 2i + 1 mirror each other about the centre."""

    def ask(self, seed: int) -> Tensor:
        """Candidates (popsize, parameters), a pure function of the state and `seed`."""
        raise NotImplementedError

    def tell(self, population: Tensor, returns: Tensor) -> None:
        """Update from the returns (popsize,) of the population that `ask` gave last."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The complete state for `load_state`: tensors and JSON numbers."""
        raise NotImplementedError

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Restore the state returned by `state`."""
        raise NotImplementedError


def build(config: SearcherConfig, center: Tensor, popsize: int) -> Searcher:
    """The searcher of a configuration, started at `center` (parameters,)."""
    center = center.detach().to("cpu", torch.float64).clone()
    kinds: dict[str, Any] = {"cmaes": CMAES, "pgpe": PGPE, "ars": ARS}
    searcher: Searcher = kinds[config.name](config, center, popsize)
    return searcher


def centered_ranks(returns: Tensor) -> Tensor:
    """Ranks scaled to [-1/2, 1/2], equal returns sharing their mean rank.

    EvoTorch's own "centered" ranking orders equal returns by their position: a population that
    all fell on the first stone would move the centre at random.
    """
    below = (returns[:, None] > returns[None, :]).sum(1)
    above = (returns[:, None] < returns[None, :]).sum(1)
    return (below - above).to(torch.float64) / (2 * max(len(returns) - 1, 1))


@contextmanager
def _evotorch(who: str) -> Iterator[Any]:
    """The module `evotorch.algorithms`, in a block that hides warnings: EvoTorch uses
    torch.jit.script, which is deprecated. MissingExtraError says that `who` needs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with needs(who, "es"):
            import evotorch.algorithms
            import evotorch.algorithms.functional
        yield evotorch.algorithms


@contextmanager
def _seeded(seed: int | None = None) -> Iterator[None]:
    """Leave PyTorch's global random numbers as they are after the block, which is seeded."""
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        yield


class CMAES(Searcher):
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
        with _evotorch("searcher.name = cmaes") as algorithms, _seeded():
            from evotorch import Problem

            logging.getLogger("evotorch").setLevel(logging.WARNING)
            problem = Problem(
                "max", solution_length=len(center), initial_bounds=(-1, 1), dtype=torch.float64,
                store_solution_stats=False,
            )  # fmt: skip
            self._cma = algorithms.CMAES(
                problem, stdev_init=config.sigma, center_init=center, popsize=popsize,
                separable=config.separable,
            )  # fmt: skip
        self._cma.p_sigma, self._cma.p_c = torch.zeros_like(center), torch.zeros_like(center)
        self._generation = 0
        self._sample: tuple[Tensor, Tensor] | None = None
        self._set(self.state()[0])

    def ask(self, seed: int) -> Tensor:
        with _seeded(seed):
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
        shape = self._cma.C if self._cma.separable else torch.diagonal(self._cma.C)
        self.center, self.sigma = self._cma.m, float(self._cma.sigma * shape.mean().sqrt())

    def _h_sig(self) -> Tensor:
        """1, or 0 to stall the evolution path while sigma's own path is long (eq. 45)."""
        cma, dim = self._cma, len(self._cma.m)
        faded = 1 - (1 - cma.c_sigma) ** (2 * (self._generation + 1))
        squared = cma.p_sigma.square().sum() / faded
        return (squared / dim < 2 + 4 / (dim + 1)).to(torch.float64)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        tensors = {name: getattr(self._cma, name) for name in self._TENSORS}
        return tensors, {"generation": self._generation}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        self._set({name: tensors[name].clone() for name in self._TENSORS})
        self._generation = int(numbers["generation"])


class PGPE(Searcher):
    """EvoTorch's functional PGPE on tie-sharing ranks."""

    def __init__(self, config: PGPEConfig, center: Tensor, popsize: int) -> None:
        with _evotorch("searcher.name = pgpe") as algorithms:
            self._functional = functional = algorithms.functional
        self._popsize = popsize
        state = functional.pgpe(
            center_init=center, center_learning_rate=config.learning_rate,
            stdev_learning_rate=config.sigma_learning_rate, stdev_init=config.sigma,
            objective_sense="max", ranking_method="raw", optimizer=config.optimizer,
        )  # fmt: skip
        self._set(state)

    def _set(self, state: Any) -> None:
        self._state, self.center = state, state.optimizer_state.center
        self.sigma = float(state.stdev.square().mean().sqrt())

    def ask(self, seed: int) -> Tensor:
        with _seeded(seed):
            population: Tensor = self._functional.pgpe_ask(self._state, popsize=self._popsize)
        return population

    def tell(self, population: Tensor, returns: Tensor) -> None:
        if torch.equal(returns[0::2], returns[1::2]):
            return  # no direction is better than its mirror image; ClipUp would divide 0 by 0
        ranks = centered_ranks(returns)
        self._set(self._functional.pgpe_tell(self._state, population, ranks))

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        moving = ("center", "velocity", "m", "v", "t")
        optimizer = self._state.optimizer_state
        found = {name: getattr(optimizer, name) for name in moving if hasattr(optimizer, name)}
        return {"stdev": self._state.stdev, **found}, {}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        own = {name: tensors[name].clone() for name in self.state()[0]}
        stdev = own.pop("stdev")
        optimizer = self._state.optimizer_state._replace(**own)
        self._set(self._state._replace(stdev=stdev, optimizer_state=optimizer))


class ARS(Searcher):
    """Augmented random search, version "V1-t"; observations are normalised by the policy."""

    def __init__(self, config: ARSConfig, center: Tensor, popsize: int) -> None:
        self._config, self._pairs = config, popsize // 2
        self.center, self.sigma = center, config.sigma

    def ask(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = self._pairs, len(self.center)
        directions = torch.randn(shape, generator=generator, dtype=torch.float64)
        if self._config.orthogonal:
            directions = orthogonalised(directions)
        offsets = self.sigma * directions
        return torch.stack([self.center + offsets, self.center - offsets], 1).flatten(0, 1)

    def tell(self, population: Tensor, returns: Tensor) -> None:
        plus, minus = returns[0::2].double(), returns[1::2].double()
        directions = (population[0::2] - population[1::2]) / (2 * self.sigma)
        kept_count = max(1, round(self._config.top_fraction * self._pairs))
        best_first = torch.argsort(torch.maximum(plus, minus), descending=True, stable=True)
        kept = best_first[:kept_count]
        deviation = torch.cat([plus[kept], minus[kept]]).std(correction=0)
        if deviation > 0:
            gradient = (plus - minus)[kept] @ directions[kept] / kept_count
            self.center = self.center + self._config.learning_rate * gradient / deviation

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        return {"center": self.center}, {}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        self.center = tensors["center"].clone()


def orthogonalised(directions: Tensor) -> Tensor:
    """Gaussian rows (n, d) orthogonalised in blocks of d, each with its original length."""
    blocks = []
    for block in directions.split(directions.shape[1]):
        q, r = torch.linalg.qr(block.T)
        blocks.append((q * torch.diagonal(r).sign()).T * block.norm(dim=1, keepdim=True))
    return torch.cat(blocks)
