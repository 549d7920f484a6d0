"""A policy that learns underfoot, within an episode, which ground holds.

Two memories stand in a row. The first is that of a place memory (`policies.place_memory`), whose
values are what the camera sees there: place -> appearance. The second holds how ground of an
appearance felt: appearance -> 1 if a foot sank, -1 if it stood. A footfall writes the appearance
that is remembered under the foot; before a step, the appearances of the places that a foot can
reach are asked for their risk, by which footholds are chosen. Nothing else of the ground is known.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor
from torch.nn.functional import normalize

from attention import LinearMemory
from attention.components import component
from attention.joining import joined
from attention.tracing import fixed_shape, known
from policies.common.geometry import Geometry
from policies.felt_ground.config import FeltGroundPolicyConfig
from policies.felt_ground.feeling import Feeling, Stance
from policies.felt_ground.memories import felt_memory
from policies.footholds.ground import lateral_cue, turned
from policies.footholds.vote import PlaceVotes
from policies.place_memory.localisation import feet_and_speed
from policies.place_memory.memories import SteppedPlaces
from policies.place_memory.policy import PlaceMemoryPolicy, Remembered, detached

_SIGMA_M, _WEIGHT = 0.03, 3.0
"""Initial template of the votes: a Gaussian about the foothold, and the votes that it weighs."""
_NEAR = -0.5  # quadratic prior of offsets
_STEERING = -0.2  # action a cell of 4 cm that the hole on the left is nearer than that on the right
_SEEN = 0.5  # weight of a remembered appearance, 1 where the camera saw the place
_BORDER_M = 0.035  # of a foot to both sides
_PLAIN = 0.3  # norm of an appearance that tells nothing
_TELLS = 1.5  # change of the log odds of a risk by what is read
_FAMILIAR = 0.8  # share of the ground within reach about which the memory tells, on average,
_FAMILIAR_S = 1.0  # over this time


class Felt(NamedTuple):
    """Recurrent state beyond odometry: what was seen, felt, and how the robot stands."""

    places: Any
    felt: Any
    stance: Stance
    trust: Tensor
    """(batch, 1): distance walked, metres; without `careful_m` the share of the ground about which
    the memory tells."""


class FeltGroundPolicy(PlaceMemoryPolicy):
    """Remembers what the ground looks like and how it felt, and places feet where it holds.

    Observations are a Dict of depth images, the appearances of their pixels and proprioception;
    actions place feet. Arguments and errors are those of `SeeingPolicy`.
    """

    config: FeltGroundPolicyConfig
    shown = "holds, or is unknown", "gives way"

    def __init__(
        self,
        config: FeltGroundPolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        plan = self.inputs.places
        assert plan is not None
        self.appearances = appearances_of(plan.geometry, [part.key for part in plan.images])
        looks = {part.key: part for part in self.inputs.observations.image_parts}
        (dim,) = {looks[key].channels for key in self.appearances}
        self.is_picture = looks[self.appearances[0]].high == 255
        dim = key_dim(dim, self.is_picture)
        self.looks = LinearMemory(
            1, dim + 1, "harmonic", config.num_features, kappa=config.kappa, period=config.circle_m,
            decay=config.forgetting, dtype=torch.float64,
        )  # fmt: skip
        self.feeling = Feeling(plan.footholds.toe_radius_m, config.decision_s, config.deep_m)
        self.memory = felt_memory(config.felt, dim)
        if isinstance(self.controller, PlaceVotes):
            _make_walk(self.controller)

    def _memory_of_places(self) -> SteppedPlaces:
        """Nothing: `looks` holds appearances instead."""
        return SteppedPlaces()

    def _in_order(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered
    ) -> tuple[Tensor, Remembered]:
        flat = {key: part.flatten(0, 1) for key, part in observations.items()}
        shape = fixed_shape(starts)
        assert self.ground is not None
        with component("tokens"):
            ground = self.ground(flat)
            shown = joined([flat[key].flatten(1, -2) for key in self.appearances], 1)
            if self.is_picture:
                shown = _with_products(shown.float() / 127.5 - 1)
            looks = torch.cat((shown, torch.ones_like(ground.holes).unsqueeze(-1)), -1)
            weights = ground.weights * (1 - ground.holes)
            toes_m, soles, touches, rise = self._feet(flat)
            at_m = torch.cat((ground.forward_m, toes_m), -1).unflatten(0, shape)
            odometry, at_m, asked_m = self._on_path(flat, starts, seen, at_m)
            at_m, toes_m = at_m.split([at_m.shape[-1] - toes_m.shape[-1], toes_m.shape[-1]], -1)
            ahead = feet_and_speed(flat, self.footholds)[1].unsqueeze(-1)
        parts = (looks, weights, soles, touches, rise, ahead)
        each = (part.unflatten(0, shape).unbind(1) for part in parts)
        steps = zip(at_m.unbind(1), asked_m.unbind(1), toes_m.unbind(1), *each, strict=True)
        state, found = seen.written, []
        for begins, step in zip(starts.unbind(1), steps, strict=True):
            if known(begins.any()) is not False:
                state = self._cleared(state, begins)
            risk, state = self._stepped(state, *step)
            found.append(risk)
        cue = lateral_cue(ground).unflatten(0, shape)
        recalled = torch.cat((torch.stack(found, 1) * 2 - 1, cue), -1)
        return recalled, detached(seen._replace(odometry=odometry, written=state))

    def _stepped(
        self, state: Felt, at_m: Tensor, asked_m: Tensor, toes_m: Tensor, looks: Tensor,
        weights: Tensor, soles: Tensor, touches: Tensor, rise: Tensor, ahead: Tensor,
    ) -> tuple[Tensor, Felt]:  # fmt: skip
        """Risk at the places that are read, and the next state."""
        places = self.looks.write(state.places, _points(at_m), looks.double(), gates=weights)
        depth_m, judged, stance = self.feeling(state.stance, soles, touches, rise)
        is_deep = depth_m > self.feeling.snap_m
        keys, tells, alike = self._remembered_under(places, toes_m)
        gates = judged * tells * (is_deep | alike)  # a foot on an edge may be held by a neighbour
        values = torch.where(is_deep, 1.0, -1.0).unsqueeze(-1)
        felt = self.memory.write(state.felt, keys, values, gates=gates)
        change, tells = self._change(places, felt, asked_m)
        if self.config.careful_m is None:
            is_told = (change.abs() > _TELLS).sum(-1, keepdim=True)
            share = is_told / tells.sum(-1, keepdim=True).clamp_min(1) - state.trust
            trust = state.trust + self.config.decision_s / _FAMILIAR_S * share
            trust, enough = torch.where(state.trust > _FAMILIAR, state.trust, trust), _FAMILIAR
        else:
            trust = state.trust + self.config.decision_s * ahead
            enough = self.config.careful_m
        risk = self._risk(change) * (trust > enough)
        return risk, Felt(places, felt, stance, trust)

    def _change(self, places: Any, felt: Any, at_m: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the memory changes the log odds of the risk at places (batch, n), and 1 where
        there is an appearance, else 0."""
        keys, tells = self._remembered_looks(places, at_m)
        read = self.memory.read(felt, keys).squeeze(-1)
        return self.config.sharpness * tells * read, tells

    def _risk(self, change: Tensor) -> Tensor:
        """Risk with this change of its log odds."""
        prior = math.log(self.config.prior_risk / (1 - self.config.prior_risk))
        return (change + prior).sigmoid()

    def _shares(self, written: Felt, asked_m: Tensor) -> Tensor:
        return self._risk(self._change(written.places, written.felt, asked_m)[0])

    def _remembered_looks(self, places: Any, at_m: Tensor) -> tuple[Tensor, Tensor]:
        """Unit appearances at places (batch, n), and 1 where there is one, else 0."""
        looks, seen = self.looks.read(places, _points(at_m)).float().tensor_split([-1], -1)
        if self.is_picture:
            looks = _statistics(looks)
        tells = (seen.squeeze(-1) > _SEEN) & (looks.norm(dim=-1) > _PLAIN)
        return normalize(looks, dim=-1), tells.float()

    def _remembered_under(self, places: Any, toes_m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same under feet (batch, legs), and whether the ground looks alike on both sides of
        each."""
        if self.config.alike == -1:  # all do
            keys, tells = self._remembered_looks(places, toes_m)
            return keys, tells, torch.ones_like(tells, dtype=torch.bool)
        around_m = toes_m.new_tensor((-_BORDER_M, 0.0, _BORDER_M))
        keys, tells = self._remembered_looks(places, (toes_m.unsqueeze(-1) + around_m).flatten(1))
        behind, under, ahead = keys.unflatten(1, (-1, 3)).unbind(2)
        alike = (behind * ahead).sum(-1) > self.config.alike
        return under, tells.unflatten(1, (-1, 3))[..., 1], alike

    def _feet(self, flat: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Toes along the path from the base, their heights, contacts, each (n, legs), and the
        vertical velocity (n, 1)."""
        plan = self.footholds
        proprio = flat[plan.proprio].float()
        assert plan.toes is not None
        assert plan.contacts is not None
        x, y, z = proprio[:, plan.toes].unflatten(-1, (-1, 3)).unbind(-1)
        yaw = proprio[:, plan.attitude][:, 2:]
        touches, rise = proprio[:, plan.contacts], proprio[:, plan.velocity][:, 2:]
        return turned(x, y, yaw)[0], z, touches, rise

    def _cleared(self, state: Felt, where: Tensor) -> Felt:
        """The state, empty where the mask (batch,) is True."""
        fresh = self._nothing(len(where)).written
        felt = self.memory.reset(state.felt, where)
        stance = Stance(
            *(
                torch.where(where.unsqueeze(-1), new, old)
                for new, old in zip(fresh.stance, state.stance, strict=True)
            )
        )
        trust = state.trust.masked_fill(where.unsqueeze(-1), 0)
        return Felt(self.looks.reset(state.places, where), felt, stance, trust)

    def _nothing(self, batch: int) -> Remembered:
        """The empty memory of a batch of episodes."""
        like = self.reads_m.new_zeros(batch, 2)
        nothing = like[:, :0]
        felt = self.memory.initial_state(batch)
        stance = self.feeling.start(like, self.footholds.legs)
        written = Felt(self.looks.initial_state(batch), felt, stance, like[:, :1])
        return Remembered(like, written, nothing, nothing)


def appearances_of(geometry: Any, keys: list[str]) -> list[str]:
    """Keys of the appearances of depth images.

    Raises:
        ValueError: if the environment has none.
    """
    found: Mapping[str, str] = getattr(geometry, "appearances", {})
    if not found:
        raise ValueError(
            "felt_ground needs the appearance of the ground in the observation "
            "(SteppingStones-v0 with felt_ground.world), and the geometry names none"
        )
    return [found[key] for key in keys]


def key_dim(channels: int, is_picture: bool) -> int:
    """Dimension of the keys of appearances, which for pictures include products."""
    return channels + (channels * (channels + 1) // 2 if is_picture else 0)


def _with_products(colours: Tensor) -> Tensor:
    """Colours (..., c) and the products of all pairs of them, (..., c + c (c + 1) / 2)."""
    first, second = torch.triu_indices(colours.shape[-1], colours.shape[-1])
    return torch.cat((colours, colours[..., first] * colours[..., second]), -1)


def _statistics(means: Tensor) -> Tensor:
    """Means of `_with_products` over a texture -> the mean colour, and the roots of covariances,
    which tell its contrast."""
    channels = round((math.sqrt(9 + 8 * means.shape[-1]) - 3) / 2)
    colours, products = means.split([channels, means.shape[-1] - channels], -1)
    both = products - _with_products(colours)[..., channels:]
    return torch.cat((colours, 2 * both.sign() * both.abs().sqrt()), -1)


def _points(at_m: Tensor) -> Tensor:
    return at_m.double().unsqueeze(-1)


def _make_walk(votes: PlaceVotes) -> None:
    """Set initial parameters: avoid risk, prefer small offsets, stay in the middle."""
    taps = len(votes.interpolate)
    knots_m = 0.01 * (torch.linspace(0, taps - 1, len(votes.template)) - (taps - 1) / 2)
    weights = torch.exp(-0.5 * (knots_m / _SIGMA_M) ** 2)
    with torch.no_grad():
        votes.template.copy_(-_WEIGHT * weights / (votes.interpolate @ weights).sum())
        votes.prior[1] = _NEAR
        votes.edges.fill_(_STEERING)
