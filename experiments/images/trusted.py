"""Learning to tell images of clothes apart, and how far attention estimates softmax meanwhile."""

from __future__ import annotations

from experiments.images import learning as images
from experiments.images.learning import check
from experiments.task import Learning
from experiments.trust import trust

__all__ = ["check", "learn"]


def learn(learning: Learning) -> dict[str, float]:
    """Learn, and measure on the test images."""
    return images.learn(learning, lambda model, pictures: trust(model, lambda: model(pictures)))
