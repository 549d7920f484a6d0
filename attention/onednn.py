"""Matrix products by oneDNN, which are twice as fast as PyTorch's on processors by AMD.

PyTorch computes float32 products by MKL, whose AVX-512 kernels run on processors by Intel only.
oneDNN, which is part of PyTorch too, has such kernels for all. Its operator has no gradient, so
products that autograd records are PyTorch's.
"""

import torch
from torch import Tensor
from torch.backends import mkldnn

from attention.tracing import may_write

LEAST = 2**21
"""Number of multiplications of a matrix product from which on the call costs less than it saves."""


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, (..., M, K) and (..., K, N) -> (..., M, N), possibly a transposed view.

    Features in bfloat16 (`attention.precision.product_dtype`) are multiplied in it by others.
    """
    if left.dtype == torch.bfloat16 != right.dtype:
        return (left @ right.to(left.dtype)).to(right.dtype)
    if not _is_faster(left, right):
        return left @ right
    if right.ndim == 2 and left.stride(-1) == 1:
        return _product(left, right)
    leading = left.shape[:-2]
    if leading != right.shape[:-2]:
        leading = torch.broadcast_shapes(leading, right.shape[:-2])
    both = (_matrices(t.expand(*leading, -1, -1)) for t in (left, right))
    # The operator copies a first operand whose rows are not contiguous.
    turned = left.stride(-1) != 1 and left.shape[-2] >= right.shape[-1]
    products = [
        _product(b.mT, a.mT) if turned else _product(a, b) for a, b in zip(*both, strict=True)
    ]
    joined = products[0] if len(products) == 1 else torch.stack(products)
    return (joined.mT if turned else joined).reshape(*leading, left.shape[-2], right.shape[-1])


def _is_faster(left: Tensor, right: Tensor) -> bool:
    if torch.compiler.is_compiling() or left.ndim < 2:
        return False
    entries = left.numel() if right.ndim == 2 else left.shape[-2:].numel()
    columns = right.shape[-1]
    if columns == 1 or entries * columns < LEAST:
        return False
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == right.device.type == "cpu"
        and bool(mkldnn.enabled)
        and _AVAILABLE
        and may_write(left, right)
        and not torch.jit.is_tracing()
    )


def _product(left: Tensor, right: Tensor) -> Tensor:
    weight = right.mT
    if not (weight.is_contiguous() or right.is_contiguous()):
        weight = weight.contiguous()  # other layouts have no fast kernel
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, weight, None, "none", [], "")
    return product


def _matrices(tensor: Tensor) -> list[Tensor]:
    if tensor.ndim == 2:
        return [tensor]
    return [matrix for part in tensor.unbind(0) for matrix in _matrices(part)]


_AVAILABLE = mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
