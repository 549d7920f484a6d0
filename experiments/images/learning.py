"""Classification of Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from experiments.batches import batch_of
from experiments.data import fashion_mnist
from experiments.data.fashion_mnist import Pictures
from experiments.fitting import fit, load_model
from experiments.images.model import ImageTransformer
from experiments.images.settings import ImagesConfig
from experiments.layers import is_of_map, prepare_step
from experiments.measuring import classified, flops_of
from experiments.task import Learning

__all__ = ["check", "learn"]

_MEASURED_AT_ONCE = 500
Also = Callable[[ImageTransformer, Tensor], dict[str, float]]


def check(settings: ImagesConfig, data: str | None) -> None:
    """UserError where the images are not found, ValueError where settings do not fit."""
    there = len(fashion_mnist.load(data)[0].images)
    if settings.held_out >= there:
        raise ValueError(f"held_out must be less than {there} images, got {settings.held_out}")
    ImageTransformer(settings, 0)


def learn(learning: Learning, also: Also | None = None) -> dict[str, float]:
    """Train a model and measure it on the test images; `also` returns further measures of the model
    and images.
    """
    settings: ImagesConfig = learning.settings
    whole, test = (part.to(learning.device) for part in fashion_mnist.load(learning.data))
    known = len(whole.images) - settings.held_out
    held_out = Pictures(whole.images[known:], whole.labels[known:])
    model = ImageTransformer(settings, learning.seed).to(learning.device)
    if learning.start is not None:
        load_model(learning.start, model, is_of_map)

    def images(step: int) -> Tensor:
        return whole.images[batch_of(step, known, settings.batch, learning.seed)]

    def loss(step: int) -> Tensor:
        labels = whole.labels[batch_of(step, known, settings.batch, learning.seed)]
        return functional.cross_entropy(model(images(step)), labels)

    def before(step: int) -> None:
        prepare_step(model, settings.attention, learning.seed, step, lambda: model(images(step)))

    def measure() -> dict[str, float]:
        return _measured(model, held_out, also)

    fit(
        model, loss, settings.fitting, learning.folder, learning.seed, measure, before,
        learning.label,
    )  # fmt: skip
    part = Pictures(test.images[: settings.test], test.labels[: settings.test])
    total, attending = flops_of(lambda: model(test.images[:1]))
    return _measured(model, part, also) | {"attention_flops": attending, "flops": total}


@torch.no_grad()
def _measured(model: ImageTransformer, pictures: Pictures, also: Also | None) -> dict[str, float]:
    chunks = pictures.images.split(_MEASURED_AT_ONCE)
    found = classified(torch.cat([model(images) for images in chunks]), pictures.labels)
    return found if also is None else found | also(model, chunks[0])
