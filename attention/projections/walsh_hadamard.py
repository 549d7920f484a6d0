"""The fast Walsh-Hadamard transform and the random rotation composed of three transforms.

Simplex Random Features, appendix B.2.2, eq 89-90: R~ = (H D_1)(H D_2)(H D_3) with H the normalised
Hadamard matrix and D_i diagonal matrices of independent random signs. R~ is orthogonal but takes at
most 2^(3d) values, so it is not Haar-distributed.
"""

import torch
from torch import Tensor


def padded_dimension(d: int) -> int:
    """Return the smallest power of two that is at least d."""
    return 1 << (d - 1).bit_length()


def fast_walsh_hadamard(x: Tensor) -> Tensor:
    """Compute H x over the last dimension, (..., d) -> (..., d), in O(d log d) additions.

    H has entries +-1/sqrt(d) in Sylvester's order (eq 90), is symmetric and is its own inverse. The
    function is differentiable and forms no matrix.

    Raises ValueError if d is not a power of two.
    """
    d = x.shape[-1]
    if d < 1 or d != padded_dimension(d):
        raise ValueError(f"the last dimension of x must be a power of two, got {d}")
    # Each step transforms the last bit of the index and moves it to the front. After log2(d) steps
    # the bits are back in place, and every write was contiguous.
    for _ in range(d.bit_length() - 1):
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        x = torch.cat((even + odd, even - odd), -1)
    return x * d**-0.5


def rotate(x: Tensor, signs: Tensor) -> Tensor:
    """Compute (H D_1)(H D_2)(H D_3) x: (..., d) and signs (..., 3, d), d a power of two -> (...,
    d)."""
    for i in (2, 1, 0):
        x = fast_walsh_hadamard(signs[..., i, :] * x)
    return x
