"""Decisions without Python between their operations: `decide` as TorchScript, after a while.

A decision of an implicit attention policy is about a hundred operations on small tensors, and more
than half its time is Python's. The same operations, traced once, run in the same order on the same
tensors: parameters that change in place, as a search's do, are read anew. To trace costs as much as
a few hundred decisions save, so it waits for as many.

What is traced must be what would run: it is compared, bit by bit, and left again where a tensor or
a module is replaced, a module goes from training to evaluation, a feature map is fitted or drawn
anew, or a hook is added. What is carried from decision to decision comes in and goes out. It may
grow, as sizes are no constants of a trace.
"""

import warnings
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from attention import FeatureMap
from attention.components import is_watched
from policies.normaliser import RunningNormaliser

__all__ = ["AFTER", "CompiledDecision"]

AFTER = 200
"""Decisions that are taken before: tracing costs about what it saves in as many."""
_OURS = ("attention", "policies", "torch")
"""Packages whose modules do the same operations whatever the numbers are."""

_NOTHING: Mapping[str, Tensor] = {}
_Kinds = list[tuple[str, torch.dtype, torch.Size | int]]
Decide = Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]


class CompiledDecision:
    """Runs a policy's decision for a batch of one; from `AFTER` decisions on, traced."""

    def __init__(self) -> None:
        self._taken = 0
        self._run: Callable[..., tuple[Tensor, ...]] | None = None
        self._state: _State | None = None

    def __reduce__(self) -> tuple[type["CompiledDecision"], tuple[()]]:
        return type(self), ()  # copies and other processes begin anew

    def __call__(
        self,
        policy: nn.Module,
        decide: Decide,
        seen: Mapping[str, Tensor],
        carried: Mapping[str, Tensor] = _NOTHING,
    ) -> tuple[Tensor, ...]:
        """What `decide`, which calls the policy, makes of all that is given: parts of the
        observation, (1, ...), and what is carried, which may grow."""
        given = {**seen, **carried} if carried else seen
        if is_watched():
            return decide(given)
        kinds = _kinds(seen, carried)
        if self._run is not None:
            if self._state is not None and self._state.holds(policy, kinds):
                return self._run(*given.values())
            self._taken, self._run = 0, None
        self._taken += 1
        if self._taken != AFTER:
            return decide(given)
        found = decide(given)
        with torch.inference_mode(False), torch.no_grad():
            copies = {key: part.clone() for key, part in given.items()}
            self._trace(policy, decide, copies, found, kinds)
        return found

    def _trace(
        self,
        policy: nn.Module,
        decide: Decide,
        given: dict[str, Tensor],
        found: tuple[Tensor, ...],
        kinds: _Kinds,
    ) -> None:
        """Trace it, unless it has parts of others, is not on a CPU or comes out otherwise."""
        state = _State.of(policy, given, kinds)
        if state is None:
            return
        traced = _Decision(policy, decide, tuple(given))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is deprecated, and warns of what is constant here
            try:
                run = torch.jit.trace(traced, tuple(given.values()), check_trace=False)
                same = all(
                    torch.equal(made, own)
                    for _ in range(3)
                    for made, own in zip(run(*given.values()), found, strict=True)
                )
            except Exception:  # tracers raise what their parts raise; decisions go on without
                return
        if same:
            self._run, self._state = run, state


class _Decision(nn.Module):
    """What is traced."""

    def __init__(self, policy: nn.Module, decide: Decide, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.policy, self._keys = policy, keys
        self.__dict__["_decide"] = decide

    def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...]
        found = self.__dict__["_decide"](dict(zip(self._keys, parts, strict=True)))
        return found


class _State:
    """What a trace takes for constant."""

    def __init__(self, policy: nn.Module, kinds: _Kinds) -> None:
        self._parts: list[tuple[dict[str, Any], list[Any]]] = []
        self._modules = list(policy.modules())
        self._training = [module.training for module in self._modules]
        self._hooks: list[Mapping[int, Any]] = []
        self._fitted: list[tuple[Tensor, int]] = []
        self._normalisers: list[_Normaliser] = []
        for module in self._modules:
            self._hooks += [module._forward_hooks, module._forward_pre_hooks]
            for own in (module._parameters, module._buffers, module._modules):
                self._parts += [(own, [*own.values()])] if own else []
            if isinstance(module, FeatureMap):
                self._fitted += [(t, t._version) for t in module.buffers()]
            elif isinstance(module, RunningNormaliser):
                self._normalisers.append(_Normaliser(module))
        self._kinds = kinds

    @classmethod
    def of(cls, policy: nn.Module, given: Mapping[str, Tensor], kinds: _Kinds) -> "_State | None":
        """None for a policy whose decisions need not be the same operations each time."""
        ours = all(type(m).__module__.partition(".")[0] in _OURS for m in policy.modules())
        tensors = [*policy.parameters(), *policy.buffers(), *given.values()]
        plain = all(t.device.type == "cpu" and not t.is_inference() for t in tensors)
        made = cls(policy, kinds) if ours and plain else None
        return None if made is None or any(made._hooks) else made

    def holds(self, policy: nn.Module, kinds: _Kinds) -> bool:
        """Whether all of it is as it was."""
        return (
            kinds == self._kinds
            and all(
                len(own) == len(parts) and all(map(is_, own.values(), parts))
                for own, parts in self._parts
            )
            and [module.training for module in self._modules] == self._training
            and all(tensor._version == version for tensor, version in self._fitted)
            and all(normaliser.holds() for normaliser in self._normalisers)
            and not any(self._hooks)
        )


class _Normaliser:
    """Whether a normaliser has statistics, read again where their count was written to."""

    def __init__(self, module: RunningNormaliser) -> None:
        self._module, self._passes = module, module.passes
        self._version = module.count._version

    def holds(self) -> bool:
        """Whether that is as it was."""
        version = self._module.count._version
        if version != self._version and self._module.passes == self._passes:
            self._version = version
        return version == self._version


def _kinds(seen: Mapping[str, Tensor], carried: Mapping[str, Tensor]) -> _Kinds:
    """Types, and sizes of what is seen."""
    return [
        *((key, part.dtype, part.shape) for key, part in seen.items()),
        *((key, part.dtype, part.ndim) for key, part in carried.items()),
    ]
