"""Counting the floating-point operations of code while it really runs.

`OpCounter` sits in PyTorch's dispatcher, below every layer and function, and looks at the tensors
that each operator is really given, on CPU or GPU. The conventions:

| operators                                          | FLOPs                                     |
|----------------------------------------------------|-------------------------------------------|
| matrix products (n, k) x (k, m), any batch         | 2 n k m: one multiply-add is two          |
| bias of `addmm`, `baddbmm`                         | 1 an output element                       |
| convolutions whose kernels have k entries          | 2 k an output element; bias: 1            |
| arithmetic, exp, sin, tanh, comparison, `where`    | 1 an output element                       |
| sums, maxima, `topk`, `sort`, `cumsum`, means over | 1 an input element                        |
| areas                                              |                                           |
| means                                              | 1 an input element + 1 an output element  |
| means over windows                                 | the window's elements + 1 an output       |
| 2-norms                                            | 2 an input element + 1 an output element  |
| softmax                                            | 5 an element: max, minus, exp, sum, over  |
| layer norm                                         | 7 an element: sum, minus, square, sum,    |
|                                                    | times, gain, bias                         |
| random numbers, derivatives of activations         | 1 an output element                       |
| binary search among n numbers                      | log2(n) an output element                 |
| triangular systems of n unknowns                   | n^2 a right-hand side                     |
| adding to places (`scatter_add`)                   | 1 an element added                        |
| fused attention                                    | its two products and its softmax          |
| views, copies, casts, indexing, joining, constants | 0                                         |

`exp` costs a processor more than `add` does, and `topk` more than one pass; the table counts both
as the literature on attention does. An operator outside the table is first taken apart into those
it is made of; if it cannot be, it is an error: nothing is silently free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attention import current_component
from attention.components import watched

__all__ = ["OTHER", "OpCounter", "UncountedError"]

OTHER = "other"
"""Component of work outside every named component."""


class UncountedError(NotImplementedError):
    """An operator ran for which the table of operators has no cost."""


Cost = Callable[[Sequence[Any], Any], int]
"""FLOPs of one call, from its positional arguments and its result."""


def _elements(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    return 0


def _output(arguments: Sequence[Any], result: Any) -> int:
    return _elements(result)


def _input(arguments: Sequence[Any], result: Any) -> int:
    return _elements(arguments[0])


def _mean(arguments: Sequence[Any], result: Any) -> int:
    return _input(arguments, result) + _output(arguments, result)


def _windowed_mean(arguments: Sequence[Any], result: Any) -> int:
    return (math.prod(arguments[1]) + 1) * _elements(result)


def _norm(arguments: Sequence[Any], result: Any) -> int:
    return 2 * _input(arguments, result) + _output(arguments, result)


def _product(left: int, right: int, bias: bool) -> Cost:
    """Cost of a matrix product whose factors are the arguments number `left` and `right`."""

    def cost(arguments: Sequence[Any], result: Any) -> int:
        inner = arguments[left].shape[-1]
        assert inner == arguments[right].shape[-2 if arguments[right].dim() > 1 else 0]
        return (2 * inner + bias) * _elements(result)

    return cost


def _convolution(arguments: Sequence[Any], result: Any) -> int:
    """Of each output its kernel, of transposed ones of each input; zeros around count as inputs."""
    kernels, bias, transposed = arguments[1], arguments[2], arguments[6]
    placed = _input(arguments, result) if transposed else _elements(result)
    return 2 * kernels[0].numel() * placed + (bias is not None) * _elements(result)


def _free(arguments: Sequence[Any], result: Any) -> int:
    return 0


def _per_output(factor: int) -> Cost:
    return lambda arguments, result: factor * _elements(result)


def _binary_search(arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(math.log2(max(2, arguments[0].shape[-1]))) * _elements(result)


def _triangular(arguments: Sequence[Any], result: Any) -> int:
    """n (n - 1) / 2 multiply-adds and n divisions a column."""
    return int(result.shape[-2]) * _elements(result)


def _added(arguments: Sequence[Any], result: Any) -> int:
    return _elements(arguments[3])


def _fused_attention(arguments: Sequence[Any], result: Any) -> int:
    """softmax(q k^T) v in one kernel: two matrix products and a softmax."""
    query, key, value = arguments[:3]
    entries = query.shape[:-1].numel() * key.shape[-2]
    return int(entries * (2 * query.shape[-1] + 5 + 2 * value.shape[-1]))


_FUSED_ATTENTION = """
    _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
"""
_FREE = """
    _local_scalar_dense _reshape_alias _to_copy _unsafe_view alias arange as_strided cat clone
    constant_pad_nd contiguous copy embedding
    detach diagonal empty empty_like empty_strided expand eye fill flip full full_like gather
    im2col index index_fill index_put index_select lift lift_fresh linspace masked_select narrow
    new_empty
    new_empty_strided new_full new_ones new_zeros nonzero ones ones_like permute repeat roll
    scalar_tensor scatter select select_scatter slice slice_scatter split split_with_sizes
    squeeze stack t take transpose tril triu unbind unfold unsqueeze view zero zeros zeros_like
"""
_ELEMENTWISE = """
    abs acos add asin atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp
    clamp_max clamp_min copysign cos cosh div elu eq erf exp exp2 expm1 floor floor_divide ge gelu
    gt isfinite isinf isnan le leaky_relu lgamma log log1p log2 logical_and logical_not logical_or
    gelu_backward logical_xor lt masked_fill maximum minimum mul ne neg normal pow rand randn
    reciprocal relu remainder round rsqrt rsub sgn sigmoid sign silu sin sinh softplus sqrt sub tan
    tanh threshold_backward uniform where
"""
_REDUCTIONS = """
    _adaptive_avg_pool2d all amax amin any argmax argmin argsort col2im cumprod cumsum kthvalue max
    median min prod sort sum topk
"""
_COSTS: dict[str, Cost] = {
    **dict.fromkeys(_FREE.split(), _free),
    **dict.fromkeys(_ELEMENTWISE.split(), _output),
    **dict.fromkeys(_REDUCTIONS.split(), _input),
    "addcmul": _per_output(2),
    "glu": _per_output(2),
    "lerp": _per_output(3),
    "mean": _mean,
    "avg_pool2d": _windowed_mean,
    "linalg_vector_norm": _norm,
    "native_layer_norm": _per_output(7),
    "linalg_solve_triangular": _triangular,
    "scatter_add": _added,
    "searchsorted": _binary_search,
    "_softmax": _per_output(5),
    "_safe_softmax": _per_output(5),
    **dict.fromkeys(_FUSED_ATTENTION.split(), _fused_attention),
    "mm": _product(0, 1, bias=False),
    "bmm": _product(0, 1, bias=False),
    "mv": _product(0, 1, bias=False),
    "dot": _product(0, 1, bias=False),
    "convolution": _convolution,
    "addmm": _product(1, 2, bias=True),
    "addmv": _product(1, 2, bias=True),
    "baddbmm": _product(1, 2, bias=True),
}


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
        self._watched = watched()

    def __enter__(self) -> Self:
        self._watched.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._watched.__exit__()

    @property
    def total(self) -> int:
        """All FLOPs so far."""
        return self.by_component.total()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        cost = (_COSTS.get(name) or _COSTS.get(name.removesuffix("_"))) if _known(func) else None
        if cost is None:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is NotImplemented:
                raise UncountedError(
                    f"operator {func} has no cost in the table of {__name__}: "
                    "add it there, so that it is counted"
                )
            return result
        result = func(*args, **kwargs)
        flops = cost(args, result[0] if isinstance(result, (list, tuple)) and result else result)
        if flops:
            self.by_component[current_component() or OTHER] += flops
            self.by_operator[name] += flops
        return result


def _known(func: Any) -> bool:
    return func.namespace in ("aten", "prims")
