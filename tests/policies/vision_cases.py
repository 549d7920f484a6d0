"""Small Vision-Performer policies, their spaces and observations, without a simulator."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from policies import VisionPerformerPolicy, VisionPolicyConfig, build

HEIGHT, WIDTH, POSE, ACTIONS = 24, 36, 5, 3
OBSERVATION_SPACE = spaces.Dict(
    {
        "rgb": spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8),
        "pose": spaces.Box(-9.0, 9.0, (POSE,), np.float32),
    }
)
LIMITS = np.array([0.04, 0.04, 0.2], np.float32)
ACTION_SPACE = spaces.Box(-LIMITS, LIMITS)
SMALL: dict[str, Any] = {
    "patch": (6, 6),
    "embed_dim": 16,
    "heads": 2,
    "context_dim": 16,
    "hidden": (16,),
    "negatives": 8,
    "samples": 16,
    "langevin_steps": 4,
    "langevin_training_steps": 2,
}


def make(**settings: Any) -> VisionPerformerPolicy:
    return build(VisionPolicyConfig(**{**SMALL, **settings}), OBSERVATION_SPACE, ACTION_SPACE)


def observation(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "rgb": rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8),
        "pose": rng.normal(0, 1, POSE).astype(np.float32),
    }


def batch(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, poses and actions within the space."""
    seen = [observation(seed + i) for i in range(size)]
    rgb, pose = (torch.from_numpy(np.stack([o[key] for o in seen])) for key in ("rgb", "pose"))
    rng = np.random.default_rng(seed)
    return rgb, pose, torch.from_numpy(rng.uniform(-LIMITS, LIMITS, (size, 3)).astype(np.float32))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
