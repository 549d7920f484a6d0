"""Memories from appearance, a unit vector, to what a foot felt: -1 (held) to 1 (gave way).

All have the interface of `attention.LinearMemory`: the state is an argument and a return value, of
a size that does not depend on how much was written.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from attention import FeatureMap, LinearMemory, feature_map
from attention.components import component
from attention.features.fixed import FixedFeatures
from policies.common.feature_maps import fit_to_directions
from policies.common.plugins import custom_map
from policies.felt_ground.memory_config import RAW, FeltMemoryConfig

_LEHMER_FACTOR, _LEHMER_PRIME = 16_807, 2**31 - 1
"""Of the congruence that hashes cells."""


class FeltMemory(nn.Module):
    """Base class, and the memory that holds nothing.

    Args:
        config: its settings.
        dim: d, dimension of the keys.

    Raises ValueError for settings that do not fit d.
    """

    directions: Tensor | None
    """Orthonormal rows (p, d) onto which keys are projected."""
    place: Tensor
    """Empty tensor that holds the dtype and device of states."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__()
        self.config, self.dim = config, dim
        drawn = None
        if config.project is not None:
            if config.project > dim:
                raise ValueError(f"project must be at most {dim}, the dimension of keys, got "
                                 f"{config.project}")  # fmt: skip
            drawn = directions(config.project, dim, config.seed)
        self.register_buffer("directions", drawn)
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def width(self) -> int:
        """Dimension of the keys that are stored."""
        return self.config.project or self.dim

    @property
    def numbers(self) -> int:
        """Numbers that a full memory carries from a step to the next."""
        return 0

    def initial_state(self, batch: int) -> Any:
        """The empty state, a NamedTuple of tensors (batch, ...)."""
        return NothingState(self.place.new_zeros(batch, 0))

    def reset(self, state: Any, where: Tensor) -> Any:
        """The state, empty where the mask (batch,) is True."""
        fresh = self.initial_state(len(where))
        pairs = zip(state, fresh, strict=True)
        return type(state)(*(torch.where(_like(where, old), new, old) for old, new in pairs))

    def write(
        self, state: Any, keys: Tensor, values: Tensor, *, gates: Tensor | None = None
    ) -> Any:
        """Take in samples in order: keys (batch, L, d), values (batch, L, 1), and gates (batch, L),
        0 where there is no sample; those above 0 are weights where the kind has them."""
        keys = self._projected(keys)
        with component("score"):
            gates = torch.ones_like(keys[..., 0]) if gates is None else gates.to(keys)
            samples = zip(
                keys.unbind(1), values.squeeze(-1).unbind(1), gates.unbind(1), strict=True
            )
            for key, value, gate in samples:
                new = self._taken(state, key, value.to(key), gate)
                pairs = zip(new, state, strict=True)
                state = type(state)(*(torch.where(_like(gate > 0, a), a, b) for a, b in pairs))
        return state

    def read(self, state: Any, queries: Tensor) -> Tensor:
        """What is remembered at queries (batch, n, d): (batch, n, 1), 0 where nothing is known."""
        with component("score"):
            return self._recalled(state, self._projected(queries)).unsqueeze(-1)

    def _projected(self, keys: Tensor) -> Tensor:
        return keys if self.directions is None else normalize(keys @ self.directions.mT, dim=-1)

    def _taken(self, state: Any, key: Tensor, value: Tensor, gate: Tensor) -> Any:
        """The state with a sample for each of the batch: key (batch, p), value, gate (batch,)."""
        return state

    def _recalled(self, state: Any, queries: Tensor) -> Tensor:
        return torch.zeros_like(queries[..., 0])


class NothingState(NamedTuple):
    """(batch, 0)"""

    nothing: Tensor


class RawFeatures(FixedFeatures):
    """The tokens and a constant, [u, 1]: the kernel 1 + x.y. F = d + 1."""

    name = RAW
    signed = True

    @property
    def output_dim(self) -> int:
        return self.dim + 1

    def queries(self, x: Tensor) -> Tensor:
        x = self.prepare("queries and keys", x, self.place)
        return torch.cat((x, torch.ones_like(x[..., :1])), -1)


class LinearFelt(FeltMemory):
    """`attention.LinearMemory` over a feature map, fitted to random keys."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__(config, dim)
        rate = config.rate if config.rule == "delta" else None
        self.memory = LinearMemory(self.width, 1, features(config, self.width),
                                   rule=config.rule, rate=rate)  # fmt: skip

    @property
    def numbers(self) -> int:
        return self.memory.feature_map.output_dim * (1 if self.config.rule == "delta" else 2)

    def initial_state(self, batch: int) -> Any:
        return self.memory.initial_state(batch)

    def reset(self, state: Any, where: Tensor) -> Any:
        return self.memory.reset(state, where)

    def write(
        self, state: Any, keys: Tensor, values: Tensor, *, gates: Tensor | None = None
    ) -> Any:
        keys = self._projected(keys) * math.sqrt(self.config.kappa)
        if self.config.forgetting == 1:
            return self.memory.write(state, keys, values, gates=gates)
        for i in range(keys.shape[1]):
            one = slice(i, i + 1)
            gate = None if gates is None else gates[:, one]
            kept: Any = self.config.forgetting
            if gate is not None:
                kept = torch.where(gate[:, 0] > 0, kept, 1.0)
            state = self.memory.write(state, keys[:, one], values[:, one], gates=gate, decay=kept)
        return state

    def read(self, state: Any, queries: Tensor) -> Tensor:
        queries = self._projected(queries) * math.sqrt(self.config.kappa)
        return self.memory.read(state, queries).to(queries)


class Samples(NamedTuple):
    """The newest samples, in a ring."""

    keys: Tensor
    """(batch, capacity, p)"""
    values: Tensor
    """(batch, capacity)"""
    taken: Tensor
    """Samples so far, (batch, 1)."""


class Ring(FeltMemory):
    """Base class of memories that keep the newest samples themselves."""

    @property
    def numbers(self) -> int:
        return self.config.capacity * (self.width + 1)

    def initial_state(self, batch: int) -> Samples:
        size = self.config.capacity
        new = self.place.new_zeros
        return Samples(new(batch, size, self.width), new(batch, size), new(batch, 1))

    def _taken(self, state: Samples, key: Tensor, value: Tensor, gate: Tensor) -> Samples:
        at = (state.taken % self.config.capacity).long()
        there = at.unsqueeze(-1).expand(-1, 1, self.width)
        keys = state.keys.scatter(1, there, key.unsqueeze(1))
        return Samples(keys, state.values.scatter(1, at, value.unsqueeze(1)), state.taken + 1)

    def _ages(self, state: Samples) -> tuple[Tensor, Tensor]:
        """Samples after each one, and whether it is there, (batch, capacity)."""
        slots = torch.arange(self.config.capacity, device=state.taken.device)
        return (state.taken - 1 - slots) % self.config.capacity, slots < state.taken


class ExactFelt(Ring):
    """Softmax attention over the kept samples, of weights exp(kappa x.y) forgetting^age; or
    (nearest) the value of the sample of largest weight."""

    def _recalled(self, state: Samples, queries: Tensor) -> Tensor:
        ages, there = self._ages(state)
        late = ages * math.log(self.config.forgetting)
        weights = self.config.kappa * (queries @ state.keys.mT) + late.unsqueeze(1)
        weights = weights.masked_fill(~there.unsqueeze(1), -1e9)
        if self.config.kind == "nearest":
            return state.values.gather(1, weights.argmax(-1))
        found = (weights.softmax(-1) @ state.values.unsqueeze(-1)).squeeze(-1)
        return torch.where(there.any(1, keepdim=True), found, 0.0)


class Prototypes(NamedTuple):
    """Sums over the samples of each prototype."""

    keys: Tensor
    """(batch, capacity, p)"""
    values: Tensor
    """(batch, capacity)"""
    counts: Tensor
    """(batch, capacity), 0 of unused prototypes."""


class LeaderFelt(FeltMemory):
    """A sample joins the prototype of largest cosine, or begins another one if that is below the
    threshold and one is unused (leader clustering: Hartigan, Clustering Algorithms, chapter 3). A
    read is the mean of the values of the nearest prototype."""

    @property
    def numbers(self) -> int:
        return self.config.capacity * (self.width + 2)

    def initial_state(self, batch: int) -> Prototypes:
        size, new = self.config.capacity, self.place.new_zeros
        return Prototypes(new(batch, size, self.width), new(batch, size), new(batch, size))

    def _taken(self, state: Prototypes, key: Tensor, value: Tensor, gate: Tensor) -> Prototypes:
        best, at = self._cosines(state, key.unsqueeze(1)).squeeze(1).max(-1)
        used = (state.counts > 0).sum(-1)
        begins = (best < self.config.threshold) & (used < self.config.capacity)
        at = torch.where(begins, used.clamp_max(self.config.capacity - 1), at).unsqueeze(-1)
        chosen = torch.zeros_like(state.counts).scatter(1, at, 1.0)
        kept = 1 + chosen * (self.config.forgetting - 1)
        gate = chosen * gate.unsqueeze(-1)
        keys = state.keys * kept.unsqueeze(-1) + gate.unsqueeze(-1) * key.unsqueeze(1)
        values = state.values * kept + gate * value.unsqueeze(-1)
        return Prototypes(keys, values, state.counts * kept + gate)

    def _recalled(self, state: Prototypes, queries: Tensor) -> Tensor:
        at = self._cosines(state, queries).argmax(-1)
        return (state.values / state.counts.clamp_min(1e-9)).gather(1, at)

    def _cosines(self, state: Prototypes, queries: Tensor) -> Tensor:
        """(batch, n, capacity)"""
        cosines = queries @ normalize(state.keys, dim=-1).mT
        return cosines.masked_fill((state.counts == 0).unsqueeze(1), -2.0)


class Regression(NamedTuple):
    """State of recursive least squares, in float64."""

    weights: Tensor
    """(batch, F)"""
    inverse: Tensor
    """Inverse of the features' second moments, symmetric (batch, F, F)."""


class LeastSquaresFelt(FeltMemory):
    """Recursive least squares on features of the keys, with a forgetting factor (Ljung and
    Soderstrom, Theory and Practice of Recursive Identification, section 2.2)."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__(config, dim)
        self.features = features(config, self.width)

    @property
    def numbers(self) -> int:
        size = self.features.output_dim
        return size + size * (size + 1) // 2

    def initial_state(self, batch: int) -> Regression:
        size = self.features.output_dim
        eye = torch.eye(size, dtype=torch.float64, device=self.place.device) / self.config.ridge
        return Regression(eye.new_zeros(batch, size), eye.expand(batch, size, size))

    def _taken(self, state: Regression, key: Tensor, value: Tensor, gate: Tensor) -> Regression:
        phi, kept = self._features(key), self.config.forgetting
        along = (state.inverse @ phi.unsqueeze(-1)).squeeze(-1)
        gain = along / (kept + (phi * along).sum(-1, keepdim=True))
        wrong = value - (state.weights * phi).sum(-1)
        inverse = (state.inverse - gain.unsqueeze(-1) * along.unsqueeze(1)) / kept
        return Regression(state.weights + gain * wrong.unsqueeze(-1), inverse)

    def _recalled(self, state: Regression, queries: Tensor) -> Tensor:
        return (self._features(queries) @ state.weights.unsqueeze(-1)).squeeze(-1).to(queries)

    def _features(self, keys: Tensor) -> Tensor:
        return self.features.queries(keys * math.sqrt(self.config.kappa)).double()


class Cells(NamedTuple):
    """Sums of the values, and counts, of all tables' cells, (batch, tables x cells)."""

    values: Tensor
    counts: Tensor


class GridFelt(FeltMemory):
    """Means of the values in cells along random directions; more cells than there are numbers for
    are hashed."""

    along: Tensor
    """Orthonormal directions of each table, (tables, directions, p)."""
    edges: Tensor
    """(bins - 1,), quantiles of a coordinate of random keys."""

    def __init__(self, config: FeltMemoryConfig, dim: int) -> None:
        super().__init__(config, dim)
        if config.directions > self.width:
            raise ValueError(f"directions must be at most {self.width}, the dimension of keys, got "
                             f"{config.directions}")  # fmt: skip
        drawn = (directions(config.directions, self.width, config.seed + 1 + table)
                 for table in range(config.tables))  # fmt: skip
        self.register_buffer("along", torch.stack(tuple(drawn)))
        shares = torch.arange(1, config.bins) / config.bins
        self.register_buffer("edges", torch.special.ndtri(shares) / math.sqrt(self.width))

    @property
    def numbers(self) -> int:
        cells = min(self.config.cells, self.config.bins**self.config.directions)
        return 2 * self.config.tables * cells

    def initial_state(self, batch: int) -> Cells:
        size = self.config.tables * self.config.cells
        return Cells(self.place.new_zeros(batch, size), self.place.new_zeros(batch, size))

    def _taken(self, state: Cells, key: Tensor, value: Tensor, gate: Tensor) -> Cells:
        chosen = torch.zeros_like(state.counts).scatter(1, self._cells(key), 1.0)
        kept, gate = 1 + chosen * (self.config.forgetting - 1), chosen * gate.unsqueeze(-1)
        values = state.values * kept + gate * value.unsqueeze(-1)
        return Cells(values, state.counts * kept + gate)

    def _recalled(self, state: Cells, queries: Tensor) -> Tensor:
        at = self._cells(queries)
        sums, counts = (part.gather(1, at.flatten(1)).view_as(at).sum(-1) for part in state)
        return sums / counts.clamp_min(1e-9)

    def _cells(self, keys: Tensor) -> Tensor:
        """Cells of keys (..., p): (..., tables), numbered through all tables."""
        coordinates = torch.einsum("...p,tgp->...tg", keys, self.along)
        bins = torch.bucketize(coordinates.contiguous(), self.edges)
        number = torch.zeros_like(bins[..., 0])
        is_hashed = self.config.bins**self.config.directions > self.config.cells
        factor = _LEHMER_FACTOR if is_hashed else self.config.bins
        for i in range(self.config.directions):
            number = (number * factor + bins[..., i]) % _LEHMER_PRIME
        offset = torch.arange(self.config.tables, device=keys.device) * self.config.cells
        return number % self.config.cells + offset


def directions(count: int, dim: int, seed: int) -> Tensor:
    """Random orthonormal rows (count, dim)."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(normal)[0][:count].float()


def features(config: FeltMemoryConfig, dim: int) -> FeatureMap:
    """The feature map of the settings, fitted to random keys of length sqrt(kappa)."""
    if config.feature_map == RAW:
        return RawFeatures(dim, 1)
    made = feature_map(
        custom_map(config.feature_map), dim, config.num_features, projection=config.projection,
        seed=config.seed,
    )  # fmt: skip
    fit_to_directions(made, math.sqrt(config.kappa))
    return made


def _like(where: Tensor, other: Tensor) -> Tensor:
    """A mask (batch,) with the dimensions of the other tensor."""
    return where.reshape(-1, *(1,) * (other.ndim - 1))


def felt_memory(config: FeltMemoryConfig, dim: int) -> FeltMemory:
    """Build the memory of the settings for keys of dimension `dim`. Raises ValueError for settings
    that do not fit."""
    from policies.felt_ground import networks  # late: they are such memories themselves

    kinds: dict[str, type[FeltMemory]] = {
        "linear": LinearFelt,
        "exact": ExactFelt,
        "nearest": ExactFelt,
        "leader": LeaderFelt,
        "least_squares": LeastSquaresFelt,
        "grid": GridFelt,
        "gru": networks.GruFelt,
        "transformer": networks.TransformerFelt,
        "none": FeltMemory,
    }
    return kinds[config.kind](config, dim)
