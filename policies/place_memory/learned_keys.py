"""Learned keys: places of pixels without knowledge of the camera.

The inputs of a small network are each pixel's row, column and depth, the camera's pitch if the
observation holds it, and the attitude of the body. Its outputs are the pixel's place along the
path, whether there is a hole, the weight, and the slot across the path, of 18: all that
`policies.footholds.ground` computes from the geometry. The controller's loss trains the network
through the memory.

Initial places grow along rows or columns (`key_prior`); without that prior a key may learn to run
backwards.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from attention.components import component
from policies.common.controllers import DenseController
from policies.footholds.ground import MIDDLE_M, POSE, SPAN_M, PlacePlan
from policies.place_memory.config import (
    CUE,
    KEY_HIDDEN,
    KEY_INPUTS,
    KEY_OUTPUTS,
    KEY_PX,
    PlaceMemoryConfig,
)

Tokens = tuple[Tensor, Tensor, Tensor]

_PITCH = 3  # index of the pitch in a camera's pose
_USUAL_PITCH, _PITCH_UNIT = 0.785, 0.175  # radians: 45 and 10 degrees
_TILT_UNIT, _HEIGHT_UNIT_M = 0.175, 0.1
_STEEP = 3.0  # factor of the network's outputs before the sigmoid
_LEAST_SHARE = 1e-3  # of a frame; a slot with less counts as empty


class LearnedKeys(nn.Module):
    """The depth pixels of one camera, pooled to 12 x 16, as tokens of a memory of places.

    Args:
        plan: camera and footholds.
        config: the policy's settings.
        generator: source of the initial parameters.

    Raises:
        ValueError: for several cameras.
    """

    at: Tensor
    """(tokens, 2), rows and columns from -1 to 1."""
    prior: Tensor
    """(2,), weights of row and column in the initial place ahead."""

    def __init__(
        self, plan: PlacePlan, config: PlaceMemoryConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        if sum(plan.cameras.values()) != 1:
            raise ValueError(
                f"keys must be geometry with {sum(plan.cameras.values())} cameras, got learned, "
                "which takes one"
            )
        self.footholds, self.stride = plan.footholds, config.key_stride
        self.pose_key = plan.pose_key
        (self.key,) = plan.cameras
        self.zero, self.unit = plan.geometry.image_scaling.get(self.key, (0.0, 1.0))
        sides = (torch.linspace(-1, 1, side) for side in KEY_PX)
        at = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).flatten(0, 1)
        self.register_buffer("at", at, persistent=False)
        self.register_buffer("prior", torch.tensor(config.key_prior), persistent=False)
        self.network = DenseController(KEY_INPUTS, KEY_OUTPUTS, KEY_HIDDEN, generator)
        with torch.no_grad():
            self.network.output.weight.mul_(0.3)

    def forward(self, observations: Mapping[str, Tensor]) -> tuple[Tokens, Tensor]:
        """Observations, each part (batch, ...) -> places from the base, metres, shares of holes and
        weights, each (batch, tokens); and the cue of the holes across the path, (batch, 36).

        If gradients are required, only every `config.key_stride`-th token is used.
        """
        with component("keys"):
            inputs = self._inputs(observations)
            if self.stride > 1 and torch.is_grad_enabled():
                inputs = _one_in(inputs, self.stride)
            made = self.network(inputs)
            places_m = MIDDLE_M + SPAN_M * (made[..., 0] + inputs[..., :2] @ self.prior)
            holes, weights = (_STEEP * made[..., 1:3]).sigmoid().unbind(-1)
            slots = (_STEEP * made[..., 3:]).softmax(-1) * weights.unsqueeze(-1)
            shares = slots.mean(-2)
            means = (slots * holes.unsqueeze(-1)).mean(-2) / (shares + _LEAST_SHARE)
            return (places_m, holes, weights), torch.cat((means - 0.5, shares * CUE), -1)

    def _inputs(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Row, column, depth, camera pitch, body pitch, roll and height of each token, about as
        large as 1: (batch, tokens, 7)."""
        proprio = observations[self.footholds.proprio].float()
        depth_m = observations[self.key].float()
        depth_m = depth_m.reshape(len(depth_m), 1, *depth_m.shape[-2:])
        depth = (adaptive_avg_pool2d(depth_m, KEY_PX).flatten(1) - self.zero) / self.unit
        roll, pitch, _ = (proprio[:, self.footholds.attitude] / _TILT_UNIT).unbind(-1)
        height_m = proprio[:, self.footholds.height] - self.footholds.stance_height_m
        stands = torch.stack((self._camera_pitch(roll, observations), pitch, roll,
                              height_m / _HEIGHT_UNIT_M), -1)  # fmt: skip
        tokens = depth.shape[1]
        at = self.at.expand(len(depth), -1, -1)
        return torch.cat((at, depth.unsqueeze(-1), stands.unsqueeze(1).expand(-1, tokens, -1)), -1)

    def _camera_pitch(self, like: Tensor, observations: Mapping[str, Tensor]) -> Tensor:
        """(batch,), 0 if the observation holds no camera poses."""
        if self.pose_key is None:
            return torch.zeros_like(like)
        pose = observations[self.pose_key].float().reshape(len(like), POSE)
        return (pose[:, _PITCH] - _USUAL_PITCH) / _PITCH_UNIT


def _one_in(tokens: Tensor, stride: int) -> Tensor:
    """Every `stride`-th of the tokens (batch, tokens, k), with an offset that cycles over the
    batch.
    """
    batch, count = tokens.shape[:2]
    first = torch.arange(batch, device=tokens.device).unsqueeze(-1)
    taken = first % stride + torch.arange(0, count, stride, device=tokens.device)
    return tokens.take_along_dim(taken.unsqueeze(-1), 1)
