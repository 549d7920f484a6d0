"""Independent rows, the baseline of the closed forms."""

import torch
from torch import Tensor


def iid(m: int, d: int, generator: torch.Generator | None) -> Tensor:
    """Draw (m, d) float64, independent N(0, 1) entries."""
    device = generator.device if generator is not None else None
    return torch.randn(m, d, generator=generator, dtype=torch.float64, device=device)
