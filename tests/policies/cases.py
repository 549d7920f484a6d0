"""Policies, spaces and observations for the tests, without a simulator."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from policies import ImplicitAttentionPolicy, build

OBSERVATIONS = spaces.Dict(
    {
        "depth": spaces.Box(0.0, 1.5, (2, 24, 32), np.float32),
        "proprio": spaces.Box(-50.0, 50.0, (45,), np.float32),
    }
)
ACTIONS = spaces.Box(-1.0, 1.0, (9,), np.float32)
FOOTHOLDS = slice(22, 30)


def make(*, drawn: bool = True, **settings: Any) -> ImplicitAttentionPolicy:
    """A policy; with `drawn`, all its parameters are drawn, also those that start at zero."""
    policy = build(settings, OBSERVATIONS, ACTIONS)
    if drawn:
        generator = torch.Generator().manual_seed(0)
        for parameter in policy.parameters():
            torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return policy


def observation(seed: int = 0) -> dict[str, np.ndarray]:
    """Stones and gaps in random places, under a robot that stands nearly level."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 8, 32).cumsum()
    stone = np.isin(np.arange(32), edges) ^ (np.arange(24)[:, None] > rng.integers(12, 20))
    depth = np.where(stone, 0.34, 0.84) + rng.normal(0, 0.01, (2, 24, 32))
    proprio = rng.normal(0, 0.05, 45)
    proprio[9] = 0.45
    proprio[FOOTHOLDS] = [0.25, -0.12, 0.25, 0.12, -0.18, -0.12, -0.18, 0.12]
    return {"depth": depth.astype(np.float32), "proprio": proprio.astype(np.float32)}


def assert_gradients(policy: torch.nn.Module) -> None:
    """Every parameter has a finite gradient."""
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def tensors(seen: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """One observation as a batch for `forward`."""
    return torch.from_numpy(seen["depth"])[None], torch.from_numpy(seen["proprio"])[None]


def batch(*seen: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Observations as a batch, by the names of their parts."""
    return {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in seen[0]}
