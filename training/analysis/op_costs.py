"""Costs of PyTorch operators in floating-point operations.

| operators                                          | FLOPs                                     |
|----------------------------------------------------|-------------------------------------------|
| matrix products (n, k) x (k, m), any batch         | 2 n k m: one multiply-add is two          |
| bias of `addmm`, `baddbmm`                         | 1 an output element                       |
| convolutions whose kernels have k entries          | 2 k an output element; bias: 1            |
| arithmetic, exp, sin, tanh, comparison, `where`    | 1 an output element                       |
| sums, maxima, `topk`, `sort`, `cumsum`, `cummax`,  | 1 an input element                        |
| means over areas                                   |                                           |
| `logcumsumexp`                                     | 3 an input element: max, exp, sum         |
| means                                              | 1 an input element + 1 an output element  |
| variances                                          | 4 an input element: sum, minus, square,   |
|                                                    | sum; + 1 an output element                |
| means over windows                                 | the window's elements + 1 an output       |
| maxima over windows                                | the window's elements                     |
| 2-norms                                            | 2 an input element + 1 an output element  |
| distances of points of n numbers                   | 3 n an output element                     |
| softmax, its logarithm                             | 5 an element: max, minus, exp, sum, over  |
| layer norm                                         | 7 an element: sum, minus, square, sum,    |
|                                                    | times, gain, bias                         |
| random numbers, derivatives of activations         | 1 an output element                       |
| binary search among n numbers                      | log2(n) an output element                 |
| triangular systems of n unknowns                   | n^2 a right-hand side                     |
| Cholesky; LU and determinants; inverses            | n^3 / 3; 2 n^3 / 3; 2 n^3                 |
| linear systems of n unknowns                       | LU + 2 n^2 a right-hand side              |
| Fourier transforms of n numbers                    | 5 n log2(n), of real ones half of it      |
| adding to places (`scatter_add`, `index_add`)      | 1 an element added                        |
| fused attention                                    | its two products and its softmax          |
| views, copies, casts, indexing, joining, constants | 0                                         |

`exp` costs a processor more than `add` does, and `topk` more than one pass; the table counts both
as the literature on attention does. Singular values and similar operators have no row because they
are iterative.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Cost = Callable[[Sequence[Any], Any], float]
"""FLOPs of one call, from its positional arguments and its result; of several results the first."""


def _elements(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _per_output(factor: int) -> Cost:
    return lambda arguments, result: factor * _elements(result)


def _per_input(factor: int, and_output: int = 0) -> Cost:
    return lambda arguments, result: (
        factor * _elements(arguments[0]) + and_output * _elements(result)
    )


def _windows(over: int = 0) -> Cost:
    """The window of each output element, plus `over` per output element."""
    return lambda arguments, result: (math.prod(arguments[1]) + over) * _elements(result)


def _product(left: int, right: int, bias: bool = False) -> Cost:
    """Cost of a matrix product whose factors are the arguments number `left` and `right`."""

    def cost(arguments: Sequence[Any], result: Any) -> int:
        inner = arguments[left].shape[-1]
        assert inner == arguments[right].shape[-2 if arguments[right].dim() > 1 else 0]
        return (2 * inner + bias) * _elements(result)

    return cost


def _convolution(arguments: Sequence[Any], result: Any) -> int:
    """The kernel per output element (per input element if transposed), padding included."""
    kernels, bias, transposed = arguments[1], arguments[2], arguments[6]
    placed = _elements(arguments[0]) if transposed else _elements(result)
    return 2 * kernels[0].numel() * placed + (bias is not None) * _elements(result)


def _binary_search(places: int) -> Cost:
    """The cost of a selection among the elements of argument number `places`."""
    return lambda arguments, result: (
        math.ceil(math.log2(max(2, arguments[places].shape[-1]))) * _elements(result)
    )


def _triangular(arguments: Sequence[Any], result: Any) -> int:
    """n (n - 1) / 2 multiply-adds and n divisions per column."""
    return int(result.shape[-2]) * _elements(result)


def _cubic(factor: float) -> Cost:
    """`factor` n^3 for each matrix (n, n)."""
    return lambda arguments, result: factor * _elements(arguments[0]) * arguments[0].shape[-1]


def _system(arguments: Sequence[Any], result: Any) -> float:
    matrices = arguments[0]
    return _cubic(2 / 3)(arguments, result) + 2 * matrices.shape[-1] * _elements(result)


def _fourier(factor: float, to_real: bool = False) -> Cost:
    """`factor` per element and per halving of the transform."""

    def cost(arguments: Sequence[Any], result: Any) -> float:
        numbers = result if to_real else arguments[0]
        n = math.prod(numbers.shape[axis] for axis in arguments[1])
        return factor * numbers.numel() * math.log2(max(2, n))

    return cost


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
    _conj _linalg_check_errors _local_scalar_dense _reshape_alias _to_copy _unsafe_index
    _unsafe_view alias arange as_strided broadcast_in_dim cat clone complex constant_pad_nd
    contiguous copy detach diagonal embedding empty empty_like empty_strided expand eye fill
    flip full full_like gather im2col imag index index_fill index_put index_select lift
    lift_fresh linspace masked_scatter masked_select narrow new_empty new_empty_strided new_full
    new_ones new_zeros nonzero ones ones_like permute put real repeat resolve_conj roll
    scalar_tensor scatter select select_scatter set slice slice_scatter split split_with_sizes
    squeeze stack t take transpose tril triu unbind unfold unsqueeze view view_as_complex
    view_as_real zero zeros zeros_like _assert_async
"""
_ELEMENTWISE = """
    abs acos acosh add angle asin asinh atan atan2 atanh bernoulli bessel_i0 bessel_i0e
    bessel_i1 bessel_i1e bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max
    clamp_min copysign cos cosh digamma div elu eq erf erf_inv erfc erfcx exp exp2 expm1
    exponential floor floor_divide fmax fmin fmod ge gelu gelu_backward gt hypot isfinite isinf
    isnan le leaky_relu lgamma log log1p log2 logical_and logical_not logical_or logical_xor lt
    masked_fill maximum minimum mul ne neg normal pow rand rand_like randint randint_like randn
    randn_like randperm reciprocal relu remainder round rrelu_with_noise rsqrt rsub sgn sigmoid
    sign signbit silu sin sinh softplus sqrt sub tan tanh threshold_backward trunc uniform where
"""
_REDUCTIONS = """
    _adaptive_avg_pool2d _unique2 adaptive_max_pool2d all allclose amax amin any argmax argmin
    argsort bincount col2im cummax cummin cumprod cumsum equal histc kthvalue max median min
    mode multinomial nanmedian prod sort sum topk unique_consecutive
"""
_GROUPS: list[tuple[str, Cost]] = [
    (_FREE, _per_output(0)),
    (_ELEMENTWISE, _per_output(1)),
    (_REDUCTIONS, _per_input(1)),
    (_FUSED_ATTENTION, _fused_attention),
    ("addcmul glu", _per_output(2)),
    ("lerp", _per_output(3)),
    ("_softmax _log_softmax _safe_softmax", _per_output(5)),
    ("native_layer_norm", _per_output(7)),
    ("logcumsumexp", _per_input(3)),
    ("mean", _per_input(1, and_output=1)),
    ("var", _per_input(4, and_output=1)),
    ("linalg_vector_norm", _per_input(2, and_output=1)),
    ("avg_pool2d avg_pool3d", _windows(1)),
    ("max_pool2d_with_indices max_pool3d_with_indices", _windows()),
    ("linalg_solve_triangular", _triangular),
    ("linalg_cholesky_ex", _cubic(1 / 3)),
    ("linalg_lu_factor_ex _linalg_det", _cubic(2 / 3)),
    ("linalg_inv_ex", _cubic(2)),
    ("_linalg_solve_ex", _system),
    ("_fft_r2c", _fourier(2.5)),
    ("_fft_c2c", _fourier(5)),
    ("_fft_c2r", _fourier(2.5, to_real=True)),
    ("_cdist_forward _pdist_forward",
     lambda arguments, result: 3 * arguments[0].shape[-1] * _elements(result)),
    ("index_add index_reduce scatter_add scatter_reduce",
     lambda arguments, result: _elements(arguments[3])),
    ("searchsorted", _binary_search(0)),
    ("bucketize", _binary_search(1)),
    ("mm bmm mv dot", _product(0, 1)),
    ("addmm addmv baddbmm", _product(1, 2, bias=True)),
    ("convolution", _convolution),
]  # fmt: skip
COSTS = {name: cost for names, cost in _GROUPS for name in names.split()}
"""The cost of each operator, by its name in `torch.ops.aten`; an operator in place is named without
its underscore. Add your own operators here."""
