"""A convolutional policy, the usual one for images, to compare attention with.

Convolutions with ReLUs, a dense layer with a ReLU over all their outputs, and a controller, as in
DQN (Mnih et al. 2015, Nature 518) and Stable-Baselines3's CnnPolicy.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from attention.components import component
from attention.joining import joined
from policies.cnn.config import CNNPolicyConfig
from policies.common.base_policy import SeeingPolicy
from policies.common.controllers import linear
from policies.common.geometry import Geometry


class Convolutions(nn.Module):
    """Convolutions over images of one size, each with a ReLU, and all outputs as one vector.

    Args:
        shape: channels, height and width of the convolved images. layers: channels, kernel size and
        stride of each convolution. generator: source of the initial weights, of variance 2 / inputs
        (He et al. 2015).

    Raises:
        ValueError: for images that are smaller than a kernel.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        layers: tuple[tuple[int, int, int], ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        before, *sides = shape
        self.layers = nn.ModuleList()
        for channels, kernel, stride in layers:
            if kernel > min(sides):
                raise ValueError(
                    f"convolutions {[list(layer) for layer in layers]} do not fit images of "
                    f"{shape[1]} x {shape[2]} pixels: give policy.convolutions with smaller kernels"
                )
            drawn = linear(before * kernel**2, channels, generator)
            layer = skip_init(
                nn.Conv2d, before, channels, kernel, stride, device=torch.get_default_device()
            )
            with torch.no_grad():
                scaled = math.sqrt(2) * drawn.weight
            layer.weight = nn.Parameter(scaled.view(channels, before, kernel, kernel))
            layer.bias = drawn.bias
            self.layers.append(layer)
            before, sides = channels, [(side - kernel) // stride + 1 for side in sides]
        self.size = before * math.prod(sides)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, size)."""
        for layer in self.layers:
            images = torch.relu(layer(images))
        return images.flatten(1)


class CNNPolicy(SeeingPolicy):
    """Convolves images and acts on the result; it has neither tokens nor attention.

    Images of one part of the observation are channels of one image. Arguments and errors are those
    of `SeeingPolicy`.
    """

    config: CNNPolicyConfig

    def __init__(
        self,
        config: CNNPolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        if not self.inputs.images:
            raise ValueError(
                "policy.name must be implicit_attention for observations without images, where a "
                "policy is its controller alone, got cnn"
            )
        generator = torch.Generator().manual_seed(config.init_seed)
        self.convolutions = nn.ModuleList()
        for count, (channels, *sides) in self.inputs.cut:
            shape = count * channels, sides[0], sides[1]
            self.convolutions.append(Convolutions(shape, config.layers(*shape[1:]), generator))
        size = sum(one.size for one in self.convolutions if isinstance(one, Convolutions))
        self.dense_layer = linear(size, config.features_dim, generator)
        with torch.no_grad():
            self.dense_layer.weight.mul_(math.sqrt(2))
        self.controller = self.dense(generator)

    def described(self) -> list[str]:
        """The policy's choices by its settings and spaces, a few words each."""
        layers = [
            " ".join(f"{channels}x{kernel}x{kernel}" for channels, kernel, _ in one)
            for one in (self.config.layers(*shape[1:]) for _, shape in self.inputs.cut)
        ]
        chosen = "" if self.config.convolutions else " (by the images' size)"
        seen, *others = super().described()
        return [seen, f"convolutions {' and '.join(layers)}{chosen}", *others]

    def given(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Inputs of the controller, except the last action, (batch, k)."""
        with component("encoder"):
            groups = zip(self.convolutions, self._scaled_images(observations), strict=True)
            seen = [convolve(images.flatten(1, 2)) for convolve, images in groups]
            features = torch.relu(self.dense_layer(joined(seen, -1)))
        with component("controller"):
            normal = self.normaliser(self.inputs.observations.vector(observations))
            return torch.cat((features, normal), -1)

    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Nothing: there is no feature map."""
