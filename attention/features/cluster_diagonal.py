"""The diagonal A of complex exponentials for one cluster of queries and one cluster of keys.

The error of a pair grows with the entries of z = A x + A^-T y (Hybrid Random Features eq 21). For
real A_k = a the mean of z_k^2 over two clusters is least at a^4 = E y_k^2 / E x_k^2, and so is that
of |z_k|^2 for imaginary A_k = i a (derived here). The paper uses only the centres (eq 86 to 88),
the special case of clusters without spread. Where means are near 0 their ratio is noise, while the
ratio of the second moments is not.
"""

from torch import Tensor

from attention.theory.complex_exponential import optimal_diagonal

IMAGINARY_ABOVE = 0.5
"""A_k is imaginary where E x_k E y_k is above this share of sqrt(E x_k^2 E y_k^2): where the
clusters lie on one side of 0 and not about it."""


def cluster_diagonal(
    query_mean: Tensor,
    query_rms: Tensor,
    key_mean: Tensor,
    key_rms: Tensor,
    *,
    complex_a: bool,
    floor: float,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """Return |A| and where A is imaginary (bool): four (..., d) -> two (..., d).

    The inputs are the means and root mean squares of each coordinate over a cluster. |A_k| is
    clamped to [floor, cap], and is 1 if all inputs are 0. Without `complex_a` no entry is
    imaginary. Raises ValueError as `attention.theory.optimal_diagonal` does.
    """
    moduli = optimal_diagonal(query_rms, key_rms, complex_a=False, floor=floor, cap=cap)
    same_side = query_mean * key_mean > IMAGINARY_ABOVE * query_rms * key_rms
    return moduli, same_side & complex_a
