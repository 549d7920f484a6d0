"""The network of an image skeleton: every node is replicated (Daniely et al. 2016, 2017)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from experiments.compositional.settings import CompositionalConfig
from experiments.compositional.skeletons import CLASSES, SIDE_PX, STRIDE

__all__ = ["SkeletonNetwork"]


class SkeletonNetwork(nn.Module):
    """Convolutions and one hidden layer, ReLUs, Gaussian initial weights.

    An input node is a point of the unit circle, so the network's inputs are its two coordinates
    times sqrt2. Then inner products of its last hidden layer at initialisation tend to the
    skeleton's kernel as nodes are replicated, up to the scale.
    """

    def __init__(self, settings: CompositionalConfig, seed: int) -> None:
        """`seed` is of the initial weights. Raises ValueError if the windows do not fit."""
        super().__init__()
        self.side, depth = SIDE_PX, 2 * (settings.components or 1)
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            side = SIDE_PX
            for number, window in enumerate(settings.windows):
                side = (side - window) // STRIDE + 1
                if side < 1:
                    raise ValueError(f"windows must fit into what is below, got {settings.windows}")
                if number or settings.components is None:
                    layers.append(nn.Conv2d(depth, settings.channels, window, STRIDE))
                else:  # the first windows are represented by their components
                    self.side = side
                    layers.append(nn.Conv2d(depth, settings.channels, 1))
                layers.append(nn.ReLU())
                depth = settings.channels
            layers += [nn.Flatten(), nn.Linear(depth * side * side, settings.hidden), nn.ReLU()]
            self.below = nn.Sequential(*layers)
            self.classify = nn.Linear(settings.hidden, CLASSES)
            for layer in [*self.below, self.classify]:
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                    assert layer.bias is not None
                    nn.init.zeros_(layer.bias)
        if settings.learner == "frozen":
            self.below.requires_grad_(False)
            nn.init.zeros_(self.classify.weight)

    def hidden(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> the last hidden layer (n, hidden)."""
        places = angles.unflatten(1, (self.side, self.side, -1)).permute(0, 3, 1, 2)
        points = math.sqrt(2) * torch.cat((places.cos(), places.sin()), 1)
        neurons: Tensor = self.below(points)
        return neurons

    def forward(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> logits (n, 10)."""
        logits: Tensor = self.classify(self.hidden(angles))
        return logits
