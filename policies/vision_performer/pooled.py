"""The Vision-Performer for any images and any actions, small enough for evolution strategies.

Hybrid Random Features (Choromanski et al. 2022), section 4.4 and appendix K.2: a Transformer whose
attention is linear encodes the tokens. Its output is pooled, and a controller acts on it without a
search, so that evolution strategies, cloning and reinforcement learning can train it.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention.components import component
from policies.common.base_policy import SeeingPolicy
from policies.common.geometry import Geometry
from policies.implicit_attention.tokens import PatchTokens
from policies.vision_performer.config import PooledPolicyConfig
from policies.vision_performer.encoder import ENCODER, Encoder, draw


class PooledEncoder(Encoder):
    """Encodes tokens and pools them into one vector.

    Args:
        features: length of a token with its place.
        vector: length of the observation's vector, which is also a token; 0: none.
        config: its settings.
        generator: source of the initial parameters.
    """

    def __init__(
        self, features: int, vector: int, config: PooledPolicyConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        dim = config.embed_dim
        # Constructors draw from the global generator: restore its state, then `draw` draws again.
        with torch.random.fork_rng(devices=[]):
            self.embed = nn.Linear(features, dim)
            self.vector = nn.Linear(vector, dim) if vector else None
            self._add_blocks(config)
        draw(self, generator)

    def forward(self, tokens: Tensor, vector: Tensor) -> Tensor:
        """(batch, tokens, features) and the normalised vector (batch, k) -> (batch, outputs)."""
        encoded = self.tokens(tokens, vector)
        with component(ENCODER):
            for block in self.blocks:
                encoded = block(encoded)
            return self._pooled(self.norm(encoded[:, : tokens.shape[1]]))

    def tokens(self, tokens: Tensor, vector: Tensor) -> Tensor:
        """Input of the first block: (batch, tokens, dim), with the vector last if any."""
        with component("tokens"):
            embedded: Tensor = self.embed(tokens)
            if self.vector is None:
                return embedded
            return torch.cat((embedded, self.vector(vector).unsqueeze(1)), 1)


class PooledVisionPerformer(SeeingPolicy):
    """Encodes the tokens of images by attention and acts on the pooled output.

    Arguments and errors are those of `SeeingPolicy`.
    """

    def __init__(
        self,
        config: PooledPolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        generator = torch.Generator().manual_seed(config.init_seed)
        self.encoder: PooledEncoder | None = None
        if self.tokens is not None:
            vector = self.inputs.observations.vector_size
            self.encoder = PooledEncoder(self.tokens.num_features, vector, config, generator)
        self.controller = self.dense(generator)

    def _attended(self, tokens: PatchTokens, observations: Mapping[str, Tensor]) -> Tensor:
        """The encoder's output (batch, outputs) for observations, each part (batch, ...)."""
        assert self.encoder is not None
        pooled: Tensor = self.encoder(*self._encoded(tokens, observations))
        return pooled

    def _encoded(
        self, tokens: PatchTokens, observations: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The encoder's input."""
        with component("tokens"):
            values = tokens(self._scaled_images(observations))
            vector = self.normaliser(self.inputs.observations.vector(observations))
            return tokens.with_places(values), vector

    @torch.no_grad()
    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Fit the feature maps to this policy's own queries and keys of observations, each part
        (batch, ...); nothing happens to maps without data-dependent parameters.

        Raises:
            ValueError: for tokens that a map cannot be fitted to, such as numbers not finite.
        """
        if self.encoder is not None and self.tokens is not None:
            self.encoder.fit(*self._encoded(self.tokens, observations))

    @torch.inference_mode()
    def attention_map(self, observation: Any) -> NDArray[np.float32]:
        """Attention that each pixel receives in the last block, (height, width), if the observation
        holds one image: its patch's share of the total, the mean where they overlap.

        Raises:
            ValueError: if it holds none or several.
        """
        if (
            self.tokens is None
            or self.encoder is None
            or self.inputs.cut[0][0] * len(self.inputs.cut) != 1
        ):
            raise ValueError("attention_map needs exactly one image in the observation")
        tokens = self.tokens
        inputs = self._encoded(tokens, self._one(observation))
        shares = self.encoder.received(tokens.count, *inputs)
        (spread,) = tokens.to_images(shares.unsqueeze(-1))
        (images,) = self.inputs.images
        found: NDArray[np.float32] = images.spread(spread[0, :, 0])[0].float().cpu().numpy()
        return found
