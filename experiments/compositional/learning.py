"""Classification of Fashion-MNIST by a skeleton's random features or network."""

import torch
from torch import Tensor

from experiments.compositional.models import (
    CompositionalConfig,
    FeatureClassifier,
    Inputs,
    SkeletonNetwork,
    skeleton_of,
)
from experiments.data import fashion_mnist
from experiments.learning import batch_of, learn_classifier
from experiments.task import Learning, Measure, Task


def check(settings: CompositionalConfig, data: str | None) -> None:
    """UserError where the images are not found, ValueError where settings do not fit."""
    known, _, _ = fashion_mnist.split(data, settings.held_out)
    if settings.draws < settings.features:
        raise ValueError(
            f"draws must be at least features, got {settings.draws} and {settings.features}"
        )
    if settings.activation != "relu" and settings.learner != "features":
        raise ValueError(f"activation must be relu of a network, got {settings.activation}")
    skeleton_of(settings)
    Inputs(settings, known.images[:1])


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it on the test images."""
    settings: CompositionalConfig = learning.settings
    known, held_out, test = fashion_mnist.split(learning.data, settings.held_out, learning.device)
    inputs = Inputs(settings, known.images)
    if settings.learner == "features":
        model: FeatureClassifier | SkeletonNetwork = FeatureClassifier(
            skeleton_of(settings), settings.features, settings.draws, learning.seed
        )
    else:
        model = SkeletonNetwork(settings, learning.seed)
    model = model.to(learning.device)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        chosen = batch_of(step, len(known.labels), settings.batch, learning.seed)
        draws = None
        if settings.augment:  # `fit` has seeded the generator for this step
            draws = torch.Generator().manual_seed(torch.initial_seed())
        return inputs(known.images[chosen], draws), known.labels[chosen]

    numbers = learn_classifier(
        learning, model, batch, held_out.parts(), test.part(0, settings.test).parts(), inputs
    )
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return numbers | {"parameters": learned}


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
