"""Classification of Fashion-MNIST by a skeleton's random features or network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.batches import batch_of
from experiments.compositional.features import FeatureClassifier
from experiments.compositional.network import SkeletonNetwork
from experiments.compositional.settings import CompositionalConfig
from experiments.compositional.skeletons import Inputs, skeleton_of
from experiments.data import fashion_mnist
from experiments.data.fashion_mnist import Pictures
from experiments.fitting import fit
from experiments.measuring import classified
from experiments.task import Learning

__all__ = ["check", "learn"]

_MEASURED_AT_ONCE = 500


def check(settings: CompositionalConfig, data: str | None) -> None:
    """UserError where the images are not found, ValueError where settings do not fit."""
    images = fashion_mnist.load(data)[0].images
    if settings.held_out >= len(images):
        raise ValueError(
            f"held_out must be less than {len(images)} images, got {settings.held_out}"
        )
    if settings.draws < settings.features:
        raise ValueError(
            f"draws must be at least features, got {settings.draws} and {settings.features}"
        )
    if settings.activation != "relu" and settings.learner != "features":
        raise ValueError(f"activation must be relu of a network, got {settings.activation}")
    skeleton_of(settings)
    Inputs(settings, images[:1])


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test images."""
    settings: CompositionalConfig = learning.settings
    whole, test = (part.to(learning.device) for part in fashion_mnist.load(learning.data))
    known = len(whole.images) - settings.held_out
    held_out = Pictures(whole.images[known:], whole.labels[known:])
    inputs = Inputs(settings, whole.images[:known])
    model = _model(settings, learning.seed).to(learning.device)

    def loss(step: int) -> Tensor:
        chosen = batch_of(step, known, settings.batch, learning.seed)
        draws = None
        if settings.augment:
            # Fitting has seeded the generator for this step.
            draws = torch.Generator().manual_seed(torch.initial_seed())
        return functional.cross_entropy(
            model(inputs(whole.images[chosen], draws)), whole.labels[chosen]
        )

    def measure() -> dict[str, float]:
        return _measured(model, inputs, held_out)

    fit(model, loss, settings.fitting, learning.folder, learning.seed, measure,
        label=learning.label)  # fmt: skip
    part = Pictures(test.images[: settings.test], test.labels[: settings.test])
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return _measured(model, inputs, part) | {"parameters": learned}


def _model(settings: CompositionalConfig, seed: int) -> nn.Module:
    if settings.learner == "features":
        return FeatureClassifier(skeleton_of(settings), settings.features, settings.draws, seed)
    return SkeletonNetwork(settings, seed)


@torch.no_grad()
def _measured(model: nn.Module, inputs: Inputs, pictures: Pictures) -> dict[str, float]:
    chunks = pictures.images.split(_MEASURED_AT_ONCE)
    return classified(torch.cat([model(inputs(images)) for images in chunks]), pictures.labels)
