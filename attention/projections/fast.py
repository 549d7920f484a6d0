"""Projections whose product with a vector takes O(d log d) time and O(d) memory per block.

W = N R~ or W = N S R~ (Simplex Random Features, section 4.2 and appendix B.2), with
R~ = (H D_1)(H D_2)(H D_3), N = diag(chi) and S the simplex of `simplex.py` by its O(d) product.

Sizes that are not powers of two: a vector is padded with zeros to p = 2^k >= d, R~ is (p, p), a
block consists of the first d of its outputs, and lengths are chi_p. A row of W is therefore the
first d coordinates of chi_p times a unit vector in R^p; with a Haar rotation it would be exactly
N(0, I_d). The angles of the coupling hold exactly among the rows in R^p, and only approximately
after truncation to R^d unless d = p.

Bias: each row has mean 0 and covariance exactly I_d, padded or not, because the last signs
decorrelate the coordinates and H spreads any unit vector evenly on average. However, R~ takes
finitely many values, so higher moments differ from those of a Gaussian and the estimates are
slightly biased: for the reference pair of d = 4 the Gaussian kernel is .39357, and the means are
.39570 for hadamard and .39289 for fast_simplex. The bias fades as d grows.
"""

import torch
from torch import Tensor, nn

from attention.options import check_count
from attention.precision import Float32Buffers, working_dtype
from attention.projections.orthogonal import chi_norms
from attention.projections.simplex import check_simplex_dimension, simplex_product
from attention.projections.walsh_hadamard import padded_dimension, rotate

FAST_COUPLINGS = ("fast_simplex", "hadamard")

CHUNK = 2**18
"""Number of entries processed at a time, one MiB in float32: two to four times faster for d >=
1024."""


class FastProjection(Float32Buffers):
    """`hadamard` or `fast_simplex` projection vectors applied without forming their matrix.

    Calling it computes `u @ matrix().mT`. A seed gives the same vectors as `attention.projection`
    with the same name.

    Args:
        name: "hadamard" or "fast_simplex".
        m: number of projection vectors; blocks of d are independent, the last one is truncated.
        d: dimension of the inputs.
        generator: generator of the float64 draws, on its device; default: the global generator of
            PyTorch.
        dtype, device: of the buffers, at least float32; default: those of PyTorch.

    Raises ValueError for another name, for m or d below 1, and for fast_simplex with d = 1.
    """

    signs: Tensor
    """(blocks, 3, p): the diagonals of D_1, D_2, D_3."""
    norms: Tensor
    """(m,): lengths chi_p."""

    def __init__(
        self,
        name: str,
        m: int,
        d: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if name not in FAST_COUPLINGS:
            raise ValueError(f"name must be one of {', '.join(FAST_COUPLINGS)}, got {name!r}")
        m, d = check_count("m", m), check_count("d", d)
        self.name, self.m, self.d = name, m, d
        if name == "fast_simplex":
            check_simplex_dimension(d)
        padded = padded_dimension(d)
        dtype = working_dtype(dtype or torch.get_default_dtype())
        source = generator.device if generator is not None else None
        bits = torch.randint(2, (-(-m // d), 3, padded), generator=generator, device=source)
        norms = chi(m, padded, generator)
        self.register_buffer("signs", (2 * bits - 1).to(dtype=dtype, device=device))
        self.register_buffer("norms", norms.to(dtype=dtype, device=device))

    def forward(self, u: Tensor) -> Tensor:
        """Compute the products omega.u: (..., d) -> (..., m)."""
        if u.shape[-1] != self.d:
            raise ValueError(f"u must have last dimension {self.d}, got {u.shape[-1]}")
        if torch.compiler.is_compiling():
            return self._products(u)
        # A butterfly reads and writes its input log2(p) times: keep it within the cache.
        rows = max(1, CHUNK // self.signs[:, 0].numel())
        parts = [self._products(part) for part in u.reshape(-1, self.d).split(rows)]
        return torch.cat(parts).reshape(*u.shape[:-1], self.m)

    def _products(self, u: Tensor) -> Tensor:
        padded = nn.functional.pad(u, (0, self.signs.shape[-1] - self.d)).unsqueeze(-2)
        rotated = rotate(padded, self.signs.to(u.dtype))[..., : self.d]
        directions = simplex_product(rotated) if self.name == "fast_simplex" else rotated
        return directions.flatten(-2)[..., : self.m] * self.norms.to(u.dtype)

    def matrix(self) -> Tensor:
        """Return the projection vectors (m, d)."""
        return self(torch.eye(self.d, dtype=self.norms.dtype, device=self.norms.device)).mT


def chi(count: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (count,) float64 lengths of N(0, I_d) vectors, in parts to bound the memory."""
    most = max(1, CHUNK // d)
    parts = (min(most, count - start) for start in range(0, count, most))
    return torch.cat([chi_norms((part,), d, generator).squeeze(-1) for part in parts])
