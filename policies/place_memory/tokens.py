"""The tokens of a frame that are written into the memory: chosen pixels, or those of learned keys.

Selection writes the k best pixels. Attention scores them as in an Implicit Attention Policy
(`policies.implicit_attention.selection`), with that policy's feature map and size of queries and
keys, and the k best are written. All pixels attend; only those with a positive weight can be
chosen. In training the choice is as hard as in acting, and gradients reach the scores of all
pixels, written or not, as through soft weights: a sigmoid of a score's distance to the k-th best
(after the straight-through estimator of Bengio, Leonard and Courville 2013, arXiv 1308.3432).

A random choice is the baseline.

Learned keys need no knowledge of the camera. The inputs of a small network are each pixel's row,
column and depth, the camera's pitch if the observation holds it, and the attitude of the body. Its
outputs are the pixel's place along the path, whether there is a hole, the weight, and the slot
across the path, of 18: all that `policies.footholds.ground` computes from the geometry. The
controller's loss trains the network through the memory. Initial places grow along rows or columns
(`key_prior`); without that prior a key may learn to run backwards.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

from attention.components import SCORE, component
from policies.common.controllers import DenseController
from policies.common.feature_maps import attention_kernel
from policies.footholds.ground import LANE_M, MIDDLE_M, POSE, SPAN_M, Ground, PlacePlan, SeenGround
from policies.implicit_attention.config import PolicyConfig
from policies.implicit_attention.selection import LearnedSelection, straight_through
from policies.place_memory.config import (
    CHOICE_INPUTS,
    CUE,
    KEY_HIDDEN,
    KEY_INPUTS,
    KEY_OUTPUTS,
    KEY_PX,
    PlaceMemoryConfig,
)

Tokens = tuple[Tensor, Tensor, Tensor]
"""Places, shares of holes and weights, each (n, tokens)."""

_ORDERS = 256  # steps after which random choices repeat
_MOST = 2.0  # of a place, in those units
_PITCH = 3  # index of the pitch in a camera's pose
_USUAL_PITCH, _PITCH_UNIT = 0.785, 0.175  # radians: 45 and 10 degrees
_TILT_UNIT, _HEIGHT_UNIT_M = 0.175, 0.1
_STEEP = 3.0  # factor of the network's outputs before the sigmoid
_LEAST_SHARE = 1e-3  # of a frame; a slot with less counts as empty


class LearnedChoice(nn.Module):
    """Chooses by attention.

    Args:
        config: the policy's settings.
        ground: that pixels are projected by.
        generator: source of the initial parameters.
    """

    def __init__(
        self, config: PlaceMemoryConfig, ground: Ground, generator: torch.Generator
    ) -> None:
        super().__init__()
        assert config.write_tokens is not None
        scoring = PolicyConfig(feature_seed=config.feature_seed)
        kernel = attention_kernel(scoring, scoring.qk_dim)
        self.images = ground.images
        self.selection = LearnedSelection(CHOICE_INPUTS, config.write_tokens, kernel, generator)

    def forward(
        self, tokens: Tokens, observations: Mapping[str, Tensor], seen: SeenGround
    ) -> Tokens:
        """The k tokens (n, k) that are written; if gradients are required, all tokens that count in
        any frame, with weight 0 for those that are not written.

        Args:
            tokens: of frames (n, pixels); those of weight 0 do not count.
            observations: their observations, each part (n, ...).
            seen: the ground seen by the pixels.
        """
        weights = tokens[2]
        scores = self.selection.scores(self.described(observations, seen, weights))
        with component(SCORE):
            counting = scores.masked_fill(weights == 0, -torch.inf)
            best = self.selection.best(counting)
            if not scores.requires_grad:
                return _taken(tokens, best)
            gates = weights * straight_through(scores, best, counting.take_along_dim(best, -1))
            somewhere = weights.any(0)
            somewhere[0] = True  # a memory takes no frames without tokens
            at_m, holes, gates = (part[:, somewhere] for part in (*tokens[:2], gates))
            return at_m, holes, gates

    def described(
        self, observations: Mapping[str, Tensor], seen: SeenGround, weights: Tensor
    ) -> Tensor:
        """The attention features of pixels, (n, pixels, 10): row, column and depth, from -1 to 1;
        whether anything returned; a hole's difference from the share of holes in the 3 x 3 pixels
        around; place ahead and across, about as large as 1; whether it is a hole; the weight; 1."""
        with component("tokens"):
            parts, first = [], 0
            for images in self.images:
                depth = observations[images.key].float() / images.high
                height, width = depth.shape[-2:]
                count = math.prod(depth.shape[1:])
                holes = seen.holes[:, first : first + count].reshape(-1, 1, height, width)
                around = avg_pool2d(holes, 3, 1, 1, count_include_pad=False)
                sides = (torch.linspace(-1, 1, side).to(depth) for side in (height, width))
                at = torch.stack(torch.meshgrid(*sides, indexing="ij"), -1).flatten(0, 1)
                at = at.repeat(count // len(at), 1).expand(len(depth), -1, -1)
                depth = depth.reshape(len(depth), count, 1)
                differs = (holes - around).view(len(depth), count, 1)
                parts.append(torch.cat((at, 2 * depth - 1, (depth < 1).to(depth), differs), -1))
                first += count
            places = torch.stack(
                ((seen.forward_m - MIDDLE_M) / SPAN_M, seen.lateral_m / LANE_M), -1
            ).clamp(-_MOST, _MOST)
            more = torch.stack((seen.holes, weights, torch.ones_like(weights)), -1)
            return torch.cat((torch.cat(parts, 1), places, more), -1)


class RandomChoice(nn.Module):
    """Chooses random tokens: different at each step, the same in each episode.

    Args:
        config: the policy's settings.
        ground: that pixels are projected by.
        generator: source of the orders.
    """

    orders: Tensor
    """(steps, pixels), random numbers; the largest are chosen."""

    def __init__(
        self, config: PlaceMemoryConfig, ground: Ground, generator: torch.Generator
    ) -> None:
        super().__init__()
        assert config.write_tokens is not None
        self.kept = config.write_tokens
        orders = torch.rand(_ORDERS, sum(ground.pixels), generator=generator)
        self.register_buffer("orders", orders, persistent=False)

    def forward(self, tokens: Tokens, starts: Tensor, before: Tensor) -> tuple[Tokens, Tensor]:
        """The tokens that are written, (n, k), and the number of steps in the episode.

        Args:
            tokens: of frames (n, pixels); those of weight 0 do not count.
            starts: (batch, steps) bool, n of them, where an episode begins.
            before: number of its steps before the first, (batch, 1).
        """
        steps = _steps_made(starts, before[:, 0])
        with component(SCORE):
            orders = self.orders[steps.flatten().long() % _ORDERS]
            best = orders.masked_fill(tokens[2] == 0, -1).topk(self.kept).indices
            return _taken(tokens, best), steps[:, -1:] + 1


def choice_of(
    config: PlaceMemoryConfig, ground: Ground, generator: torch.Generator
) -> LearnedChoice | RandomChoice:
    """The selection that the settings name.

    Raises:
        ValueError: if images have fewer pixels than are to be written.
    """
    pixels = sum(ground.pixels)
    if config.write_tokens is None or config.write_tokens > pixels:
        raise ValueError(
            f"write_tokens must be at most the {pixels} pixels of a frame, got "
            f"{config.write_tokens}"
        )
    made = LearnedChoice if config.write_choice == "learned" else RandomChoice
    return made(config, ground, generator)


def _steps_made(starts: Tensor, before: Tensor) -> Tensor:
    """The number of steps in the episode before each of (batch, steps).

    Args:
        starts: (batch, steps) bool, where an episode begins.
        before: number of steps before the first, (batch,).
    """
    found, made = [], before
    for begins in starts.unbind(1):
        made = made.masked_fill(begins, 0)
        found.append(made)
        made = made + 1
    return torch.stack(found, 1)


def _taken(tokens: Tokens, index: Tensor) -> Tokens:
    """Gather the tokens with an index (n, k)."""
    at_m, holes, weights = (part.gather(1, index) for part in tokens)
    return at_m, holes, weights


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
        cameras = sum(images.count for images in plan.images)
        if cameras != 1:
            raise ValueError(
                f"keys must be geometry with {cameras} cameras, got learned, which takes one"
            )
        self.footholds, self.stride = plan.footholds, config.key_stride
        self.pose_key = plan.pose_key
        self.key = plan.images[0].key
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
