"""Linear attention in the Vision Transformers of timm."""

from typing import Any

from torch import nn


def replace(model: nn.Module, seed: int, settings: dict[str, Any]) -> int:
    return 0


def restore(model: nn.Module) -> None:
    return None
