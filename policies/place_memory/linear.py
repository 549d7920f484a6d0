"""Places remembered in the state of linear attention, whose size and cost do not grow."""

import math
from typing import Any

import torch
from torch import Tensor

from attention import FeatureMap, LinearMemory, feature_map
from attention.components import component
from policies.common.feature_maps import map_options
from policies.common.own import own_map
from policies.place_memory.config import PlaceMemoryConfig
from policies.place_memory.steps import SteppedPlaces

__all__ = ["LinearPlaces"]

_FITTED = 256  # places along the circle that maps with parameters of their own are fitted to


class LinearPlaces(SteppedPlaces):
    """`attention.LinearMemory` with the kernel exp(kappa cos(angle)) of places on a circle of path.

    Harmonic features are of the circle itself; other maps estimate the softmax kernel of its points
    in the plane, sqrt(kappa) from the origin.

    Sums are in float64. What is read far from all that was written is a ratio of sums of a
    thousandth of what went into them: of float32's seven digits four are left, and programs that
    sum in another order, as exported ones, act otherwise by 1e-4.

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
        # What other maps draw and fit is float32 in checkpoints.
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
            own_map(config.feature_map), 2, config.num_features, seed=config.feature_seed,
            **map_options(config),
        )  # fmt: skip
        circle = self._points(torch.arange(_FITTED) * (self.circle_m / _FITTED))
        made.fit(circle, circle)
        return made

    def start(self, batch: int, like: Tensor) -> Any:
        """Nothing written yet."""
        return self.memory.initial_state(batch)

    def cleared(self, state: Any, where: Tensor) -> Any:
        """Nothing written in those of the batch that are told, (batch,) bool."""
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
        if at_m.shape[1] == 1 and not learns_choice:  # which tells what those not written are worth
            return super().unroll(state, at_m, holes, weights, asked_m)
        if len(self.cells_m):
            batch = len(at_m)
            flat = (part.flatten(0, 1) for part in (at_m, holes, weights))
            at_m, holes, weights = (p.unflatten(0, (batch, -1)) for p in self._pooled(*flat))
        queries, origins = asked_m, None
        if self.is_harmonic and self.axes == 1:  # all legs read alike, from where they stand
            feet_m = asked_m.unflatten(-1, (-1, len(self.reads_m)))[..., 0] - self.reads_m[0]
            queries, origins = self.reads_m, self._points(feet_m)
        read, state = self.memory.unroll(
            state, self._points(queries), self._points(at_m), self._values(holes), gates=weights,
            origins=origins,
        )  # fmt: skip
        return read.squeeze(-1).to(asked_m), state

    def _pooled(self, at_m: Tensor, holes: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """A token a cell of the circle: the mean of its pixels, and their share of all; or 1, by
        the delta rule, where there are any."""
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
