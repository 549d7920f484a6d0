"""Foothold votes by a small template, the same for every leg and every offset.

Each leg has a lane: the strip of ground in which it may land. The attended values in the lane make
a profile along the direction of travel, and a template of 21 taps slides over it. The vote for an
offset is the template's product with the profile around the foothold at this offset, plus a prior
that prefers the middle. Translation does not have to be learned: there are 22 parameters, few
enough for evolution strategies to learn from scratch.

Where a pixel's ray meets the plane of the stones follows from the robot's attitude and height, both
in proprioception, and from the poses of the two cameras, see `policies.footholds.vote_plan`."""

import torch
from torch import Tensor, nn

from attention.tracing import is_for_onnx
from policies.common.geometry import Footholds
from policies.footholds.ground import levelled
from policies.footholds.head import OFFSETS
from policies.footholds.vote_plan import VotePlan
from policies.place_memory.config import CUE, PlaceMemoryConfig

_SPACING_M = 0.01
_TAPS = 21
_TAP_EVERY = 2
"""One parameter every second tap of a template, linear between."""
_LANE_M = 0.05  # half-width of a lane
_PIXEL_M = 0.024  # a pixel on the ground, of the published cameras
_EDGE_M = 0.15  # lateral places from here outward show where the stones end
_EDGE_BINS, _EDGE_BIN_M = 6, 0.03


def between_taps(taps: int) -> Tensor:
    """Weights of a template's parameters in its taps, (taps, parameters)."""
    places = torch.arange(taps, dtype=torch.float32) / _TAP_EVERY
    knots = torch.arange((taps - 1) // _TAP_EVERY + 1, dtype=torch.float32)
    return (1 - (places[:, None] - knots).abs()).clamp_min(0)


def template_votes(profile: Tensor, template: Tensor, prior: Tensor, offsets: Tensor) -> Tensor:
    """Votes (batch, legs, n) as logits.

    Args:
        profile: (batch, legs, n + taps - 1), along the direction of travel.
        template: (taps,).
        prior: (2,), linear and quadratic prior coefficients of an offset; the quadratic one is
            relative to 1.
        offsets: (n,), in units of the action.
    """
    linear, square = prior.unbind()
    if is_for_onnx():  # a convolution takes a sixth of the time there
        windows = nn.functional.conv1d(profile.flatten(0, 1).unsqueeze(1), template[None, None])
        votes = windows.view(*profile.shape[:2], -1)
    else:
        votes = profile.unfold(-1, len(template), 1) @ template
    votes = votes + linear * offsets - (1 + square) * offsets**2
    return 4.0 * votes


class TemplateVotes(nn.Module):
    """Parameters of template votes, and of the lateral speed by edges and the robot's motion.

    Args:
        footholds: footholds of the robot.
        taps: of the template.
        edges: number of edge weights.
    """

    interpolate: Tensor
    offsets: Tensor

    def __init__(self, footholds: Footholds, taps: int, edges: int) -> None:
        super().__init__()
        self.footholds = footholds
        interpolate = between_taps(taps)
        self.template = nn.Parameter(torch.zeros(interpolate.shape[1]))
        self.prior = nn.Parameter(torch.zeros(2))
        self.edges = nn.Parameter(torch.zeros(edges))
        self.balance = nn.Parameter(torch.zeros(3))
        self.register_buffer("interpolate", interpolate, persistent=False)
        self.register_buffer("offsets", torch.linspace(-1, 1, OFFSETS), persistent=False)

    def _votes(self, profile: Tensor) -> Tensor:
        return template_votes(profile, self.interpolate @ self.template, self.prior, self.offsets)

    def _balanced(self, proprio: Tensor) -> Tensor:
        """The part of the lateral speed that normalised proprioception (batch, k) gives."""
        roll, _, yaw = proprio[:, self.footholds.attitude].unbind(-1)
        own = torch.stack([roll, yaw, proprio[:, self.footholds.velocity][:, 1]], -1)
        return 0.3 * (own @ self.balance)


class VoteController(TemplateVotes):
    """Template votes for the footholds and an edge read-out for the lateral speed.

    Args:
        plan: cameras and footholds.
    """

    rays: Tensor
    grid_m: Tensor
    edges_m: Tensor

    def __init__(self, plan: VotePlan) -> None:
        super().__init__(plan.footholds, _TAPS, _EDGE_BINS)
        self.plan = plan
        self.register_buffer("rays", plan.rays_and_places(), persistent=False)
        offsets = torch.linspace(-plan.footholds.reach_m, plan.footholds.reach_m, OFFSETS)
        margin = _SPACING_M * (_TAPS // 2)
        points = torch.arange(OFFSETS + _TAPS - 1) * _SPACING_M + offsets[0] - margin
        self.register_buffer("grid_m", points, persistent=False)
        edges = torch.arange(_EDGE_BINS) * _EDGE_BIN_M + _EDGE_M
        self.register_buffer("edges_m", edges, persistent=False)

    def forward(self, image: Tensor, vector: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
        """Attended values (batch, cameras, 1, height, width) and the observation's vector (batch,
        k), raw and normalised -> votes (batch, legs, 25) and lateral speed (batch,)."""
        plan, batch = self.plan, len(vector)
        proprio = vector[:, plan.proprio]
        forward_m, lateral_m = self._ground(proprio)  # (batch, pixels)
        footholds = proprio[:, plan.footholds.nominal].view(batch, plan.footholds.legs, 2)
        values = image.flatten(1)

        lane = (lateral_m.unsqueeze(1) - footholds[:, :, 1:]).abs() / _LANE_M
        lane = (1 - lane).clamp_min(0)  # (batch, legs, pixels)
        shape = (batch, plan.footholds.legs, *plan.shape)
        seen = lane.view(shape).sum(-2).flatten(2)  # (batch, legs, columns of both cameras)
        total = (lane * values.unsqueeze(1)).view(shape).sum(-2).flatten(2)
        column_m = forward_m.view(batch, *plan.shape).mean(-2).flatten(1)
        place = (footholds[:, :, :1] + self.grid_m).unsqueeze(-1)  # (batch, legs, points, 1)
        near = (1 - (place - column_m[:, None, None]).abs() / _PIXEL_M).clamp_min(0)
        weighted = near @ torch.stack([total, seen], -1)  # (batch, legs, points, 2)
        profile = weighted[..., 0] / weighted[..., 1].clamp_min(1e-3)
        return self._votes(profile), self._speed(values, lateral_m, normal[:, plan.proprio])

    def _ground(self, proprio: Tensor) -> tuple[Tensor, Tensor]:
        """Return where pixels' rays meet the stones' plane: forward and lateral, level frame."""
        footholds = self.plan.footholds
        rotation = levelled(proprio[:, footholds.attitude]).unsqueeze(1)
        ray, camera = (rotation @ self.rays).unbind(1)  # (batch, 3, pixels)
        ground = -(proprio[:, footholds.height, None] + footholds.toe_radius_m)
        reach = (ground - camera[:, 2]) / ray[:, 2].clamp_max(-0.1)
        forward_m, lateral_m = (camera[:, :2] + reach.unsqueeze(1) * ray[:, :2]).unbind(1)
        return forward_m, lateral_m

    def _speed(self, values: Tensor, lateral_m: Tensor, normal: Tensor) -> Tensor:
        """Steer by the difference between left and right, and by the robot's motion."""
        distance = (lateral_m.abs().unsqueeze(1) - self.edges_m[:, None]).abs()
        weight = (1 - distance / _EDGE_BIN_M).clamp_min(0)  # (batch, bins, pixels)
        sided = weight @ (values * lateral_m.sign()).unsqueeze(-1)
        edges = (sided.squeeze(-1) / values.shape[-1]) @ self.edges
        return 10.0 * edges + self._balanced(normal)


class PlaceVotes(TemplateVotes):
    """Like `VoteController`, but the template slides over reads of a memory of places.

    There are 23 parameters. The lateral speed follows from the cue and the robot's motion.

    Args:
        config: the policy's settings.
        footholds: footholds of the robot.

    Raises:
        ValueError: for reads whose spacing differs from the offsets, or too few reads.
    """

    def __init__(self, config: PlaceMemoryConfig, footholds: Footholds) -> None:
        apart_m = 2 * footholds.reach_m / (OFFSETS - 1)
        if abs(config.spacing_m - apart_m) > 1e-6 or config.reads < OFFSETS + 2:
            raise ValueError(
                f"spacing_m must be {apart_m:.4g} and reach_m at least "
                f"{footholds.reach_m + apart_m:.4g} with the controller vote, whose offsets are so "
                f"far apart, got {config.spacing_m} and {config.reach_m}"
            )
        super().__init__(footholds, config.reads - OFFSETS + 1, CUE // 2)
        self.reads = config.reads

    def forward(self, given: Tensor) -> Tensor:
        """Inputs: reads of each leg, cue and normalised proprioception (batch, k)
        -> votes of each leg, and the lateral speed last (batch, legs 25 + 1)."""
        legs = self.footholds.legs
        sizes = [legs * self.reads, CUE, CUE]
        reads, holes, _, proprio = given.split([*sizes, given.shape[1] - sum(sizes)], -1)
        votes = self._votes(reads.unflatten(-1, (legs, self.reads)))
        left = holes[:, CUE // 2 :] - holes[:, : CUE // 2].flip(-1)
        speed = left @ self.edges + self._balanced(proprio)
        return torch.cat((votes.flatten(1), speed.unsqueeze(-1)), -1)
