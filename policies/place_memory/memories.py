"""Memories of places along the path: linear attention, exact attention and a grid of cells."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention import FeatureMap, LinearMemory, feature_map
from attention.components import component
from policies.common.feature_maps import map_options
from policies.common.plugins import custom_map
from policies.place_memory.config import PlaceMemoryConfig

_FITTED = 256  # places along the circle to which maps with parameters are fitted
_ABSENT = -1e4
"""Logarithm of the weight of a discarded token, less twice kappa, so that every other token
outweighs it: not infinity, which has no gradient."""
_LEAST_COUNT = 1e-2  # pixels: a cell with less counts as empty


class SteppedPlaces(nn.Module):
    """Base class of memories of places: a step is a write and then a read.

    The state is an argument and a return value. Places on a torus have a last dimension of 2.
    """

    @property
    def is_alike(self) -> bool:
        """Whether a step runs the same operations for any number of tokens."""
        return True

    def start(self, batch: int, like: Tensor) -> Any:
        """The empty state, a NamedTuple of tensors (batch, ...)."""
        raise NotImplementedError

    def cleared(self, state: Any, where: Tensor) -> Any:
        """The state, empty where the mask (batch,) is True."""
        raise NotImplementedError

    def write(self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor) -> Any:
        """Forget, then take in tokens: places, shares of holes and weights from 0 to 1, each
        (batch, tokens)."""
        raise NotImplementedError

    def read(self, state: Any, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        raise NotImplementedError

    def unroll(
        self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor, asked_m: Tensor
    ) -> tuple[Tensor, Any]:
        """Write tokens (batch, steps, tokens) and read places (batch, steps, reads), step by step:
        shares of holes there (batch, steps, reads), and the last state."""
        found = []
        parts = (part.unbind(1) for part in (at_m, holes, weights, asked_m))
        for *tokens, asked in zip(*parts, strict=True):
            if not torch.compiler.is_compiling():  # where no shape may depend on numbers
                some = tokens[2].any(0)  # tokens without weight in all of the batch go
                if torch.jit.is_tracing():  # but for one: without any, operations would be others
                    some = some | (~some.any() & (torch.arange(len(some)) == 0))
                written = some.nonzero().squeeze(-1)
                tokens = [part.index_select(1, written) for part in tokens]
            state = self.write(state, *tokens)
            found.append(self.read(state, asked))
        return torch.stack(found, 1), state


class LinearPlaces(SteppedPlaces):
    """`attention.LinearMemory` with the kernel exp(kappa cos(angle)) of places on a circle of path.

    Harmonic features are of the circle itself; other maps estimate the softmax kernel of its points
    in the plane, sqrt(kappa) from the origin.

    Sums use float64. Reads far from all written places are ratios of sums that cancel to a
    thousandth of their terms: float32 would keep only four digits, and a different summation order,
    as in exports, would change actions by 1e-4.

    Args:
        config: the policy's settings.
        reads_m: places that a leg reads, from its nominal foothold.
        axes: dimensions of places; with 2, where the path turns, they are (..., n, 2) and lie on
            the torus of two such circles, which only harmonic features take.
    """

    cells_m: Tensor
    """Centres of the cells that pixels are pooled in; none where they are not."""
    reads_m: Tensor

    def __init__(self, config: PlaceMemoryConfig, reads_m: Tensor, axes: int = 1) -> None:
        super().__init__()
        self.axes = axes
        self.circle_m, self.length = config.circle_m, math.sqrt(config.kappa)
        self.is_harmonic = config.feature_map == "harmonic"
        # Random and fitted values of other maps are float32 in checkpoints.
        self.dtype = torch.float64 if self.is_harmonic else torch.float32
        made: Any = "harmonic" if self.is_harmonic else self._fitted(config)
        options: dict[str, Any] = {}
        if self.is_harmonic:
            options = {"kappa": config.kappa, "period": config.circle_m}
        self.is_chosen = config.write_tokens is not None
        self.is_delta = config.rule == "delta"
        options |= {"rate": config.rate} if self.is_delta else {}
        self.memory = LinearMemory(
            axes if self.is_harmonic else 2, 1, made, config.num_features, rule=config.rule,
            decay=config.forgetting, dtype=self.dtype, state_dtype=torch.float64, **options,
        )  # fmt: skip
        cells = 0 if config.pool_m is None else max(1, round(config.circle_m / config.pool_m))
        centres_m = (torch.arange(cells) + 0.5) * (config.circle_m / max(1, cells))
        self.register_buffer("cells_m", centres_m, persistent=False)
        self.register_buffer("reads_m", reads_m, persistent=False)

    @property
    def is_alike(self) -> bool:
        """Whether a step is the same operations however many tokens it has: the delta rule goes
        through them in parts."""
        return not self.is_delta or len(self.cells_m) > 0

    def _fitted(self, config: PlaceMemoryConfig) -> FeatureMap:
        made = feature_map(
            custom_map(config.feature_map), 2, config.num_features, seed=config.feature_seed,
            **map_options(config),
        )  # fmt: skip
        circle = self._points(torch.arange(_FITTED) * (self.circle_m / _FITTED))
        made.fit(circle, circle)
        return made

    def start(self, batch: int, like: Tensor) -> Any:
        return self.memory.initial_state(batch)

    def cleared(self, state: Any, where: Tensor) -> Any:
        return self.memory.reset(state, where)

    def write(self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor) -> Any:
        """A step: forget, then take in pixels at places, each (batch, pixels)."""
        visible = None
        if len(self.cells_m):
            at_m, holes, weights = self._pooled(at_m, holes, weights)
        elif torch.compiler.is_compiling() or torch.jit.is_tracing():
            visible = weights > 0  # tokens without weight are there, see `SteppedPlaces`
        return self.memory.write(
            state, self._points(at_m), self._values(holes), gates=weights, key_mask=visible
        )

    def read(self, state: Any, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        return self.memory.read(state, self._points(at_m)).squeeze(-1).to(at_m)

    def unroll(
        self, state: Any, at_m: Tensor, holes: Tensor, weights: Tensor, asked_m: Tensor
    ) -> tuple[Tensor, Any]:
        """Several steps in few large products, see `SteppedPlaces`."""
        learns_choice = self.is_chosen and weights.requires_grad
        if at_m.shape[1] == 1 and not learns_choice:  # a learned choice needs gradients
            return super().unroll(state, at_m, holes, weights, asked_m)
        if len(self.cells_m):
            batch = len(at_m)
            flat = (part.flatten(0, 1) for part in (at_m, holes, weights))
            at_m, holes, weights = (p.unflatten(0, (batch, -1)) for p in self._pooled(*flat))
        queries, origins = asked_m, None
        if self.is_harmonic and self.axes == 1:  # all legs read the same offsets
            feet_m = asked_m.unflatten(-1, (-1, len(self.reads_m)))[..., 0] - self.reads_m[0]
            queries, origins = self.reads_m, self._points(feet_m)
        read, state = self.memory.unroll(
            state, self._points(queries), self._points(at_m), self._values(holes), gates=weights,
            origins=origins,
        )  # fmt: skip
        return read.squeeze(-1).to(asked_m), state

    def _pooled(self, at_m: Tensor, holes: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """One token per cell of the circle: the mean of its pixels, and their share of all pixels
        as weight; with the delta rule the weight is 1 where there are any."""
        with component("tokens"):
            count = len(self.cells_m)
            cells = (at_m * (count / self.circle_m)).floor().long() % count
            nothing = at_m.new_zeros(len(at_m), count)
            pixels = nothing.scatter_add(1, cells, weights)
            means = nothing.scatter_add(1, cells, weights * holes) / pixels.clamp_min(1)
            shares = (pixels > 0).to(pixels) if self.is_delta else pixels / max(1, at_m.shape[1])
            return self.cells_m.expand_as(means), means, shares

    def _points(self, at_m: Tensor) -> Tensor:
        """Metres, (..., n) or (..., n, 2) -> queries or keys (..., n, d)."""
        at_m = at_m.to(self.dtype)
        if self.axes == 2:
            return at_m
        if self.is_harmonic:
            return at_m.unsqueeze(-1)
        with component("tokens"):
            angle = at_m * (2 * math.pi / self.circle_m)
            return torch.stack((angle.cos(), angle.sin()), -1) * self.length

    def _values(self, holes: Tensor) -> Tensor:
        """Shares of holes (..., n) -> (..., n, 1)."""
        return holes.to(self.dtype).unsqueeze(-1)


class ExactState(NamedTuple):
    """The stored tokens, (batch, tokens)."""

    cosines: Tensor
    """Cosines of the angles on the circle."""
    sines: Tensor
    holes: Tensor
    log_weight: Tensor
    age: Tensor
    """Age of each token in steps; infinite where there is no token."""


class ExactPlaces(SteppedPlaces):
    """Softmax attention over all stored tokens, which the linear memory estimates.

    Its kernel is exp(kappa cos(angle)) on a circle of path, times forgetting^age.

    Its state and its cost grow with the number of stored tokens.

    Args:
        circle_m: length of the circle, metres.
        kappa: concentration of the kernel.
        forgetting: factor by which a step discounts the weight of earlier tokens.
        steps: number of steps for which a token is stored; None: until the episode ends.
    """

    def __init__(self, circle_m: float, kappa: float, forgetting: float, steps: int | None) -> None:
        super().__init__()
        self.turn, self.kappa = 2 * math.pi / circle_m, kappa
        self.log_kept, self.steps = math.log(forgetting), steps

    def start(self, batch: int, like: Tensor) -> ExactState:
        return ExactState(*(like.new_zeros(batch, 0) for _ in ExactState._fields))

    def cleared(self, state: ExactState, where: Tensor) -> ExactState:
        return state._replace(age=state.age.masked_fill(where.unsqueeze(-1), torch.inf))

    def write(self, state: ExactState, at_m: Tensor, holes: Tensor, weights: Tensor) -> ExactState:
        """A step: let tokens grow older, then take in those of weight above 0, each (batch,
        pixels)."""
        with component("score"):
            own = torch.where(weights > 0, 0.0, torch.inf).to(at_m)
            new = (*self._point(at_m), holes, weights.log(), own)
            old = state._replace(age=state.age + 1)
            tokens = ExactState(*(torch.cat(pair, 1) for pair in zip(old, new, strict=True)))
            oldest = math.inf if self.steps is None else self.steps
            kept = (tokens.age < oldest).any(0)
            return ExactState(*(part[:, kept] for part in tokens))

    def read(self, state: ExactState, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        with component("score"):
            there = state.age.isfinite()
            nothing = _ABSENT - 2 * self.kappa
            late = torch.where(there, state.log_weight + state.age * self.log_kept, nothing)
            cosines, sines = self._point(at_m)
            queries = (self.kappa * cosines, self.kappa * sines, torch.ones_like(cosines))
            keys = (state.cosines, state.sines, late)
            values = (state.holes, *(2 * [torch.zeros_like(state.holes)]))  # as wide as keys are
            # One fused kernel: a tenth of the time of products and a softmax one after the other.
            q, k, v = (torch.stack(part, -1).unsqueeze(1) for part in (queries, keys, values))
            mixed = functional.scaled_dot_product_attention(q, k, v, scale=1.0)[:, 0, :, 0]
            return torch.where(there.any(1, keepdim=True), mixed, 0.0)

    def _point(self, at_m: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of places on the circle."""
        angle = at_m * self.turn
        return angle.cos(), angle.sin()


class GridState(NamedTuple):
    """The weights of all pixels and of holes per cell, (batch, cells)."""

    counts: Tensor
    holes: Tensor


class PlaceGrid(SteppedPlaces):
    """Shares of holes in cells on a circle of path: a classical occupancy grid.

    The cells are fixed and the robot moves over them, so that motion does not blur the grid.

    Args:
        circle_m: length of the circle, metres.
        cell_m: length of a cell, metres; the circle has the nearest whole number of cells.
        forgetting: factor by which a step discounts earlier writes.
        axes: dimensions of places; with 2, where the path turns, they are (..., n, 2), and cells
            are squares on the torus of two such circles.
    """

    def __init__(self, circle_m: float, cell_m: float, forgetting: float, axes: int = 1) -> None:
        super().__init__()
        self.side = max(1, round(circle_m / cell_m))
        self.axes, self.cells = axes, self.side**axes
        self.cell_m, self.forgetting = circle_m / self.side, forgetting

    def start(self, batch: int, like: Tensor) -> GridState:
        return GridState(like.new_zeros(batch, self.cells), like.new_zeros(batch, self.cells))

    def cleared(self, state: GridState, where: Tensor) -> GridState:
        return GridState(*(part.masked_fill(where.unsqueeze(-1), 0) for part in state))

    def write(self, state: GridState, at_m: Tensor, holes: Tensor, weights: Tensor) -> GridState:
        """A step: forget, then take in pixels at places, each (batch, pixels)."""
        with component("score"):
            cells = self._cell(at_m)
            return GridState(
                (self.forgetting * state.counts).scatter_add(1, cells, weights),
                (self.forgetting * state.holes).scatter_add(1, cells, weights * holes),
            )

    def read(self, state: GridState, at_m: Tensor) -> Tensor:
        """Shares of holes at places (batch, reads), 0 where nothing was written."""
        with component("score"):
            cells = self._cell(at_m)
            counts, holes = state.counts.gather(1, cells), state.holes.gather(1, cells)
            return torch.where(counts > _LEAST_COUNT, holes / counts.clamp_min(_LEAST_COUNT), 0.0)

    def _cell(self, at_m: Tensor) -> Tensor:
        cells = (at_m / self.cell_m).floor().long() % self.side
        return cells if self.axes == 1 else cells[..., 0] * self.side + cells[..., 1]
