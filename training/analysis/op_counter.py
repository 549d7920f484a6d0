"""Counting the floating-point operations of code while it really runs.

`OpCounter` sits in PyTorch's dispatcher, below every layer and function, and looks at the tensors
that each operator is really given, on CPU or GPU. `training.analysis.op_costs` says what counts
how much. An operator outside its table is first taken apart into those it is made of, by PyTorch's
own decompositions; if it cannot be, it is an error: nothing is silently free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from torch._decomp import decomposition_table
from torch.backends import mha, mkldnn
from torch.utils._python_dispatch import TorchDispatchMode

from attention import current_component
from attention.components import watched
from training.analysis import op_costs
from training.command.errors import UserError

__all__ = ["OTHER", "OpCounter", "UncountedError"]

OTHER = "other"
"""Component of work outside every named component."""


class UncountedError(UserError, NotImplementedError):
    """An operator ran for which the table of operators has no cost."""


class OpCounter(TorchDispatchMode):
    """Counts FLOPs while active, by component and by operator.

        with OpCounter() as counter:
            policy.act(observation)
        counter.total, counter.by_component["projection"], counter.by_operator["mm"]

    A component is code inside `with attention.component(name)`; the innermost name counts. Raises
    UncountedError at an operator of unknown cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_component: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self._inside: list[ExitStack] = []  # one an entry: work taken apart enters again

    def __enter__(self) -> Self:
        inside = ExitStack()
        inside.enter_context(watched())
        inside.enter_context(_layers_in_parts())
        self._inside.append(inside)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._inside.pop().close()

    @property
    def total(self) -> int:
        """All FLOPs so far."""
        return self.by_component.total()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name, costs = func.overloadpacket.__name__, op_costs.COSTS
        cost = (costs.get(name) or costs.get(name.removesuffix("_"))) if _known(func) else None
        if cost is None:
            with self:
                result = func.decompose(*args, **kwargs)
                if result is NotImplemented and func in decomposition_table:
                    result = decomposition_table[func](*args, **kwargs)
            if result is NotImplemented:
                raise UncountedError(
                    f"FLOPs of the operator {func} are not known; give them before, as "
                    f"{op_costs.__name__}.COSTS[{name!r}] = lambda arguments, result: ..."
                )
            return result
        result = func(*args, **kwargs)
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        flops = round(cost(args, first))
        if flops:
            self.by_component[current_component() or OTHER] += flops
            self.by_operator[name] += flops
        return result


@contextmanager
def _layers_in_parts() -> Iterator[None]:
    """Inside, layers run as the operators that they are made of: by default one operator is a
    recurrent network on a CPU, and another a layer of a Transformer."""
    switches: Any = mkldnn  # typed as what its properties are made of
    before = switches.enabled, mha.get_fastpath_enabled()
    switches.enabled = False
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        switches.enabled = before[0]
        mha.set_fastpath_enabled(before[1])


def _known(func: Any) -> bool:
    return func.namespace in ("aten", "prims")
