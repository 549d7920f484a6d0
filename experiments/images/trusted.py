"""Classification of Fashion-MNIST, and the error of attention's softmax estimates meanwhile."""

from __future__ import annotations

from experiments.images import learning as images
from experiments.images.learning import check
from experiments.task import Learning
from experiments.trust import trust

__all__ = ["check", "learn"]


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test images."""
    return images.learn(learning, lambda model, pictures: trust(model, lambda: model(pictures)))
