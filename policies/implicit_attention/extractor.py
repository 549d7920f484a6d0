"""Implicit attention as a features extractor of Stable-Baselines3 (extra `rl`).

The extractor is an Implicit Attention Policy up to its head: the attention output, with the
normalised vector, through a linear layer (more of them with `hidden`) and a tanh. So PPO, SAC and
other algorithms train queries and keys with everything else.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from policies.common.building import build
from policies.common.geometry import Geometry
from policies.common.normaliser import RunningNormaliser, RunningStatistics
from policies.common.observation import Vector, parts_of
from policies.implicit_attention.policy import ImplicitAttentionPolicy

__all__ = ["ImplicitAttentionExtractor"]

_BYTE = 255


class ImplicitAttentionExtractor(BaseFeaturesExtractor):
    """Features of the image tokens that attention selects.

    Observations come as Stable-Baselines3 prepares them, images scaled to [0, 1] and channels
    first, whole numbers one-hot, or as the environment gives them: both are recognised by their
    shapes and numbers, and give the same features. Vectors, and images without bounds, are
    normalised by running statistics of the training observations; these change when
    training mode ends, so that an update uses the features with which its actions were chosen.

    Args:
        observation_space: any of `policies.common.observation`, image axes in the environment's
        order or in that of Stable-Baselines3. features_dim: numbers of the output, each from -1 to
        1. geometry: geometry of the robot's cameras, see `policies.common.geometry`. settings:
        fields of `PolicyConfig`; `hidden` are the layers before the last, none by default.

    Raises:
        ValueError: for settings or spaces that do not fit.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        features_dim: int = 256,
        *,
        geometry: Geometry | None = None,
        **settings: Any,
    ) -> None:
        if features_dim < 1:
            raise ValueError(f"features_dim must be at least 1, got {features_dim}")
        super().__init__(observation_space, features_dim)
        config = {"hidden": (), "controller": "mlp", **settings}
        if config["controller"] != "mlp":
            raise ValueError(
                f"controller must be mlp in a features extractor, got {config['controller']!r}"
            )
        if config.get("last_action", False) or config.get("repair", "none") != "none":
            raise ValueError(
                "last_action must be false and repair none in a features extractor, which is given "
                f"single observations, got {config.get('last_action', False)} and "
                f"{config.get('repair', 'none')}"
            )
        config["layout"] = _layouts(observation_space, config.get("layout") or {})
        features = spaces.Box(-np.inf, np.inf, (features_dim,), np.float32)
        policy = build(config, observation_space, features, geometry=geometry)
        assert isinstance(policy, ImplicitAttentionPolicy)
        self.policy = policy
        # By such a name Stable-Baselines3 recognises buffers that a target network copies.
        self.running_statistics = policy.normaliser
        self.pending = RunningNormaliser(policy.inputs.measured)

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        """A tensor (batch, ...), or one for each part of a Dict -> features (batch, features)."""
        parts = self._parts(observations)
        if self.training and self.policy.inputs.measured:
            found = self.policy.statistics_of(parts)
            self.pending.statistics = self.pending.statistics.merge(found)
        return self.policy.numbers(parts).tanh()

    def train(self, mode: bool = True) -> "ImplicitAttentionExtractor":
        """Set the mode; statistics that were gathered in training take effect when it ends."""
        if not mode and self.pending.count > 0:
            total = self.running_statistics.statistics.merge(self.pending.statistics)
            self.running_statistics.statistics = total
            self.pending.statistics = RunningStatistics.empty(self.policy.inputs.measured)
        return super().train(mode)

    def _parts(self, given: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parts of the observation by name, in the environment's format."""
        observed = self.policy.inputs.observations
        parts = {observed.keys[0]: given} if isinstance(given, Tensor) else dict(given)
        boxes = dict(parts_of(self._observation_space))
        for part in observed.image_parts:
            if is_image_space(boxes[part.key]):
                parts[part.key] = _unscaled(parts[part.key])
        for vector in observed.vectors:
            if vector.choices:
                parts[vector.key] = _decoded(parts[vector.key], vector)
        return parts


def _layouts(space: gymnasium.Space[Any], given: Mapping[str, str]) -> dict[str, str]:
    """Layouts of incoming images: Stable-Baselines3 moves trailing channels to the front."""
    found = dict(given)
    for key, part in parts_of(space):
        moved = is_image_space(part) and is_image_space_channels_first(part)
        if moved and found.get(key) == "HWC":
            found[key] = "CHW"
    return found


def _unscaled(part: Tensor) -> Tensor:
    """Bytes, or bytes divided by 255, whose maximum is 1 -> bytes, as floats."""
    if not part.is_floating_point():
        return part
    return part * torch.where(part.amax() > 1, 1.0, float(_BYTE))


def _decoded(part: Tensor, vector: Vector) -> Tensor:
    """Whole numbers, one-hot or plain -> plain, (batch, numbers)."""
    flat = part.reshape(len(part), -1)
    if len(vector.choices) == vector.size:  # one possibility each
        return torch.tensor(vector.start, device=flat.device).expand(len(flat), -1)
    if flat.shape[1] != vector.size:
        return flat
    each = flat.split(vector.choices, -1)
    return torch.stack([one.argmax(-1) for one in each], -1)
