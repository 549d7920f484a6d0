"""Decisions without Python between their operations: `decide` as TorchScript, after a while.

A decision of an implicit attention policy is about a hundred operations on small tensors, and more
than half its time is Python's. The same operations, traced once, run in the same order on the same
tensors: parameters that change in place, as a search's do, are read anew. To trace costs as much as
a few hundred decisions save, so it waits for as many.

What is traced must be what would run: it is compared, bit by bit, and left again where a tensor or
a module is replaced, a module goes from training to evaluation, a feature map is fitted or drawn
to other numbers, or a hook is added. What is carried from decision to decision comes in and goes
out. It may grow, as sizes are no constants of a trace.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from attention import FeatureMap
from attention.components import is_watched
from policies.common.normaliser import RunningNormaliser

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is constant here
            try:
                run = _traced(policy, decide, given)
                same = all(
                    torch.equal(made, own)
                    for _ in range(3)
                    for made, own in zip(run(*given.values()), found, strict=True)
                )
            except Exception:  # tracers raise what their parts raise; decisions go on without
                return
        if same:
            self._run, self._state = run, state


def _traced(
    policy: nn.Module, decide: Decide, given: Mapping[str, Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """`decide` as TorchScript, which is given the same parts.

    The policy's own tensors are inputs of the graph, and the graph is nobody else's. What
    `torch.jit.trace` makes is held by PyTorch for as long as the process lives, 4 to 12 MB a policy
    (PyTorch 2.13).
    """
    places: list[tuple[dict[str, Any], str]] = [
        (own, name)
        for module in policy.modules()
        for own in (module._parameters, module._buffers)
        for name, tensor in own.items()
        if tensor is not None
    ]
    tensors = [own[name] for own, name in places]

    def whole(*parts: Tensor) -> tuple[Tensor, ...]:
        for (own, name), part in zip(places, parts, strict=False):
            own[name] = part
        return decide(dict(zip(given, parts[len(places) :], strict=True)))

    try:
        graph, _ = torch._C._create_graph_by_tracing(
            whole, (*tensors, *given.values()), lambda _: "", True, False
        )
    finally:
        for (own, name), tensor in zip(places, tensors, strict=True):
            own[name] = tensor
    return partial(torch._C._create_function_from_graph("decision", graph), *tensors)


class _State:
    """What a trace takes for constant."""

    def __init__(self, policy: nn.Module, kinds: _Kinds) -> None:
        self._parts: list[tuple[dict[str, Any], list[Any]]] = []
        self._modules = list(policy.modules())
        self._training = [module.training for module in self._modules]
        self._hooks: list[Mapping[int, Any]] = []
        self._read: list[_Read] = []
        for module in self._modules:
            self._hooks += [module._forward_hooks, module._forward_pre_hooks]
            for own in (module._parameters, module._buffers, module._modules):
                self._parts += [(own, [*own.values()])] if own else []
            if isinstance(module, FeatureMap):
                self._read += [_Read(t, t.clone) for t in module.buffers()]
            elif isinstance(module, RunningNormaliser):
                self._read.append(_Read(module.count, partial(_passes, module)))
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
            and all(one.holds() for one in self._read)
            and not any(self._hooks)
        )


class _Read:
    """What Python reads of a tensor, and so is constant in a trace."""

    def __init__(self, tensor: Tensor, read: Callable[[], Tensor]) -> None:
        self._tensor, self._read = tensor, read
        self._found, self._version = read(), tensor._version

    def holds(self) -> bool:
        """Whether it is as it was: read again where the tensor was written to, as a trainer writes
        the same maps for every episode."""
        version = self._tensor._version
        if version != self._version and torch.equal(self._read(), self._found):
            self._version = version
        return version == self._version


def _passes(normaliser: RunningNormaliser) -> Tensor:
    """Whether there are no statistics."""
    return normaliser.count < 2


def _kinds(seen: Mapping[str, Tensor], carried: Mapping[str, Tensor]) -> _Kinds:
    """Types, and sizes of what is seen."""
    return [
        *((key, part.dtype, part.shape) for key, part in seen.items()),
        *((key, part.dtype, part.ndim) for key, part in carried.items()),
    ]
