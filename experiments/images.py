"""Image Transformers on Fashion-MNIST."""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from experiments.data import fashion_mnist
from experiments.fitting import Fitting
from experiments.layers import Encoder, TransformerConfig
from experiments.learning import (
    FLOPS,
    TRUST,
    batch_of,
    flops_of,
    learn_classifier,
    trust,
)
from experiments.task import STRICT, Learning, Measure, Task

_CLASSES, _SIDE_PX = 10, 28


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ImagesConfig(TransformerConfig):
    """A Vision Transformer on Fashion-MNIST."""

    fitting: Fitting = Fitting(steps=4690, learning_rate=1e-3, warmup_steps=200, measure_every=469)
    """Ten epochs of 469 batches by default."""
    batch: int = Field(default=128, ge=1)
    """Images of a step."""
    patch_px: int = Field(default=4, ge=1, le=28)
    """Side of a patch; it divides 28."""
    read: Literal["class", "mean"] = "class"
    """The classified token: a separate one before the patches, or the mean over patches."""
    held_out: int = Field(default=5000, ge=1, lt=60_000)
    """Number of held-out images of the training set, on which curves are measured."""
    test: int = Field(default=10_000, ge=1, le=10_000)
    """Number of test images, from the first."""


class ImageTransformer(nn.Module):
    """A small Vision Transformer (Dosovitskiy et al. 2021): patches, preceded by a class token."""

    def __init__(self, settings: ImagesConfig, seed: int) -> None:
        """`seed` is the seed of the initial weights and the random vectors. Raises ValueError for
        sizes that do not fit.
        """
        super().__init__()
        side, width = settings.patch_px, settings.width
        if _SIDE_PX % side:
            raise ValueError(f"patch_px must divide {_SIDE_PX}, got {side}")
        self.side, self.mean = side, settings.read == "mean"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Linear(side * side, width)
            self.first = nn.Parameter(0.02 * torch.randn(width))
            self.places = nn.Parameter(0.02 * torch.randn((_SIDE_PX // side) ** 2 + 1, width))
            self.encoder = Encoder(settings, seed)
            self.classify = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 28, 28), uint8 -> logits (batch, 10)."""
        pixels = (images.float() / 255 - 0.2860) / 0.3530  # the training set's mean and deviation
        patches = pixels.unfold(1, self.side, self.side).unfold(2, self.side, self.side)
        tokens = self.embed(patches.flatten(3).flatten(1, 2))
        first = self.first.expand(len(tokens), 1, -1)
        tokens = self.encoder(torch.cat([first, tokens], 1) + self.places)
        logits: Tensor = self.classify(tokens[:, 1:].mean(1) if self.mean else tokens[:, 0])
        return logits


def check(settings: ImagesConfig, data: str | None) -> None:
    """UserError where the images are not found, ValueError where settings do not fit."""
    fashion_mnist.split(data, settings.held_out)
    ImageTransformer(settings, 0)


def learn(learning: Learning, with_trust: bool = False) -> dict[str, float]:
    """Train a model and measure it on the test images, with the measures in `TRUST` if wanted."""
    settings: ImagesConfig = learning.settings
    known, held_out, test = fashion_mnist.split(learning.data, settings.held_out, learning.device)
    model = ImageTransformer(settings, learning.seed).to(learning.device)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        chosen = batch_of(step, len(known.labels), settings.batch, learning.seed)
        return known.images[chosen], known.labels[chosen]

    def also(images: Tensor) -> dict[str, float]:
        return trust(model, lambda: model(images)) if with_trust else {}

    numbers = learn_classifier(
        learning, model, batch, held_out.parts(), test.part(0, settings.test).parts(), also=also
    )
    total, attending = flops_of(lambda: model(test.images[:1]))
    return numbers | {"attention_flops": attending, "flops": total}


IMAGES = Task(
    name="images",
    settings=ImagesConfig,
    learn=learn,
    check=check,
    measures=(
        Measure("accuracy", "accuracy", "% of test pictures", ".2f", higher_is_better=True),
        Measure("loss", "test loss", "nats"),
        Measure("attention_flops", "attention, FLOPs", "a picture", FLOPS),
        Measure("flops", "model, FLOPs", "a picture", FLOPS),
    ),
)
TRUSTED_IMAGES = Task(
    name="trusted_images",
    settings=ImagesConfig,
    learn=partial(learn, with_trust=True),
    check=check,
    measures=(*IMAGES.measures, *TRUST),
)
