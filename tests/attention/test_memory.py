"""Memory by linear attention: against direct sums, token by token, and through files and ONNX."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import attention

DOUBLE = {"dtype": torch.float64}
B, T, L, Q, DV = 2, 7, 5, 3, 2


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def memory(name: str = "trig", dim: int = 2, m: int = 6, **options: Any) -> attention.LinearMemory:
    return attention.LinearMemory(dim, DV, name, m, **DOUBLE, **options)


def case(*leading: int, dim: int = 2, length: int = L) -> dict[str, Tensor]:
    """Tokens and queries of frames with those leading dimensions; a third of the gates are 0."""
    gates = rand(*leading, length, seed=4)
    return {
        "queries": 0.5 * rand(*leading, Q, dim, seed=1),
        "keys": 0.5 * rand(*leading, length, dim, seed=2),
        "values": rand(*leading, length, DV, seed=3) - 0.5,
        "gates": (gates * 1.5 - 0.5).clamp(min=0),
    }


def step_by_step(
    made: attention.LinearMemory, state: Any, tokens: dict[str, Tensor], **given: Any
) -> tuple[Tensor, Any]:
    """`write` and `read`, a frame at a time; frames are the second dimension."""
    outputs = []
    for t in range(tokens["keys"].shape[1]):
        own = {k: v[:, t] if isinstance(v, Tensor) else v for k, v in {**tokens, **given}.items()}
        queries = own.pop("queries")
        state = made.write(state, **own)
        outputs.append(made.read(state, queries))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("name", sorted({*attention.available()} - {"geometric", "poisson"}))
def test_the_sum_is_kernel_regression_over_all_that_was_written(name: str) -> None:
    made = memory(name, decay=0.8, floor=1e-12)
    tokens = case(B, T)
    outputs, _ = step_by_step(made, made.initial_state(B), tokens)
    fm = made.feature_map
    for t in range(T):
        ages = torch.arange(t, -1, -1.0, dtype=torch.float64)
        weights = (0.8**ages).unsqueeze(-1) * tokens["gates"][:, : t + 1]
        kernel = (
            fm.queries(tokens["queries"][:, t])
            @ fm.keys(tokens["keys"][:, : t + 1]).flatten(1, 2).mT
        )
        weights = kernel * weights.flatten(1).unsqueeze(1)
        expected = (
            weights @ tokens["values"][:, : t + 1].flatten(1, 2) / weights.sum(-1, keepdim=True)
        )
        bound = tokens["values"][:, : t + 1].abs().amax()
        sound = weights.sum(-1) > 1e-3
        torch.testing.assert_close(
            outputs[:, t][sound], expected[sound].clamp(-bound, bound), rtol=1e-9, atol=1e-9
        )
