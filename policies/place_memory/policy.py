"""A policy that remembers where the ground has holes and places its feet accordingly.

Each depth pixel is projected on the plane of the stones' tops: its place along the path, and
whether it is a hole there. Places are keys and holes are values of a memory (`memory` in the
settings); odometry, integrated from the velocity in proprioception, says where the robot is among
them. The values read around the nominal footholds are inputs of a small controller, with a cue of
the holes across the path, and proprioception. No image does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from attention.components import component
from attention.joining import joined
from attention.tracing import fixed_shape, known
from policies.common.base_policy import SeeingPolicy
from policies.common.geometry import Geometry
from policies.common.recurrent_state import RecurrentState
from policies.footholds.ground import Ground, lateral_cue, turned
from policies.footholds.vote import PlaceVotes
from policies.place_memory.config import PlaceMemoryConfig
from policies.place_memory.localisation import (
    banded_cue,
    check_plane,
    feet_and_speed,
    fitted_pitch,
    on_plane,
    place_of,
    way,
    wide_weights,
)
from policies.place_memory.memories import ExactPlaces, LinearPlaces, PlaceGrid, SteppedPlaces
from policies.place_memory.remembered import SHOWN, RememberedGround, places_about, seen_about
from policies.place_memory.tokens import LearnedChoice, LearnedKeys, RandomChoice, Tokens, choice_of

_RECALLED = "recalled"
"""Key of the memory's output, which replaces images in prepared observations."""
_STEPS, _PLANE_STEPS = 256, 32  # whose pixels are projected at once


class Remembered(NamedTuple):
    """Recurrent state of the memory."""

    odometry: Tensor
    """Place on the circle, metres, and velocity along the path, metres per second; where the path
    turns, place on the torus, metres: (batch, 2)."""
    written: Any
    """State of the memory, a NamedTuple of tensors (batch, ...)."""
    in_plane: Tensor
    """Number of pixels that support each correction of a fitted pitch: (batch, corrections)."""
    steps: Tensor
    """Steps made in the episode, for a random choice of tokens: (batch, 1)."""


class PlaceMemoryPolicy(SeeingPolicy):
    """Remembers where holes are along the path and acts on this memory.

    Observations are a Dict of depth images and proprioception, actions place feet. Arguments and
    errors are those of `SeeingPolicy`.
    """

    config: PlaceMemoryConfig
    reads_m: Tensor
    """Places that a leg reads, from its nominal foothold, metres."""
    shown = SHOWN
    """Names of the ends of what its map shows."""

    def __init__(
        self,
        config: PlaceMemoryConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        plan = self.inputs.places
        assert plan is not None
        self.footholds, self.proprio, self.is_plane = plan.footholds, plan.proprio, plan.is_plane
        if self.is_plane:
            check_plane(config)
        generator = torch.Generator().manual_seed(config.init_seed)
        self.ground: Ground | None = None
        self.learned: LearnedKeys | None = None
        if config.keys == "geometry":
            self.ground = Ground(plan, config.hole_m)
        else:
            self.learned = LearnedKeys(plan, config, generator)
        reads_m = torch.linspace(-config.reach_m, config.reach_m, config.reads)
        self.register_buffer("reads_m", reads_m, persistent=False)
        self.places = self._memory_of_places()
        votes = config.controller == "vote"
        self.controller = PlaceVotes(config, plan.footholds) if votes else self.dense(generator)
        self.choice: LearnedChoice | RandomChoice | None = None
        if config.write_tokens is not None:
            assert self.ground is not None
            self.choice = choice_of(config, self.ground, generator)

    def _memory_of_places(self) -> SteppedPlaces:
        """The memory of where holes are."""
        return _memory_of(self.config, self.reads_m, 2 if self.is_plane else 1)

    @property
    def reads_geometry(self) -> bool:
        """Whether it takes cameras at any pose: their pixels are projected to the ground, or the
        observation holds the pose."""
        return self.learned is None or self.learned.pose_key is not None

    @property
    def remembers(self) -> bool:
        """Whether an action depends on earlier steps of its episode."""
        return self.config.carries or self.unrolls

    @property
    def is_alike(self) -> bool:
        """Whether every decision runs the same operations."""
        return self.places.is_alike

    @property
    def unrolls(self) -> bool:
        """Whether training processes steps in order: for learned keys, a learned choice, or a
        recurrent controller.
        """
        return self._learns_memory or super().unrolls

    @property
    def _learns_memory(self) -> bool:
        """Whether training changes the output of the memory."""
        return self.learned is not None or isinstance(self.choice, LearnedChoice)

    def recalled(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered | None
    ) -> tuple[Mapping[str, Tensor], Remembered | None]:
        """The memory's output in place of images, and its next state.

        Args:
            observations: each part (batch, steps, ...), or the output of this method.
            starts: (batch, steps) bool, where an episode begins.
            seen: state before the first step; None: empty.
        """
        if _RECALLED in observations:
            return observations, seen
        recalled = []
        most = _PLANE_STEPS if self.is_plane else _STEPS
        parts = {key: _cut(values, most) for key, values in observations.items()}
        for place, begins in enumerate(_cut(starts, most)):
            some = {key: values[place] for key, values in parts.items()}
            found, seen = self._unrolled(some, begins, seen)
            recalled.append(found)
        images = {part.key for part in self.inputs.observations.image_parts}
        others = {key: values for key, values in observations.items() if key not in images}
        state = seen if self.config.carries else None
        return {**others, _RECALLED: joined(recalled, 1)}, state

    @torch.no_grad()
    def prepared(
        self, observations: Mapping[str, Tensor], starts: Tensor | None
    ) -> Mapping[str, Tensor]:
        """The memory's output at each of the observations (N, ...), which training does not change;
        with learned keys or a learned choice, the observations themselves."""
        if self._learns_memory:
            return observations
        count = len(next(iter(observations.values())))
        if starts is None:
            starts = torch.ones(count, dtype=torch.bool)
        steps = {key: part.unsqueeze(0) for key, part in observations.items()}
        found, _ = self.recalled(steps, starts.unsqueeze(0), None)
        return {key: part.squeeze(0) for key, part in found.items()}

    def _unrolled(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered | None
    ) -> tuple[Tensor, Remembered]:
        """The memory's output at each step, (batch, steps, k), and its next state, without
        gradients."""
        if not self.config.carries:  # steps are independent
            each = {key: part.flatten(0, 1).unsqueeze(1) for key, part in observations.items()}
            alone = starts.new_ones(starts.numel(), 1)
            found, seen = self._in_order(each, alone, self._nothing(starts.numel()))
            return found.view(*starts.shape, -1), seen
        return self._in_order(observations, starts, seen or self._nothing(len(starts)))

    def _in_order(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered
    ) -> tuple[Tensor, Remembered]:
        flat = {key: part.flatten(0, 1) for key, part in observations.items()}
        shape = fixed_shape(starts)
        with component("tokens"):
            tokens, cue, in_plane, steps = self._tokens(flat, starts, seen)
            at_m, holes, weights = (part.unflatten(0, shape) for part in tokens)
            locate = self._on_plane if self.is_plane else self._on_path
            odometry, at_m, asked_m = locate(flat, starts, seen, at_m)
        written, found = seen.written, []
        lengths = _stretches(starts)
        parts = (_cut(part, lengths) for part in (starts, at_m, holes, weights, asked_m))
        for begins, *given in zip(*parts, strict=True):
            if known(begins[:, 0].any()) is not False:
                written = self.places.cleared(written, begins[:, 0])
            read, written = self.places.unroll(written, *given)
            found.append(read)
        recalled = torch.cat((joined(found, 1) * 2 - 1, cue.unflatten(0, shape)), -1)
        return recalled, detached(Remembered(odometry, written, in_plane, steps))

    def _on_path(
        self, flat: Mapping[str, Tensor], starts: Tensor, seen: Remembered, at_m: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Odometry after the last step, places of tokens (batch, steps, tokens), of which `at_m` is
        relative to the base, and places that are read, (batch, steps, reads)."""
        shape = fixed_shape(starts)
        feet_m, speeds = feet_and_speed(flat, self.footholds)
        speeds = speeds.view(shape)
        position_m = place_of(flat, self.footholds)
        if position_m is None:
            way_m = way(speeds, starts, seen.odometry, self.config.decision_s)
        else:
            way_m = position_m[..., 0].view(shape)
        now_m = way_m.remainder(self.config.circle_m).unsqueeze(-1)
        reads_m = (feet_m.unsqueeze(-1) + self.reads_m).flatten(1)
        odometry = torch.cat((now_m.select(1, -1), speeds[..., -1:]), -1)
        return odometry, now_m + at_m, now_m + reads_m.unflatten(0, shape)

    def _on_plane(
        self, flat: Mapping[str, Tensor], starts: Tensor, seen: Remembered, at_m: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same for places in two dimensions, the last axis."""
        places_m = on_plane(
            flat, self.footholds, at_m.flatten(0, 1), self.reads_m, self.config.circle_m
        )
        now_m, at_m, asked_m = (part.unflatten(0, fixed_shape(starts)) for part in places_m)
        return now_m[:, -1], at_m, asked_m

    def _tokens(
        self, flat: Mapping[str, Tensor], starts: Tensor, seen: Remembered
    ) -> tuple[Tokens, Tensor, Tensor, Tensor]:
        """Tokens of steps (n, ...): places from the base, holes and weights, each (n, tokens), and
        places (n, tokens, 2) where the path turns; the cue of holes across the path; and the next
        state of a fitted pitch and of the count of steps."""
        steps = seen.steps
        if self.learned is not None:
            return *self.learned(flat), seen.in_plane, steps
        assert self.ground is not None
        correction, in_plane = None, seen.in_plane
        if self.config.fit_pitch:
            correction, in_plane = fitted_pitch(self.ground, flat, starts, in_plane)
        ground = self.ground(flat, correction)
        if self.is_plane:
            at_m = torch.stack((ground.forward_m, ground.lateral_m), -1)
            tokens = (at_m, ground.holes, wide_weights(ground))
            return tokens, banded_cue(ground), in_plane, steps
        tokens = (ground.forward_m, ground.holes, ground.weights)
        if isinstance(self.choice, LearnedChoice):
            tokens = self.choice(tokens, flat, ground)
        elif self.choice is not None:
            tokens, steps = self.choice(tokens, starts, steps)
        return tokens, lateral_cue(ground), in_plane, steps

    def start(self, batch: int) -> RecurrentState:
        """The initial state of a batch of episodes, with an empty memory."""
        state = super().start(batch)
        return replace(state, seen=self._nothing(batch)) if self.config.carries else state

    def _nothing(self, batch: int) -> Remembered:
        """The empty memory of a batch of episodes."""
        like = self.reads_m.new_zeros(batch, 2)
        votes = (
            0 if self.ground is None or not self.config.fit_pitch else len(self.ground.corrections)
        )
        steps = 1 if isinstance(self.choice, RandomChoice) else 0
        written = self.places.start(batch, like)
        return Remembered(like, written, *(like.new_zeros(batch, n) for n in (votes, steps)))

    def given(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Inputs of the controller without the last action, (batch, k)."""
        if _RECALLED not in observations:
            steps = {key: part.unsqueeze(1) for key, part in observations.items()}
            own = next(iter(steps.values()))
            starts = torch.ones(own.shape[:2], dtype=torch.bool, device=own.device)
            found, _ = self.recalled(steps, starts, None)
            observations = {key: part.squeeze(1) for key, part in found.items()}
        with component("controller"):
            normal = self.normaliser(self.inputs.observations.vector(observations))
            return torch.cat((observations[_RECALLED], normal[..., self.proprio]), -1)

    @torch.inference_mode()
    def remembered(self, observation: Any) -> RememberedGround:
        """The memory's map of the ground about the robot, after the decision on an observation.

        A policy without a state, or before its first decision, maps that frame alone.
        """
        parts = self._one(observation if self.repair is None else self.repair.seen(observation))
        continues = torch.zeros(1, 1, dtype=torch.bool, device=self.reads_m.device)
        seen: Remembered | None = None if self._memory is None else self._memory.seen
        if seen is None or not self.config.carries:
            steps = {key: part.unsqueeze(1) for key, part in parts.items()}
            seen = self._unrolled(steps, continues, None)[1]
        (tokens_m, _, weights), *_ = self._tokens(parts, continues, seen)
        tokens_m = tokens_m[weights >= 0.5]
        forward_m, left_m = places_about(2 if self.is_plane else 1, self.reads_m)
        proprio = parts[self.footholds.proprio].float()
        feet_m = proprio[:, self.footholds.nominal].unflatten(-1, (-1, 2))
        if self.is_plane:
            about_m = torch.cartesian_prod(left_m, forward_m).flip(-1)  # (rows places, 2)
            _, asked_m, _ = on_plane(
                parts, self.footholds, about_m, self.reads_m, self.config.circle_m
            )
        else:
            asked_m = seen.odometry[:, :1] + forward_m
            tokens_m = tokens_m.unsqueeze(-1).expand(-1, 2)
            yaw = proprio[:, self.footholds.attitude][:, 2:]
            feet_m = torch.stack(turned(feet_m[..., 0], feet_m[..., 1], yaw), -1)
        shares = self._shares(seen.written, asked_m).view(len(left_m), len(forward_m))
        return RememberedGround(
            forward_m.cpu().numpy(),
            left_m.cpu().numpy(),
            shares.cpu().numpy(),
            seen_about(forward_m, left_m, tokens_m).cpu().numpy(),
            feet_m[0].cpu().numpy(),
            self.config.reach_m,
            self.shown,
        )

    def _shares(self, written: Any, asked_m: Tensor) -> Tensor:
        """What the memory says of places (batch, n), as its map shows it."""
        return self.places.read(written, asked_m)

    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Do nothing: maps are already fitted to the known places of keys."""


def _stretches(starts: Tensor) -> list[int]:
    """Lengths of the segments of (batch, steps) between episode starts."""
    if starts.shape[1] == 1:  # without reading values, which an export cannot
        return [1]
    begins = starts.any(0).nonzero().flatten().tolist()
    ends = [*sorted({0, *begins}), starts.shape[1]]
    return [last - first for first, last in pairwise(ends)]


def _cut(steps: Tensor, lengths: int | list[int]) -> Sequence[Tensor]:
    """Split (batch, steps, ...) along the steps; a single part takes no operation."""
    whole = len(lengths) == 1 if isinstance(lengths, list) else steps.shape[1] <= lengths
    return (steps,) if whole else steps.split(lengths, 1)


def detached(state: Any) -> Any:
    """A tensor, or a NamedTuple of tensors, without gradients."""
    if isinstance(state, Tensor):
        return state.detach() if state.requires_grad else state
    return type(state)(*map(detached, state))


def _memory_of(config: PlaceMemoryConfig, reads_m: Tensor, axes: int) -> SteppedPlaces:
    circle_m, kappa = config.circle_m, config.kappa
    if config.memory == "grid" or (config.keys == "geometry" and not config.carries):
        return PlaceGrid(circle_m, config.cell_m, config.forgetting, axes)
    if config.memory == "exact":
        steps = None if config.exact_s is None else round(config.exact_s / config.decision_s)
        return ExactPlaces(circle_m, kappa, config.forgetting, steps)
    return LinearPlaces(config, reads_m, axes)
