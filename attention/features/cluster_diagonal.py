"""The diagonal A of complex exponentials for a cluster of queries and one of keys.

The error of a pair grows with the entries of z = A x + A^-T y (Hybrid Random Features eq 21). For
real A_k = a the mean of z_k^2 over two clusters is least at a^4 = E y_k^2 / E x_k^2, and so is that
of |z_k|^2 for imaginary A_k = i a (ours). The paper has the centres alone (eq 86 to 88), which is
this for clusters without spread. Where means are near 0 their ratio is noise, and that of the
second moments is not.
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
    """|A| and where A is imaginary, bool: four (..., d) -> two (..., d).

    Means and root mean squares of each coordinate over a cluster. |A_k| is held between floor and
    cap, and 1 where all is 0. Without `complex_a` no entry is imaginary. Raises ValueError as
    `attention.theory.optimal_diagonal`.
    """
    moduli = optimal_diagonal(query_rms, key_rms, complex_a=False, floor=floor, cap=cap)
    same_side = query_mean * key_mean > IMAGINARY_ABOVE * query_rms * key_rms
    return moduli, same_side & complex_a
