"""Mean squared error of random products for the kernel (c + s x.y)^2.

With normal omega and omega', E[((omega.x) (omega.y))^2] = |x|^2 |y|^2 + 2 (x.y)^2, and the two are
independent. Orthogonal pairs of rows of normal lengths have E[(omega_i.x) (omega_i.y) (omega_j.x)
(omega_j.y)] = d / ((d - 1) (d + 2)) (d (x.y)^2 - |x|^2 |y|^2), from the fourth moments of a random
rotation; derived here.
"""

import torch
from torch import Tensor

from attention.kernels import check_quadratic
from attention.theory.conformity import coupled_pairs


def quadratic(
    x: Tensor, y: Tensor, m: int, projection: str, kernel: str, *, c: float = 1.0, s: float = 1.0
) -> Tensor:
    """s^4 ((|x|^2 |y|^2 + 2 (x.y)^2)^2 - (x.y)^4) / m for iid rows; 0 from m = d (d + 1) / 2 on.

    The error is that of the map's own kernel, for either name of `kernel`. Raises ValueError for
    other couplings than iid and orthogonal, where the kernel is not exact.
    """
    check_quadratic(c, s)
    dim = x.shape[-1]
    dot = (x * y).sum(-1)
    if m >= dim * (dim + 1) // 2:
        return torch.zeros_like(dot)
    if projection not in ("iid", "orthogonal"):
        raise ValueError(
            "quadratic has a closed form for projection='iid' and 'orthogonal' only, got "
            f"{projection!r}"
        )
    sizes = x.square().sum(-1) * y.square().sum(-1)
    square = dot.square()
    single = (sizes + 2 * square).square() - square.square()
    shared = (dim / ((dim - 1) * (dim + 2)) * (dim * square - sizes)).square() - square.square()
    return s**4 * (single / m + coupled_pairs(projection, m, dim) / m**2 * shared)
