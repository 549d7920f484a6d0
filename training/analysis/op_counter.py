"""Counts the floating-point operations of code as it runs.

`OpCounter` sits in PyTorch's dispatcher, below every layer and function, and inspects the tensors
that each operator receives, on CPU or GPU. `training.analysis.op_costs` defines the cost of each
operator. An operator outside its table is first decomposed by PyTorch's decompositions; if it has
none, an error is raised, so that no operator is silently free.
"""

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

OTHER = "other"
"""Component of work outside every named component."""


class UncountedError(UserError, NotImplementedError):
    """Raised for an operator that has no entry in the cost table."""


class OpCounter(TorchDispatchMode):
    """Counts FLOPs while active, by component and by operator.

        with OpCounter() as counter:
            policy.act(observation)
        counter.total, counter.by_component["projection"], counter.by_operator["mm"]

    A component is the code inside `with attention.component(name)`; the innermost name applies.
    Raises UncountedError for an operator of unknown cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_component: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self._inside: list[ExitStack] = []  # one per nesting level of operators

    def __enter__(self) -> Self:
        self._inside.append(ExitStack())
        self._inside[-1].enter_context(watched())
        self._inside[-1].enter_context(_layers_in_parts())
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
        known = func.namespace in ("aten", "prims")
        cost = (costs.get(name) or costs.get(name.removesuffix("_"))) if known else None
        if cost is None:
            with self:
                result = func.decompose(*args, **kwargs)
                if result is NotImplemented and func in decomposition_table:
                    result = decomposition_table[func](*args, **kwargs)
            if result is NotImplemented:
                raise UncountedError(
                    f"FLOPs of the operator {func} are not known; define them first, as "
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
    """Run layers as their elementary operators: by default a recurrent network on a CPU and a
    Transformer layer are one fused operator each.
    """
    switches: Any = mkldnn  # typed as the class of its properties
    before = switches.enabled, mha.get_fastpath_enabled()
    switches.enabled = False
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        switches.enabled = before[0]
        mha.set_fastpath_enabled(before[1])
