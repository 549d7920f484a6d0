"""Computation skeletons: directed acyclic graphs that define compositional kernels.

Random Features for Compositional Kernels, section 5. Input nodes have base kernels, internal nodes
have conjugate activations, and

    k_v = base kernel                                for an input node
    k_v = sigma_v(mean of k_u over in(v))            for an internal node;

the kernel of the skeleton is that of its output, the single node that is not an input of another
node. A skeleton is plain data: `from_dict` and `to_dict` convert it from and to YAML or JSON.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self, TypeVar

from attention.compositional.activations import ACTIVATIONS, Activation, Floats
from attention.compositional.arrays import ArrayLike, NDArray, np
from attention.compositional.base import Base
from attention.compositional.bases import BASES

_GRAM_ENTRIES = 1 << 20
"""Number of values per node in one step of `gram`."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Internal:
    """An internal node: its inputs in(v), which it averages, and its conjugate activation."""

    inputs: tuple[str, ...]
    activation: Activation


@dataclass(frozen=True)
class Skeleton:
    """A validated computation skeleton.

    Args:
        inputs: base scheme of each input node by name.
        nodes: the internal nodes by name, in any order.
    """

    inputs: Mapping[str, Base]
    nodes: Mapping[str, Internal]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "nodes", dict(self.nodes))
        if not self.inputs:
            raise ValueError("inputs must hold at least one input node, got none")
        both = sorted(self.inputs.keys() & self.nodes.keys())
        if both:
            raise ValueError(f"node {both[0]!r} must be under inputs or under nodes, got both")
        for name, node in self.nodes.items():
            self._check_inputs(name, node.inputs)
        self._check_graph()

    def _check_inputs(self, name: str, inputs: tuple[str, ...]) -> None:
        if not inputs or len(set(inputs)) < len(inputs):
            raise ValueError(
                f"node {name!r}: inputs must name at least one node, each once, got {list(inputs)}"
            )
        for source in inputs:
            if source not in self.inputs and source not in self.nodes:
                raise ValueError(
                    f"node {name!r}: inputs names {source!r}, but the nodes are "
                    f"{', '.join([*self.inputs, *self.nodes])}"
                )

    def _check_graph(self) -> None:
        try:
            order = self.order
        except CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))
            raise ValueError(f"nodes must form no cycle, got {cycle}") from None
        used = {source for node in self.nodes.values() for source in node.inputs}
        outputs = [name for name in order if name not in used]
        if len(outputs) != 1:
            raise ValueError(
                "exactly one node, the output, must not be an input of another node, got "
                + ", ".join(sorted(outputs))
            )

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes in topological order; the last is the output."""
        graph: dict[str, tuple[str, ...]] = dict.fromkeys(self.inputs, ())
        graph |= {name: node.inputs for name, node in self.nodes.items()}
        return tuple(TopologicalSorter(graph).static_order())

    @property
    def output(self) -> str:
        """Name of the output node."""
        return self.order[-1]

    @property
    def num_columns(self) -> int:
        """Smallest number of columns of the data."""
        return 1 + max(max(base.columns) for base in self.inputs.values())

    def propagate(
        self, base: Callable[[Base], _T], internal: Callable[[Activation, list[_T]], _T]
    ) -> _T:
        """Evaluate the output, with base(scheme) at input nodes and internal(activation, values of
        in(v)) at internal nodes."""
        waiting = dict.fromkeys(self.order, 0)
        for node in self.nodes.values():
            for source in node.inputs:
                waiting[source] += 1
        values: dict[str, _T] = {}
        for name in self.order:
            if name in self.inputs:
                values[name] = base(self.inputs[name])
                continue
            node = self.nodes[name]
            values[name] = internal(node.activation, [values[source] for source in node.inputs])
            for source in node.inputs:
                waiting[source] -= 1
                # Values can be whole Gram blocks: those that are not needed again are released.
                if not waiting[source]:
                    del values[source]
        return values[self.output]

    def moment(self, base: Callable[[Base], Floats]) -> Floats:
        """Evaluate the recurrence of the kernel with base(scheme) instead of the base kernels."""
        return self.propagate(base, lambda activation, k: activation.value(_mean(k)))

    def kernel(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Return the exact k(x, y) in float64: (..., D), (..., D) -> (...); leading dimensions
        broadcast.

        Raises ValueError for too few columns or values outside a base space.
        """
        x, y = self.check("x", x), self.check("y", y)
        return self._kernel(x, y)

    def _kernel(self, x: Floats, y: Floats) -> Floats:
        return self.moment(lambda base: base.kernel(x[..., base.columns], y[..., base.columns]))

    def gram(self, x: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Return the exact Gram matrix (n, m) in float64 of the rows of x (n, D) and y (m, D), or
        of x alone."""
        x = self.check("x", x)
        y = x if y is None else self.check("y", y)
        widest = max(base.dim for base in self.inputs.values())
        rows = max(1, _GRAM_ENTRIES // max(len(y) * widest, 1))
        blocks = [self._kernel(x[i : i + rows, None], y) for i in range(0, len(x), rows)]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(y)))

    def check(self, argument: str, x: ArrayLike, dtype: type = np.float64) -> NDArray[Any]:
        """Return x as a float array (..., D). Raises ValueError for too few columns or invalid
        values."""
        array: NDArray[Any] = np.asarray(x, dtype)
        columns = array.shape[-1] if array.ndim else 0
        if columns < self.num_columns:
            raise ValueError(
                f"{argument} must have at least {self.num_columns} columns, got shape {array.shape}"
            )
        for name, base in self.inputs.items():
            u = array[..., base.columns]
            if not np.isfinite(u).all():
                raise ValueError(f"{argument} at input node {name!r}: values must be finite")
            try:
                base.check(u)
            except ValueError as error:
                raise ValueError(f"{argument} at input node {name!r}: {error}") from None
        return array

    @property
    def complexity(self) -> float:
        """C(S), eq 11: the mean number of base features per feature, with multiplicity."""
        return self.propagate(lambda base: 1.0, lambda a, c: _mean_degree(a) * _mean(c))

    @property
    def expected_calls(self) -> float:
        """Mean number of calls of RFSS per feature, including internal nodes.

        The paper states that C(S) is this number, but C(S) counts only the leaves.
        """
        return self.propagate(lambda base: 1.0, lambda a, n: 1 + _mean_degree(a) * _mean(n))

    @property
    def norm(self) -> float:
        """C = sup |psi| of a feature: 1 if every base is norm-efficient, otherwise possibly
        infinite."""
        return self.propagate(lambda base: base.norm, lambda a, c: _power(max(c), a.degree))

    @property
    def real(self) -> bool:
        """Whether no feature has an imaginary part."""
        return all(base.real for base in self.inputs.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        return {
            "inputs": {name: _plain(base) for name, base in self.inputs.items()},
            "nodes": {
                name: {"inputs": list(node.inputs), "activation": _plain(node.activation)}
                for name, node in self.nodes.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Create a skeleton from plain data, for example from YAML or JSON.

            inputs:
              x1: {kind: circle, columns: [0]}
              x2: {kind: gaussian, columns: [1, 2], a: 0.5}
            nodes:
              v: {inputs: [x1, x2], activation: {kind: exponential, c: 0.25}}

        `inputs` maps names to base schemes (`bases.BASES`), `nodes` names to internal nodes; an
        activation without settings may be given by its name. Raises ValueError that names the node
        and the key for other data.
        """
        _check_keys("skeleton", data, ("inputs",), ("nodes",))
        inputs = {
            name: _build(f"input node {name!r}", item, BASES)
            for name, item in _mapping("inputs", data["inputs"]).items()
        }
        nodes = {}
        for name, item in _mapping("nodes", data.get("nodes", {})).items():
            where = f"node {name!r}"
            _check_keys(where, item, ("inputs", "activation"))
            names = item["inputs"]
            if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
                raise ValueError(f"{where}: inputs must be a list of node names, got {names!r}")
            activation = item["activation"]
            if isinstance(activation, str):
                activation = {"kind": activation}
            activation = _build(f"{where}, activation", activation, ACTIVATIONS)
            nodes[name] = Internal(tuple(names), activation)
        return cls(inputs, nodes)


def _mean(values: list[Any]) -> Any:
    return sum(values) / len(values)


def _mean_degree(activation: Activation) -> float:
    return float(activation.derivative(np.array(1.0)))


def _power(norm: float, degree: float) -> float:
    return 1.0 if norm == 1 else math.inf if math.isinf(degree) else norm**degree


def _plain(item: Base | Activation) -> dict[str, Any]:
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(item).items()}
    return {"kind": item.kind, **values}


def _mapping(where: str, data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a mapping, got {data!r}")
    for name in data:
        if not isinstance(name, str):
            raise ValueError(f"{where} must have names as keys, got {name!r}")
    return data


def _check_keys(
    where: str, data: Any, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    allowed = required + optional
    for key in _mapping(where, data):
        if key not in allowed:
            raise ValueError(f"{where}: unknown key {key!r}, allowed are {', '.join(allowed)}")
    for key in required:
        if key not in data:
            raise ValueError(f"{where}: key {key!r} is missing")


def _build(where: str, data: Any, kinds: Mapping[str, type[_T]]) -> _T:
    """Create one of `kinds` from {"kind": name, field: value, ...}."""
    kind = _mapping(where, data).get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{where}: kind must be one of {', '.join(kinds)}, got {kind!r}")
    settings = {key: value for key, value in data.items() if key != "kind"}
    names = fields(kinds[kind])  # type: ignore[arg-type]
    required = tuple(f.name for f in names if f.default is MISSING)
    optional = tuple(f.name for f in names if f.name not in required)
    _check_keys(where, settings, required, optional)
    try:
        return kinds[kind](**settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
