"""Classification of Fashion-MNIST by a skeleton's random features, or by its network."""

import math
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from attention.compositional import (
    ACTIVATIONS,
    Activation,
    Features,
    PatchComponents,
    Skeleton,
    draw_distinct,
    image_skeleton,
)
from experiments.data import fashion_mnist
from experiments.fitting import Fitting
from experiments.learning import batch_of, learn_classifier
from experiments.task import STRICT, Learning, Measure, Task

CLASSES, SIDE_PX, STRIDE = 10, 24, 2
"""Classes of clothes; side of an image that is learned from; stride of all convolutions."""
_FITTED_ON = 2000
"""Images whose patches give the principal components."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CompositionalConfig:
    """A classifier of Fashion-MNIST, cut to 24 x 24 pixels."""

    learner: Literal["features", "network", "frozen"] = "features"
    """A linear classifier of random features, the skeleton's network, or that network of which the
    last layer alone is learned: random features of another kind."""
    windows: tuple[Annotated[int, Field(ge=1, le=24)], ...] = Field(default=(4, 5), max_length=3)
    """Sides of the convolutions, from below; without any the skeleton is fully connected."""
    activation: Literal["relu", "identity"] = "relu"
    """Activation of all nodes; identity is for features alone; without windows it is linear."""
    components: int | None = Field(default=10, ge=1)
    """Principal components of a first window; null: its pixels."""
    scale: float = Field(default=0.5, gt=0)
    """Radians of the unit circle for a deviation of the inputs."""
    features: int = Field(default=10_000, ge=1, le=200_000)
    """Distinct random features; two columns each."""
    draws: int = Field(default=1_000_000, ge=1, le=10_000_000)
    """Most draws of random features, equal ones among them."""
    channels: int = Field(default=64, ge=1, le=1024)
    """Neurons of a convolution's node in a network."""
    hidden: int = Field(default=384, ge=1, le=10_000)
    """Neurons of the output node in a network."""
    augment: bool = True
    """Train on random crops, half of them mirrored; otherwise on the centre."""
    fitting: Fitting = Fitting(
        steps=2345, learning_rate=25.0, schedule="constant", optimiser="adagrad",
        max_grad_norm=None, measure_every=469,
    )  # fmt: skip
    """Five epochs of 469 batches by default."""
    batch: int = Field(default=128, ge=1)
    """Images of a step."""
    held_out: int = Field(default=5000, ge=1, lt=60_000)
    """Number of held-out images of the training set, on which curves are measured."""
    test: int = Field(default=10_000, ge=1, le=10_000)
    """Number of test images, from the first."""


def skeleton_of(settings: CompositionalConfig) -> Skeleton:
    """Raises ValueError if the windows do not fit."""
    activation: Activation = ACTIVATIONS[settings.activation]()
    return image_skeleton(
        SIDE_PX, SIDE_PX, [(window, STRIDE, activation) for window in settings.windows],
        activation, components=settings.components,
    )  # fmt: skip


class Inputs:
    """Images -> angles of the skeleton's input nodes."""

    def __init__(self, settings: CompositionalConfig, images: Tensor) -> None:
        """The principal components are those of `images` (n, 28, 28), uint8, the first of them.

        Raises ValueError if a patch has fewer numbers than components."""
        self.scale = settings.scale
        self.patches = None
        if settings.components is not None:
            known = whiten(cut(images[:_FITTED_ON])).cpu().numpy()
            self.patches = PatchComponents.fit(
                known, settings.windows[0], STRIDE, settings.components
            )

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(n, 28, 28), uint8 -> radians (n, columns); cut as `cut` does."""
        values = whiten(cut(images, generator))
        if self.patches is None:
            return self.scale * values.flatten(1)
        components = torch.from_numpy(self.patches.transform(values.cpu().numpy()))
        return self.scale * components.to(values.device)


def cut(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(n, height, width) -> (n, 24, 24): the centre, or with a generator random crops, half of them
    mirrored."""
    rest = [size - SIDE_PX for size in images.shape[1:]]
    if generator is None:
        i, j = (size // 2 for size in rest)
        return images[:, i : i + SIDE_PX, j : j + SIDE_PX]
    n, side = len(images), torch.arange(SIDE_PX)
    top, left = (torch.randint(size + 1, (n, 1), generator=generator) for size in rest)
    mirrored = torch.randint(2, (n, 1), generator=generator).bool()
    rows, columns = top + side, left + torch.where(mirrored, side.flip(0), side)
    return images[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def whiten(images: Tensor) -> Tensor:
    """(n, height, width) -> the same as float32, each image of mean 0 and deviation 1; the
    deviation counts as at least that of one bright pixel's noise, 1 / sqrt(pixels)."""
    values = images.float() / 255
    mean = values.mean((1, 2), keepdim=True)
    deviation = values.std((1, 2), correction=0, keepdim=True)
    return (values - mean) / deviation.clamp_min(1 / math.sqrt(values[0].numel()))


class FeatureClassifier(nn.Module):
    """Logits from the real and imaginary parts of q features; the classifier's weights start at
    zero.

    The features are products of points of the unit circle, so a batch of them is the exponential of
    a sparse matrix of exponents times the angles.
    """

    exponents: Tensor
    """(q, columns), sparse."""
    weights: Tensor
    """(2q,), of cosines, then of sines."""

    def __init__(self, skeleton: Skeleton, count: int, draws: int, seed: int) -> None:
        """`count` distinct features from at most `draws` draws, determined by the seed."""
        super().__init__()
        rng = np.random.default_rng(seed)
        features = draw_distinct(skeleton, count, rng, max_draws=draws)
        weights = torch.from_numpy(features.weights).float()
        self.register_buffer("exponents", _exponents(features), persistent=False)
        self.register_buffer("weights", weights.repeat(2), persistent=False)
        self.classify = nn.Parameter(torch.zeros(CLASSES, 2 * len(features)))

    def features(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> unweighted features (2q, n), cosines before sines."""
        # The skeleton's columns may lack a margin that no window reaches.
        phase = self.exponents @ angles[:, : self.exponents.shape[1]].T.contiguous()
        found = phase.new_empty(2 * len(phase), phase.shape[1])
        torch.cos(phase, out=found[: len(phase)])
        torch.sin(phase, out=found[len(phase) :])
        return found

    def forward(self, angles: Tensor) -> Tensor:
        """Radians (n, columns) -> logits (n, 10)."""
        logits: Tensor = ((self.classify * self.weights) @ self.features(angles)).T
        return logits


def _exponents(features: Features) -> Tensor:
    """(q, columns), sparse: a feature is exp(i exponents.angles)."""
    rows, columns, values = [], [], []
    for name, terms in features.terms.items():
        (column,) = features.skeleton.inputs[name].columns
        rows.append(terms.owner)
        columns.append(np.full_like(terms.owner, column))
        values.append(terms.exponent)
    places = torch.from_numpy(np.stack((np.concatenate(rows), np.concatenate(columns))))
    size = (len(features), features.skeleton.num_columns)
    whole = torch.sparse_coo_tensor(
        places, torch.from_numpy(np.concatenate(values)).float(), size, check_invariants=True
    )
    return whole.coalesce()


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
                    raise ValueError(
                        f"windows must fit into the layer below, got {settings.windows}"
                    )
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


def check(settings: CompositionalConfig, data: str | None) -> None:
    """UserError where the images are not found, ValueError where settings do not fit."""
    known, _, _ = fashion_mnist.split(data, settings.held_out)
    if settings.draws < settings.features:
        raise ValueError(
            f"draws must be at least features, got {settings.draws} and {settings.features}"
        )
    if settings.activation != "relu" and settings.learner != "features":
        raise ValueError(f"activation must be relu for a network, got {settings.activation}")
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
