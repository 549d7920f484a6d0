"""Optional compilation of decisions with TorchScript: `policies.compile_act(policy)`.

A decision of an implicit attention policy is about a hundred operations on small tensors, and half
of its time is Python overhead. `torch.jit.trace` records them once; the recorded operations run in
the same order on the same tensors, and give the same numbers to the bit. Tracing takes the time
that a few hundred decisions save, so it starts after that many.

A trace is checked against the eager decision when it is made, and discarded when a tensor or a
module is replaced, a module switches between training and evaluation, a feature map is fitted or
drawn to other numbers, or a hook is added. Parameters may change in place. The recurrent state is
an input and an output; its size may grow.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attention import FeatureMap
from attention.compiled import recording
from attention.components import is_watched
from policies.common.normaliser import RunningNormaliser

AFTER = 200
"""Default number of eager decisions before tracing, whose cost is the saving of about as many
traced decisions."""
MOST_TRACES = 32
"""Traces that one process makes. PyTorch keeps each as long as the process lives: 2 to 5 MB for an
implicit attention policy, 21 MB for a Vision-Performer's search (PyTorch 2.13)."""
_OURS = ("attention", "policies", "torch")
"""Packages whose modules do the same operations whatever the numbers are."""

_NOTHING: Mapping[str, Tensor] = {}
_Kinds = list[tuple[str, torch.dtype, torch.Size | int]]
Decide = Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]
P = TypeVar("P")


def compile_act(policy: P, after: int | None = None) -> P:
    """Run the decisions of `policy.act` as TorchScript from now on, bit for bit the same.

    Trainers' workers, `training.rollout` and `training.evaluate` do this; the environment variable
    `FOVEATE_COMPILE_ACT=0` turns it off for all. Measured on one core: 0.4 for 0.8 ms of a policy
    with a dense controller, 1.6 for 3.1 ms with footholds or a place memory, 9 for 16 ms of a
    Vision-Performer.

    Policies on another device than the CPU, those with modules of packages other than `attention`,
    `policies` and `torch`, and policies that do not offer it run as before. If tracing fails,
    decisions stay eager and one warning says so. After 32 traces in a process, decisions of further
    policies stay eager.

    Args:
        policy: any policy; changed in place. Copies of it, and those in other processes, are
            compiled too.
        after: number of eager decisions before tracing; None: 200.

    Returns:
        The policy.
    """
    decision = getattr(policy, "_compiled", None)
    if isinstance(decision, CompiledDecision) and os.environ.get("FOVEATE_COMPILE_ACT") != "0":
        decision.after = AFTER if after is None else after
    return policy


class CompiledDecision:
    """Runs a policy's decision for a batch of one, traced after a number of calls if enabled.

    Args:
        after: number of eager decisions before tracing; None: all are eager.
    """

    traces = 0
    """Number of traces that this process has made."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self._taken = 0
        self._run: Callable[..., tuple[Tensor, ...]] | None = None
        self._state: _State | None = None

    def __reduce__(self) -> tuple[type["CompiledDecision"], tuple[int | None]]:
        return type(self), (self.after,)  # copies and other processes trace again

    def __call__(
        self,
        policy: nn.Module,
        decide: Decide,
        seen: Mapping[str, Tensor],
        recurrent: Mapping[str, Tensor] = _NOTHING,
    ) -> tuple[Tensor, ...]:
        """The result of `decide`, which calls the policy, for the parts of an observation, (1,
        ...), and the recurrent state, whose tensors may grow.
        """
        given = {**seen, **recurrent} if recurrent else seen
        if self.after is None or is_watched():
            return decide(given)
        kinds = _kinds(seen, recurrent)
        if self._run is not None:
            if self._state is not None and self._state.holds(policy, kinds):
                return self._run(*given.values())
            self._taken, self._run = 0, None
        self._taken += 1
        if self._taken != self.after:
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
        """Trace the decision, unless the policy has third-party modules or is not on a CPU."""
        state = _State.of(policy, given, kinds)
        if state is None or CompiledDecision.traces >= MOST_TRACES:  # a trace costs memory
            return
        CompiledDecision.traces += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about deprecation and about constants
            try:
                run = _traced(policy, decide, given)
                same = all(
                    torch.equal(made, own)
                    for _ in range(3)
                    for made, own in zip(run(*given.values()), found, strict=True)
                )
            except Exception as error:  # tracers raise what the traced parts raise
                failure = f"tracing raised {type(error).__name__}: {error}"
            else:
                failure = "" if same else "a traced decision gave other numbers"
        if not failure:
            self._run, self._state = run, state
            return
        self.after = None
        warnings.warn(f"compile_act: decisions stay eager, because {failure}", stacklevel=2)


def _traced(
    policy: nn.Module, decide: Decide, given: Mapping[str, Tensor]
) -> Callable[..., tuple[Tensor, ...]]:
    """`decide` as TorchScript, a function of the same parts in the same order.

    The policy's tensors are inputs of the graph, so that parameters may change in place.
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
        with recording():
            run = torch.jit.trace(whole, (*tensors, *given.values()), check_trace=False)
    finally:
        for (own, name), tensor in zip(places, tensors, strict=True):
            own[name] = tensor
    return partial(run, *tensors)


class _State:
    """The values that a trace treats as constant."""

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
                self._read.append(_Read(module.count, partial(torch.lt, module.count, 2)))
        self._kinds = kinds

    @classmethod
    def of(cls, policy: nn.Module, given: Mapping[str, Tensor], kinds: _Kinds) -> "_State | None":
        """None for a policy whose decisions may run different operations."""
        ours = all(type(m).__module__.partition(".")[0] in _OURS for m in policy.modules())
        tensors = [*policy.parameters(), *policy.buffers(), *given.values()]
        plain = all(t.device.type == "cpu" and not t.is_inference() for t in tensors)
        made = cls(policy, kinds) if ours and plain else None
        return None if made is None or any(made._hooks) else made

    def holds(self, policy: nn.Module, kinds: _Kinds) -> bool:
        """Whether all values are unchanged."""
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
    """A tensor that Python reads, and which is therefore constant in a trace."""

    def __init__(self, tensor: Tensor, read: Callable[[], Tensor]) -> None:
        self._tensor, self._read = tensor, read
        self._found, self._version = read(), tensor._version

    def holds(self) -> bool:
        """Whether the value is unchanged; it is read again after a write, because a trainer writes
        the same maps for every episode.
        """
        version = self._tensor._version
        if version != self._version and torch.equal(self._read(), self._found):
            self._version = version
        return version == self._version


def _kinds(seen: Mapping[str, Tensor], recurrent: Mapping[str, Tensor]) -> _Kinds:
    """Types, and the sizes of the observation's parts."""
    return [
        *((key, part.dtype, part.shape) for key, part in seen.items()),
        *((key, part.dtype, part.ndim) for key, part in recurrent.items()),
    ]
