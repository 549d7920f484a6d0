"""Classification of Fashion-MNIST by a skeleton's random features or network."""

import torch
from torch import Tensor
from torch.nn import functional

from experiments.compositional.models import (
    CompositionalConfig,
    FeatureClassifier,
    Inputs,
    SkeletonNetwork,
    skeleton_of,
)
from experiments.data import fashion_mnist
from experiments.data.fashion_mnist import Pictures
from experiments.fitting import fit
from experiments.learning import batch_of, classified
from experiments.task import Learning, Measure, Task

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
    inputs = Inputs(settings, whole.images[:known])
    if settings.learner == "features":
        model: FeatureClassifier | SkeletonNetwork = FeatureClassifier(
            skeleton_of(settings), settings.features, settings.draws, learning.seed
        )
    else:
        model = SkeletonNetwork(settings, learning.seed)
    model = model.to(learning.device)

    def loss(step: int) -> Tensor:
        chosen = batch_of(step, known, settings.batch, learning.seed)
        draws = None
        if settings.augment:  # `fit` has seeded the generator for this step
            draws = torch.Generator().manual_seed(torch.initial_seed())
        return functional.cross_entropy(
            model(inputs(whole.images[chosen], draws)), whole.labels[chosen]
        )

    def measured(pictures: Pictures) -> dict[str, float]:
        chunks = pictures.images.split(_MEASURED_AT_ONCE)
        return classified(lambda images: model(inputs(images)), chunks, pictures.labels)

    fit(model, loss, learning, lambda: measured(whole.part(known)))
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return measured(test.part(0, settings.test)) | {"parameters": learned}


COMPOSITIONAL = Task(
    name="compositional",
    settings=CompositionalConfig,
    learn=learn,
    check=check,
    measures=(
        Measure("accuracy", "accuracy", "% of test pictures", ".2f", higher_is_better=True),
        Measure("loss", "test loss", "nats"),
        Measure("parameters", "learned", "numbers", ",.0f"),
    ),
)
