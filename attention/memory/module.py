"""Memory in the state of linear attention, over any feature map."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from attention.causal import CHUNK
from attention.components import SCORE, component
from attention.custom_maps import as_given
from attention.decays import check_decay, factor
from attention.features.base import FeatureMap
from attention.features.harmonic import HarmonicFeatures
from attention.joining import joined
from attention.memory import delta, plain
from attention.memory.delta import DeltaState
from attention.memory.tokens import Written, check_tokens, check_written, mapped, split
from attention.options import check_count, is_real
from attention.precision import Float32Buffers, full_precision, working_dtype
from attention.products import Features
from attention.registry import Maker
from attention.registry import feature_map as build_feature_map
from attention.streaming import features_of_keys, features_of_queries
from attention.sums import LinearAttentionState, initial_state, read
from attention.tracing import fixed_shape, known

RULES = ("sum", "delta")
MemoryState = LinearAttentionState | DeltaState
"""A NamedTuple of tensors; save `state._asdict()` to store it."""


class LinearMemory(Float32Buffers):
    """Memory of keys and values over time in a state of fixed size.

    A step is a frame of L tokens: `write` applies the decay and adds the tokens, `read` answers
    queries. The state is passed and returned; the module holds none. `unroll` processes many frames
    at once, for training, with the same results and gradients.

    Rule "sum" returns the weighted mean of values, sum w k(x, y) v / sum w k(x, y), where w is a
    token's gate times the decays since it was written: kernel regression, or attention, over all
    written tokens. With rule "delta" each token corrects the memory's output at its key
    (`attention.memory.delta`); the output is 0 where nothing was written.

    Leading dimensions (...) are arbitrary, such as (batch,) or (batch, heads). With `heads`, where
    each head has its random vectors, the last leading dimension is heads.

    Args:
        dim, value_dim: d and dv.
        feature_map: one of `attention.available()`; a class or function that creates a map; or a
            FeatureMap of this dim, for which num_features, projection, seed and options are
            ignored.
        num_features: m, the number of random vectors of the map.
        rule: "sum" or "delta"; "delta" requires a map whose queries and keys have the same
            features.
        decay: factor per step of earlier tokens, from 0 to 1: a number, or one per head.
        rate: for the delta rule, the factor b of the gates, in (0, 1]; default 1.
        floor: for the sum with signed maps, the least denominator, as a share of the largest that
            the written tokens can give; default 1e-3. Where less was written, outputs tend to 0
            instead of ratios of rounding errors.
        heads: as in `attention.feature_map`.
        projection, seed, device, dtype, map_options: options of the map, such as `kernel` or, for
            `harmonic`, `kappa` and `period`.
        state_dtype: dtype of the state and its sums, which casts of the module do not change;
            default: that of the map. float64 keeps the digits of outputs far from all written
            tokens, where denominators are small, and of sums over millions of steps.

    Raises:
        ValueError: if a number is out of range, the rule is unknown, or a map or option does not
            fit.
    """

    decay: Tensor
    """() or (heads,)"""

    def __init__(
        self,
        dim: int,
        value_dim: int,
        feature_map: str | Maker | FeatureMap = "harmonic",
        num_features: int = 26,
        *,
        rule: str = "sum",
        decay: float | Tensor = 1.0,
        rate: float | None = None,
        floor: float | None = None,
        heads: int | None = None,
        projection: str | Tensor = "orthogonal",
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        state_dtype: torch.dtype | None = None,
        **map_options: Any,
    ) -> None:
        super().__init__()
        self.dim, self.value_dim = check_count("dim", dim), check_count("value_dim", value_dim)
        self.heads = None if heads is None else check_count("heads", heads)
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        self.rule = rule
        self.rate = _of_rule("rate", rate, 1.0, "delta", rule)
        self.floor = _of_rule("floor", floor, 1e-3, "sum", rule)
        own_dtype = working_dtype(dtype or torch.get_default_dtype())
        if isinstance(feature_map, FeatureMap):
            cast = None if dtype is None else own_dtype
            as_given(feature_map, dim, heads, map_options, device, cast)
            self.feature_map: FeatureMap = feature_map
            for place in feature_map.buffers():
                if place.is_floating_point():
                    own_dtype, device = working_dtype(place.dtype), place.device
                    break
        else:
            self.feature_map = build_feature_map(
                feature_map,
                dim,
                num_features,
                projection=projection,
                seed=seed,
                heads=heads,
                dtype=own_dtype,
                device=device,
                **map_options,
            )
        if rule == "delta" and type(self.feature_map).keys is not FeatureMap.keys:
            raise ValueError(
                "rule='delta' needs a map whose queries and keys have the same features, got "
                f"{type(self.feature_map).__name__}"
            )
        check_decay(decay)
        if state_dtype not in (None, torch.float32, torch.float64):
            raise ValueError(f"state_dtype must be float32 or float64, got {state_dtype}")
        decays = torch.as_tensor(decay, dtype=state_dtype or own_dtype, device=device)
        if decays.shape not in ((), (heads,)):
            raise ValueError(
                f"decay must be a number or one for each of heads={heads}, got shape "
                f"{tuple(decays.shape)}"
            )
        self.state_dtype = state_dtype
        self.register_buffer("decay", decays.clone(), persistent=False)
        self.buffers_set()

    def buffers_set(self) -> None:
        """Compute the factor of every step once; None where nothing is forgotten. Called again by
        `Rebuilt` when it has set the buffers."""
        forgets = known((self.decay == 1).all()) is not True
        self._factor = factor(self.decay[..., None, None]) if forgets else None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = self.decay
        super()._apply(fn, recurse)
        if self.state_dtype is not None and not exact.is_meta:  # no cast changes it
            self._buffers["decay"] = exact.to(self.decay.device)
        self.buffers_set()
        return self

    def initial_state(self, *shape: int) -> MemoryState:
        """Return the empty initial memory; `shape` is the leading dimensions, such as (batch,)."""
        if self.heads is not None and shape[-1:] != (self.heads,):
            raise ValueError(
                f"the last leading dimension must be heads={self.heads}, got {tuple(shape)}"
            )
        # The decay has the device of the map and the dtype of its computations.
        make = initial_state if self.rule == "sum" else delta.initial_state
        decay = self.decay
        size, dv = self.feature_map.output_dim, self.value_dim
        return make(shape, size, dv, dtype=decay.dtype, device=decay.device)

    def reset(self, state: MemoryState, where: Tensor) -> MemoryState:
        """Empty the memory of the sequences whose episode begins.

        where: bool, over the first leading dimensions of the state, such as (batch,).
        """
        leading = self._leading(state)
        if where.dtype != torch.bool or where.shape != leading[: where.ndim]:
            raise ValueError(
                f"where must be a bool tensor of the first dimensions of {leading}, got "
                f"{where.dtype} of shape {tuple(where.shape)}"
            )
        fresh = self.initial_state(*leading)
        mask = where.reshape(*where.shape, *(1,) * (state.values.ndim - where.ndim))
        entries = iter(fresh)
        return mapped(state, lambda old: torch.where(mask, next(entries), old))

    def write(
        self,
        state: MemoryState,
        keys: Tensor,
        values: Tensor,
        *,
        gates: Tensor | None = None,
        key_mask: Tensor | None = None,
        decay: float | Tensor | None = None,
    ) -> MemoryState:
        """Return the state after a step: apply the decay, then write the tokens.

        Args:
            state: from `initial_state`, `reset`, `write` or `unroll`, with leading dimensions
                (...).
            keys, values: (..., L, d) and (..., L, dv). With L = 0 the step only applies the decay.
            gates: (..., L), from 0 to 1, the weight with which a token is written.
            key_mask: bool (..., L), False where there is no token; the entries there are ignored.
            decay: decay of this step, instead of the module's: a number, or a tensor that
                broadcasts with (...).

        Raises ValueError if shapes, dtypes or numbers do not fit.
        """
        leading = self._leading(state)
        tokens = self._written(keys, values, gates, key_mask, leading)
        with component(SCORE), full_precision(tokens.values):
            if isinstance(state, DeltaState):
                return delta.write(state, tokens, self._factors(decay, leading))
            before = self._factor
            if decay is not None:
                before = factor(self._factors(decay, leading)[..., None, None])
            return plain.write(state, tokens, before, self.feature_map.signed)

    def read(self, state: MemoryState, queries: Tensor) -> Tensor:
        """Read the memory at queries (..., L, d): (..., L, dv), in their dtype.

        The output is zero where nothing was written. Raises ValueError for queries that do not fit.
        """
        check_tokens("queries", queries, self._leading(state), self.dim)
        return self._answers(state, self._asked(queries)).to(queries.dtype)

    def unroll(
        self,
        state: MemoryState,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        gates: Tensor | None = None,
        key_mask: Tensor | None = None,
        decay: float | Tensor | None = None,
        origins: Tensor | None = None,
    ) -> tuple[Tensor, MemoryState]:
        """Process T steps, each a `write` followed by a `read`: (..., T, Lq, dv) and the last
        state.

        The results and gradients equal those of single steps. The states of up to 64 frames are
        computed together in a few large products.

        Args:
            queries, keys, values: (batch, T, Lq, d), (batch, T, L, d), (batch, T, L, dv); with
                heads (batch, T, heads, ., .). L at least 1.
            gates, key_mask: (batch, T, L), with heads (batch, T, heads, L).
            decay: a number for all steps, or (T,) or (batch, T), with heads (batch, T, heads).
            origins: for a harmonic map, positions (batch, T, k, d) relative to which the same
                queries (Lq, d) are read in all steps: outputs at queries + origins, (batch, T, k
                Lq, dv). The sums are translated instead of computing features at each position.

        Raises ValueError as `write` and `read` do, and for origins with heads or another map.
        """
        leading = self._leading(state)
        axis = len(leading) if self.heads is None else len(leading) - 1
        if keys.ndim != len(leading) + 3:
            raise ValueError(
                f"keys must have {len(leading) + 3} dimensions, those of the state, frames, tokens "
                f"and entries, got shape {tuple(keys.shape)}"
            )
        frames = keys.shape[axis]
        outer = (*leading[:axis], frames, *leading[axis:])
        if origins is not None:
            self._check_origins(origins, outer)
        check_tokens("queries", queries, outer if origins is None else (), self.dim)
        if frames == 0 or keys.shape[-2] == 0:
            raise ValueError(
                "keys must have at least one frame, and one token a frame, got shape "
                f"{tuple(keys.shape)}"
            )
        tokens = self._written(keys, values, gates, key_mask, outer).moved(axis)
        factors = self._factors(decay, outer).movedim(axis, -1)
        rows, outputs = self._frames_at_once(keys.shape[-2]), []
        written, decays = tokens.split(rows), factors.split(rows, -1)
        phi = self._asked(queries)
        asked: Sequence[Features] = [phi] * len(written)
        places: Sequence[Tensor | None] = [None] * len(written)
        if origins is None:
            asked = split(mapped(phi, lambda t: t.movedim(axis, -3)), rows)
        else:
            places = origins.split(rows, -3)
        with component(SCORE), full_precision(tokens.values):
            for part, faded, own, place in zip(written, decays, asked, places, strict=True):
                states = self._states(state, part, faded)
                outputs.append(self._answers(states, own, place))
                state = mapped(states, lambda t: t[..., -1, :, :])
        output = joined(outputs, -3)
        return output.movedim(-3, axis).to(queries.dtype), state

    def _leading(self, state: MemoryState) -> tuple[int, ...]:
        """Return the leading dimensions of the state. Raises ValueError for a state of another
        memory."""
        kind = DeltaState if self.rule == "delta" else LinearAttentionState
        size = (self.feature_map.output_dim, self.value_dim)
        if not isinstance(state, kind) or state.values.shape[-2:] != size:
            found = type(state).__name__
            if isinstance(state, MemoryState):
                found += f" with values of shape {tuple(state.values.shape)}"
            raise ValueError(
                f"state must be a {kind.__name__} with values (..., {size[0]}, {size[1]}), got "
                f"{found}"
            )
        return fixed_shape(state.values)[:-2]

    def _written(
        self,
        keys: Tensor,
        values: Tensor,
        gates: Tensor | None,
        key_mask: Tensor | None,
        leading: tuple[int, ...],
    ) -> Written:
        """Validate tokens and compute their features; masked ones are zeros."""
        check_tokens("keys", keys, leading, self.dim)
        check_tokens("values", values, leading, self.value_dim)
        check_written(keys, values, gates, key_mask)
        self.feature_map.check_attended(keys, keys, key_mask)
        values = values.to(self.decay.dtype)
        if key_mask is not None:
            # Before features are computed, so that a NaN there reaches no gradient.
            hidden = ~key_mask.unsqueeze(-1)
            keys, values = keys.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
        phi, log_scale = features_of_keys(self.feature_map, keys)
        phi = mapped(phi, self._summed)
        log_scale = self._summed(log_scale).expand_as(keys[..., :1])
        if key_mask is not None:
            log_scale = log_scale.masked_fill(hidden, -torch.inf)
        if gates is not None:
            gates = gates.to(values.dtype)
            if key_mask is not None:
                gates = gates.masked_fill(hidden.squeeze(-1), 0)
            gates = gates.unsqueeze(-1)
        if self.rate != 1:
            gates = self.rate * (values.new_ones(*keys.shape[:-1], 1) if gates is None else gates)
        return Written(phi, log_scale, values, gates)

    def _asked(self, queries: Tensor) -> Features:
        """Compute features of queries; their scales cancel in every output."""
        self.feature_map.check_attended(queries, queries)
        return mapped(features_of_queries(self.feature_map, queries)[0], self._summed)

    def _summed(self, numbers: Tensor) -> Tensor:
        """Cast to the dtype of the state."""
        return numbers.to(self.decay.dtype)

    def _factors(self, decay: float | Tensor | None, leading: tuple[int, ...]) -> Tensor:
        """Return a step's decay for all leading dimensions."""
        if decay is not None:
            check_decay(decay)
        factor = torch.as_tensor(
            self.decay if decay is None else decay,
            dtype=self.decay.dtype,
            device=self.decay.device,
        )
        try:
            return factor.expand(leading)
        except RuntimeError:
            raise ValueError(
                f"decay must be a number or broadcast with {leading}, got shape "
                f"{tuple(factor.shape)}"
            ) from None

    def _frames_at_once(self, tokens: int) -> int:
        return CHUNK if self.rule == "sum" else max(1, delta.TOKENS // tokens)

    def _states(self, state: MemoryState, tokens: Written, factors: Tensor) -> MemoryState:
        """Return the states after each of T frames."""
        if isinstance(state, DeltaState):
            return delta.write_frames(state, tokens, factors)
        return plain.write_frames(state, tokens, factors, self.feature_map.signed)

    def _check_origins(self, origins: Tensor, outer: tuple[int, ...]) -> None:
        if not isinstance(self.feature_map, HarmonicFeatures) or self.heads is not None:
            of_heads = "" if self.heads is None else f" with heads={self.heads}"
            raise ValueError(
                "origins must be None except for a harmonic map without heads, got "
                f"{type(self.feature_map).__name__}{of_heads}"
            )
        check_tokens("origins", origins, outer, self.dim)

    def _shifted(self, states: MemoryState, origins: Tensor) -> MemoryState:
        """Translate states (..., ., .) to positions (..., k, d): entries (..., k, ., .)."""
        assert isinstance(self.feature_map, HarmonicFeatures)
        states = mapped(states, lambda t: t.unsqueeze(-3))
        if isinstance(states, DeltaState):
            return DeltaState(self.feature_map.shifted(states.values, origins))
        sums = torch.cat((states.values, states.normaliser.mT), -1)
        values, normaliser = self.feature_map.shifted(sums, origins).split((self.value_dim, 1), -1)
        return states._replace(values=values, normaliser=normaliser.mT)

    def _answers(self, state: MemoryState, phi: Features, origins: Tensor | None = None) -> Tensor:
        if origins is not None:
            return self._answers(self._shifted(state, origins), phi).flatten(-3, -2)
        with component(SCORE), full_precision(phi.mantissa):
            if isinstance(state, DeltaState):
                return delta.read(state, phi)
            return read(state, phi, None, self.feature_map.signed, self.floor)

    def extra_repr(self) -> str:
        own = f"rate={self.rate}" if self.rule == "delta" else f"floor={self.floor}"
        return f"dim={self.dim}, value_dim={self.value_dim}, rule={self.rule!r}, {own}"


def _of_rule(name: str, given: float | None, default: float, owner: str, rule: str) -> float:
    """Validate a number in (0, 1] that only the rule `owner` supports."""
    if given is None:
        return default
    if rule != owner:
        raise ValueError(f"{name} needs rule={owner!r}, got rule={rule!r}")
    if not is_real(given) or not 0 < given <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {given!r}")
    return float(given)
