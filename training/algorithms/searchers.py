"""Black-box searchers that maximise: CMA-ES, PGPE and ARS.

Each is a pair `ask(seed)`, `tell(population, returns)`. A population is a pure function of the
searcher's state and the seed, so a run resumes exactly without saving a random generator.
"""

import math
from typing import Any, TypeVar

import torch
from torch import Tensor

from training.algorithms.es_config import (
    MOST_FOR_FULL_COVARIANCE,
    ARSConfig,
    AutoConfig,
    CMAESConfig,
    PGPEConfig,
    SearcherConfig,
)

T = TypeVar("T")
_MOST_CHANGE = 0.2
"""Share by which PGPE changes a standard deviation at most in an update."""


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
        """Update from the returns (popsize,) of the population that `ask` returned last."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The complete state for `load_state`: tensors and JSON numbers."""
        raise NotImplementedError

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Restore the state returned by `state`."""
        raise NotImplementedError


def build(
    config: SearcherConfig, center: Tensor, popsize: int, groups: Tensor | None = None
) -> Searcher:
    """The searcher of a configuration, started at `center` (parameters,); `Separate` with
    `groups`."""
    center = center.detach().to("cpu", torch.float64).clone()
    if groups is not None:
        return Separate(config, center, popsize, groups)
    if isinstance(config, AutoConfig):
        config = config.choice(len(center))
    kinds: dict[str, Any] = {"cmaes": CMAES, "pgpe": PGPE, "ars": ARS}
    searcher: Searcher = kinds[config.name](config, center, popsize)
    return searcher


class Separate(Searcher):
    """A search distribution for each group of parameters, which have separate returns.

    Args:
        config: the configuration of each.
        center: (parameters,).
        popsize: number of candidates.
        groups: (parameters,), the column of the returns that judges each parameter, from 0.
    """

    def __init__(
        self, config: SearcherConfig, center: Tensor, popsize: int, groups: Tensor
    ) -> None:
        self._places = [torch.nonzero(groups == k)[:, 0] for k in range(int(groups.max()) + 1)]
        self._each = [build(config, center[places], popsize) for places in self._places]
        self.antithetic = self._each[0].antithetic

    @property
    def center(self) -> Tensor:  # type: ignore[override]
        return self._joined([one.center for one in self._each])

    @property
    def sigma(self) -> float:  # type: ignore[override]
        squares = [len(p) * o.sigma**2 for p, o in zip(self._places, self._each, strict=True)]
        return math.sqrt(sum(squares) / sum(map(len, self._places)))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        """(..., parameters) of the groups' parts."""
        found = parts[0].new_empty((*parts[0].shape[:-1], sum(map(len, self._places))))
        for places, part in zip(self._places, parts, strict=True):
            found[..., places] = part
        return found

    def ask(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        seeds = torch.randint(2**62, (len(self._each),), generator=generator).tolist()
        return self._joined([o.ask(s) for o, s in zip(self._each, seeds, strict=True)])

    def tell(self, population: Tensor, returns: Tensor) -> None:
        """Update from the population and its returns (popsize, groups or more)."""
        for places, one, own in zip(self._places, self._each, returns.T, strict=False):
            one.tell(population[:, places], own)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        states = [one.state() for one in self._each]
        return (
            {
                f"{k}.{name}": t
                for k, (tensors, _) in enumerate(states)
                for name, t in tensors.items()
            },
            {
                f"{k}.{name}": n
                for k, (_, numbers) in enumerate(states)
                for name, n in numbers.items()
            },
        )

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        for k, one in enumerate(self._each):
            one.load_state(_of_group(tensors, k), _of_group(numbers, k))


def _of_group(parts: dict[str, T], k: int) -> dict[str, T]:
    start = f"{k}."
    return {n.removeprefix(start): part for n, part in parts.items() if n.startswith(start)}


def centered_ranks(returns: Tensor) -> Tensor:
    """Ranks scaled to [-1/2, 1/2], equal returns sharing their mean rank.

    Ranks by position would order equal returns: a population that all fell on the first stone
    would move the centre at random.
    """
    below = (returns[:, None] > returns[None, :]).sum(1)
    above = (returns[:, None] < returns[None, :]).sum(1)
    return (below - above).to(torch.float64) / (2 * max(len(returns) - 1, 1))


class CMAES(Searcher):
    """CMA-ES with active covariance update (Hansen 2016, *The CMA Evolution Strategy: A Tutorial*).

    Equations and symbols are the tutorial's. Each sample is kept as z ~ N(0, I) and y = A z, so
    C = A A^T needs a Cholesky factor in place of eigenvectors (EvoTorch does the same).
    """

    antithetic = False
    _TENSORS = ("m", "sigma", "C", "A", "p_sigma", "p_c")

    def __init__(self, config: CMAESConfig, center: Tensor, popsize: int) -> None:
        if len(center) > MOST_FOR_FULL_COVARIANCE and not config.separable:
            raise ValueError(
                f"the policy has {len(center)} parameters, and searcher.name = cmaes takes at most "
                f"{MOST_FOR_FULL_COVARIANCE}: set searcher.separable = true, or searcher.name = "
                "auto, pgpe or ars"
            )
        self._separable, self._popsize = config.separable, popsize
        self._set_rates(len(center), popsize)
        ones = torch.ones_like(center)
        shape = ones if config.separable else torch.diag(ones)
        zeros, sigma = torch.zeros_like(center), torch.tensor(config.sigma, dtype=torch.float64)
        self._generation = 0
        self._sample: tuple[Tensor, Tensor] | None = None
        self._set(
            dict(zip(self._TENSORS, (center, sigma, shape, shape, zeros, zeros), strict=True))
        )

    def _set_rates(self, d: int, popsize: int) -> None:
        """Weights (eqs. 49 to 53) and rates (eqs. 54 to 58; for a diagonal C, those of pycma)."""
        positions = torch.arange(popsize) + 1
        # Logarithms in float32, as in EvoTorch: runs of before resume with the same weights.
        raw = (math.log((popsize + 1) / 2) - torch.log(positions)).double()
        positive, negative = raw[: popsize // 2], raw[popsize // 2 :]
        mu_eff = positive.sum().square() / positive.square().sum()
        self._c_sigma = (mu_eff + 2) / (d + mu_eff + 3)
        damping = max(0.0, math.sqrt((float(mu_eff) - 1) / (d + 1)) - 1)
        self._sigma_rate = self._c_sigma / (1 + 2 * damping + self._c_sigma)
        if self._separable:
            root = math.sqrt(d)
            self._c_c = (1 + 1 / d + mu_eff / d) / (root + 1 / d + 2 * (mu_eff / d))
            self._c_1 = 1 / (d + 2 * root + mu_eff / d)
            self._c_mu = (0.25 + mu_eff + 1 / mu_eff - 2) / (d + 4 * root + mu_eff / 2)
        else:
            self._c_c = (4 + mu_eff / d) / (d + (4 + 2 * mu_eff / d))
            self._c_1 = min(1, popsize / 6) * 2 / ((d + 1.3) ** 2 + mu_eff)
            most = 2 * ((0.25 + mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))
            self._c_mu = min(1 - self._c_1, most)
        self._sigma_path = torch.sqrt(self._c_sigma * (2 - self._c_sigma) * mu_eff)
        self._c_path = torch.sqrt(self._c_c * (2 - self._c_c) * mu_eff)
        negative_eff = negative.sum().square() / negative.square().sum()
        alpha = min(
            1 + self._c_1 / self._c_mu,
            1 + 2 * negative_eff / (mu_eff + 2),
            (1 - self._c_mu - self._c_1) / (d * self._c_mu),
        )
        negative = alpha * negative / negative.abs().sum()
        self._weights = torch.cat((positive / positive.sum(), negative))
        self._expected_norm = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
        self._factor_every = max(1, math.floor(1 / (10 * d * float(self._c_1 + self._c_mu))))

    def ask(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        torch.randint(0, 1, (), generator=generator)  # EvoTorch drew this: runs of before resume
        shape = self._popsize, len(self._m)
        zs = torch.randn(shape, generator=generator, dtype=torch.float64)
        ys = self._A * zs if self._separable else (self._A @ zs.T).T
        self._sample = zs, ys
        return self._m + self._sigma * ys

    def tell(self, population: Tensor, returns: Tensor) -> None:
        assert self._sample is not None, "tell before ask"
        (zs, ys), self._sample = self._sample, None
        if bool((returns == returns[0]).all()):
            return  # ranked by their position, equal returns would move the centre at random
        d, weights = len(self._m), self._weights
        weights = weights[torch.argsort(torch.argsort(returns, descending=True, stable=True))]
        best = torch.topk(weights, self._popsize // 2)
        local = (best.values[:, None] * zs[best.indices]).sum(0)
        shaped = (best.values[:, None] * ys[best.indices]).sum(0)
        m = self._m + self._sigma * shaped
        p_sigma = (1 - self._c_sigma) * self._p_sigma + self._sigma_path * local
        growth = self._sigma_rate * (torch.norm(p_sigma) / self._expected_norm - 1)
        h_sig = self._h_sig(p_sigma)
        p_c = (1 - self._c_c) * self._p_c + h_sig * self._c_path * shaped
        # Negative weights are scaled so that C stays positive definite (eq. 46).
        weights = torch.where(weights > 0, weights, d * weights / zs.norm(dim=-1).square())
        c_1 = self._c_1 * (1 - (1 - h_sig**2) * self._c_c * (2 - self._c_c))
        C = self._C
        if self._separable:
            rank_1 = c_1 * (p_c.square() - C)
            rank_mu = self._c_mu * (weights[:, None] * (ys.square() - C)).sum(0)
        else:
            scaled = (self._c_1 / (c_1 + 1e-23)) ** 0.5 * p_c
            rank_1 = c_1 * (torch.outer(scaled, scaled) - C)
            products = weights[:, None, None] * (ys[:, None] * ys[:, :, None])
            rank_mu = self._c_mu * (products.sum(0) - self._weights.sum() * C)
        C, A = C + rank_1 + rank_mu, self._A
        self._generation += 1
        if self._generation % self._factor_every == 0:
            try:
                A = C.sqrt() if self._separable else torch.linalg.cholesky(C)
            except torch.linalg.LinAlgError:  # rounding made C indefinite: take the last good one
                C = A @ A.T
        sigma = self._sigma * torch.exp(growth)
        self._set({"m": m, "sigma": sigma, "C": C, "A": A, "p_sigma": p_sigma, "p_c": p_c})

    def _set(self, tensors: dict[str, Tensor]) -> None:
        """Copy these tensors in a fixed memory layout: the rounding of sums of products depends on
        the layout, which a checkpoint does not hold. LAPACK gives a factor column by column."""
        m, sigma, C, A, p_sigma, p_c = (tensors[name].contiguous() for name in self._TENSORS)
        self._A = A if self._separable else A.mT.contiguous().mT
        self._m, self._sigma, self._C, self._p_sigma, self._p_c = m, sigma, C, p_sigma, p_c
        variances = C if self._separable else torch.diagonal(C)
        self.center, self.sigma = m, float(sigma * variances.mean().sqrt())

    def _h_sig(self, p_sigma: Tensor) -> Tensor:
        """1, or 0 to stall the evolution path while sigma's own path is long (below eq. 45)."""
        dim = len(p_sigma)
        faded = 1 - (1 - self._c_sigma) ** (2 * (self._generation + 1))
        squared = p_sigma.square().sum() / faded
        return (squared / dim < 2 + 4 / (dim + 1)).to(torch.float64)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        tensors = {name: getattr(self, f"_{name}") for name in self._TENSORS}
        return tensors, {"generation": self._generation}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        self._set({name: tensors[name].clone() for name in self._TENSORS})
        self._generation = int(numbers["generation"])


class PGPE(Searcher):
    """PGPE with mirrored pairs (Sehnke et al. 2010) on tie-sharing ranks."""

    def __init__(self, config: PGPEConfig, center: Tensor, popsize: int) -> None:
        self._config, self._popsize = config, popsize
        self.center, zeros = center, torch.zeros_like(center)
        self._set_stdev(torch.full_like(center, config.sigma))
        self._optimizer = {"velocity": zeros}
        if config.optimizer == "adam":
            self._optimizer = {"m": zeros, "v": zeros, "t": torch.zeros((), dtype=torch.float64)}

    def _set_stdev(self, stdev: Tensor) -> None:
        self._stdev, self.sigma = stdev, float(stdev.square().mean().sqrt())

    def ask(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = self._popsize // 2, len(self.center)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64) * self._stdev
        return torch.stack((noise + self.center, -noise + self.center), 1).flatten(0, 1)

    def tell(self, population: Tensor, returns: Tensor) -> None:
        if torch.equal(returns[0::2], returns[1::2]):
            return  # no direction is better than its mirror image; ClipUp would divide 0 by 0
        ranks = centered_ranks(returns)
        ranks = ranks - ranks.mean()
        plus, minus, stdev, pairs = ranks[0::2], ranks[1::2], self._stdev, len(returns) // 2
        noise = population[0::2] - self.center
        gradient = (((plus - minus) / 2)[:, None] * noise).sum(0) / pairs
        spread = (noise**2 - stdev**2) / stdev
        wider = (((plus + minus) / 2)[:, None] * spread).sum(0) / pairs
        self.center = self.center + self._step(gradient)
        target, most = stdev + self._config.sigma_learning_rate * wider, _MOST_CHANGE * stdev
        self._set_stdev(torch.clamp(target, stdev - most, stdev + most))

    def _step(self, gradient: Tensor) -> Tensor:
        """The optimiser's step of the centre along the gradient, (parameters,)."""
        rate = self._config.learning_rate
        if self._config.optimizer == "clipup":
            velocity = 0.9 * self._optimizer["velocity"] + rate * (gradient / gradient.norm())
            speed, most = velocity.norm(), 2 * rate
            velocity = most * (velocity / speed) if speed > most else velocity
            self._optimizer = {"velocity": velocity}
            return velocity
        m, v, t = self._optimizer["m"], self._optimizer["v"], self._optimizer["t"] + 1
        m, v = 0.9 * m + (1 - 0.9) * gradient, 0.999 * v + (1 - 0.999) * gradient**2
        self._optimizer = {"m": m, "v": v, "t": t}
        return rate * (m / (1 - 0.9**t)) / (torch.sqrt(v / (1 - 0.999**t)) + 1e-8)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        return {"stdev": self._stdev, "center": self.center, **self._optimizer}, {}

    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
        own = {name: tensors[name].clone() for name in self.state()[0]}
        self._set_stdev(own.pop("stdev"))
        self.center, self._optimizer = own.pop("center"), own


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
