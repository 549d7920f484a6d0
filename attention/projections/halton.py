"""Randomised Halton points as projections: quasi-Monte-Carlo (Avron et al., Quasi-Monte Carlo
feature maps for shift-invariant kernels, 2016; the Halton-R of Hybrid Random Features, Table 1).

Coordinate j of point i is the radical inverse of i in the j-th prime p: its digits, lowest first,
read after the point. Each digit goes through a random permutation, drawn for each coordinate and
digit (Owen, A randomized Halton algorithm in R, 2017), and the digits after those that distinguish
the m points are uniform and independent. Each point is then exactly uniform on the unit cube, and
omega = Phi^-1(u) is exactly N(0, I_d). Estimates are unbiased, unlike with plain Halton points.

Permutations are used instead of a Cranley-Patterson shift because p exceeds m in high dimension: a
shift would leave all m points in an interval of length m/p. Even with permutations, only
one-dimensional stratification is gained there.
"""

import torch
from torch import Tensor


def first_primes(count: int) -> list[int]:
    """Return the first `count` primes."""
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % p for p in primes if p * p <= candidate):
            primes.append(candidate)
        candidate += 1
    return primes


def scrambled_radical_inverse(m: int, base: int, generator: torch.Generator | None) -> Tensor:
    """Return scrambled radical inverses of 0 .. m-1: (m,) float64 in [0, 1]."""
    device = generator.device if generator is not None else None
    rest = torch.arange(m, device=device)
    digits_value = torch.zeros(m, dtype=torch.float64, device=device)
    unit = 1.0
    while unit * m > 1:
        unit /= base
        permutation = torch.randperm(base, generator=generator, device=device)
        digits_value += unit * permutation[rest % base]
        rest = rest // base
    return digits_value + unit * torch.rand(
        m, generator=generator, dtype=torch.float64, device=device
    )


def halton(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, normal quantiles of a randomised Halton sequence in the first d
    primes."""
    uniform = torch.stack([scrambled_radical_inverse(m, p, generator) for p in first_primes(d)], -1)
    # torch.rand includes 0 and a sum may round to 1: keep the quantiles finite.
    margin = torch.finfo(torch.float64).eps / 2
    return torch.special.ndtri(uniform.clamp(margin, 1 - margin))
