"""A policy that remembers where the ground has holes, and steps by it.

Each depth pixel is projected on the plane of the stones' tops: its place along the path, and
whether it is a hole there. Places are keys and holes are values of a memory (`memory` in the
settings); odometry, integrated from the velocity in proprioception, says where the robot is among
them. What it reads around the nominal footholds goes to a small controller, with a cue of how holes
lie across the path now, and proprioception. No picture does.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from attention.components import component
from policies.geometry import Geometry
from policies.ground import Ground, lateral_cue, turned
from policies.place_config import PlaceMemoryConfig
from policies.place_exact import ExactPlaces
from policies.place_grid import PlaceGrid
from policies.place_linear import LinearPlaces
from policies.seeing import SeeingPolicy

__all__ = ["PlaceMemoryPolicy", "Remembered"]

_HANDED = "handed"
"""Entry of the observations in which what the memory hands on stands in place of images."""
_LATE = 0.98  # what a step leaves of what spoke for a pitch
_STEPS = 256  # whose pixels are projected at once


class Remembered(NamedTuple):
    """What is carried from step to step."""

    odometry: Tensor
    """Place on the circle, metres, and velocity along the path, metres a second: (batch, 2)."""
    written: Any
    """State of the memory, a NamedTuple of tensors (batch, ...)."""
    in_plane: Tensor
    """Of a fitted pitch, how many pixels spoke for each correction: (batch, corrections)."""


class PlaceMemoryPolicy(SeeingPolicy):
    """Remembers where holes are along the path and acts by it.

    Args:
        config: its settings.
        observation_space: a Dict of depth images and proprioception.
        action_space: of footholds.
        geometry: of the robot, see `policies.geometry`.

    Raises:
        ValueError: one sentence, if the spaces are others or do not go with the settings.
    """

    config: PlaceMemoryConfig

    def __init__(
        self,
        config: PlaceMemoryConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        plan = self.sight.places
        assert plan is not None
        self.footholds, self.proprio = plan.footholds, plan.proprio
        self.ground = Ground(plan, config.hole_m)
        self.places = _memory_of(config)
        reads_m = torch.linspace(-config.reach_m, config.reach_m, config.reads)
        self.register_buffer("reads_m", reads_m, persistent=False)
        self.controller = self.dense(torch.Generator().manual_seed(config.init_seed))

    @property
    def reads_geometry(self) -> bool:
        """It takes cameras at any pose: their pixels are projected to where they look."""
        return True

    @property
    def remembers(self) -> bool:
        """Whether an action depends on what was before it in its episode."""
        return self.config.carries or self.unrolls

    def recalled(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered | None
    ) -> tuple[Mapping[str, Tensor], Remembered | None]:
        """What is read of the memory, in place of images, and the memory from then on.

        Args:
            observations: each part (batch, steps, ...), or what this gave of them.
            starts: (batch, steps) bool, where an episode begins.
            seen: what is carried to the first step; None: nothing.
        """
        if _HANDED in observations:
            return observations, seen
        handed = []
        for part in torch.arange(starts.shape[1], device=starts.device).split(_STEPS):
            some = {key: values[:, part] for key, values in observations.items()}
            found, seen = self._unrolled(some, starts[:, part], seen)
            handed.append(found)
        images = {pictures.key for pictures in self.sight.observations.pictures}
        others = {key: values for key, values in observations.items() if key not in images}
        return {**others, _HANDED: torch.cat(handed, 1)}, seen

    @torch.no_grad()
    def prepared(
        self, observations: Mapping[str, Tensor], starts: Tensor | None
    ) -> Mapping[str, Tensor]:
        """What the memory recalls at each of observations (N, ...), which nothing that is trained
        changes."""
        count = len(next(iter(observations.values())))
        if starts is None:
            starts = torch.ones(count, dtype=torch.bool)
        steps = {key: part.unsqueeze(0) for key, part in observations.items()}
        found, _ = self.recalled(steps, starts.unsqueeze(0), None)
        return {key: part.squeeze(0) for key, part in found.items()}

    def _unrolled(
        self, observations: Mapping[str, Tensor], starts: Tensor, seen: Remembered | None
    ) -> tuple[Tensor, Remembered]:
        """What the memory hands on of each step, (batch, steps, handed)."""
        with component("tokens"):
            flat = {key: part.flatten(0, 1) for key, part in observations.items()}
            correction, in_plane = self._fitted_pitch(flat, starts, seen)
            ground = self.ground(flat, correction)
            cue = lateral_cue(ground).unflatten(0, starts.shape)
            proprio = flat[self.footholds.proprio].float()
            yaw = proprio[:, self.footholds.attitude][:, 2:]
            moves = turned(proprio[:, None, self.footholds.velocity][..., :2], yaw)[:, 0, 0]
            feet = proprio[:, self.footholds.nominal].unflatten(-1, (-1, 2))
            reads_m = (turned(feet, yaw)[..., :1] + self.reads_m).flatten(1)
            speeds, reads_m, at_m, holes, weights = (
                part.unflatten(0, starts.shape)
                for part in (moves, reads_m, ground.forward_m, ground.holes, ground.weights)
            )
        found = []
        for step in range(starts.shape[1]):
            seen = self._begun(seen, starts[:, step], cue)
            with component("tokens"):
                before_m, speed_before = seen.odometry.unbind(-1)
                now_m = before_m + self.config.decision_s / 2 * (speed_before + speeds[:, step])
                now_m = now_m.remainder(self.config.circle_m)
                odometry = torch.stack((now_m, speeds[:, step]), -1)
                there_m = now_m.unsqueeze(-1) + at_m[:, step]
                asked_m = now_m.unsqueeze(-1) + reads_m[:, step]
            tokens = (there_m, holes[:, step], weights[:, step])
            some = weights[:, step].any(0)  # pixels that no episode of the batch looks at go
            written = self.places.write(seen.written, *(part[:, some] for part in tokens))
            found.append(self.places.read(written, asked_m))
            seen = Remembered(odometry, written, in_plane)
        assert seen is not None
        return torch.cat((torch.stack(found, 1) * 2 - 1, cue), -1), seen

    def _begun(self, seen: Remembered | None, starts: Tensor, like: Tensor) -> Remembered:
        """What is carried to a step, with nothing in it where an episode begins, (batch,) bool; or
        nowhere, where no memory carries anything."""
        if seen is None or not self.config.carries:
            batch = len(starts)
            nothing = like.new_zeros(batch, 2)
            return Remembered(nothing, self.places.start(batch, like), nothing[:, :0])
        if not starts.any():
            return seen
        odometry = torch.where(starts.unsqueeze(-1), 0.0, seen.odometry)
        return seen._replace(odometry=odometry, written=self.places.cleared(seen.written, starts))

    def _fitted_pitch(
        self, flat: Mapping[str, Tensor], starts: Tensor, seen: Remembered | None
    ) -> tuple[Tensor | None, Tensor]:
        """The correction of the cameras' pitch that lets most pixels lie in the plane, of late:
        (batch times steps,), None where none is fitted; and what is carried on."""
        like = self.ground.corrections
        if not self.config.fit_pitch:
            return None, like.new_zeros(len(starts), 0)
        each = self.ground.in_plane(flat).unflatten(0, starts.shape)
        votes = torch.zeros_like(each[:, 0]) if seen is None else seen.in_plane
        middle = (like == 0).float()  # where nothing is seen, nothing is corrected
        best = []
        for step in range(starts.shape[1]):
            votes = votes.masked_fill(starts[:, step, None], 0)
            votes = _LATE * votes + each[:, step]
            best.append((votes + middle).argmax(-1))
        return like[torch.stack(best, 1).flatten()], votes

    def given(self, observations: Mapping[str, Tensor]) -> Tensor:
        """What the controller is given, but for the last action, (batch, k)."""
        if _HANDED not in observations:
            steps = {key: part.unsqueeze(1) for key, part in observations.items()}
            own = next(iter(steps.values()))
            starts = torch.ones(own.shape[:2], dtype=torch.bool, device=own.device)
            found, _ = self.recalled(steps, starts, None)
            observations = {key: part.squeeze(1) for key, part in found.items()}
        with component("controller"):
            normal = self.normaliser(self.sight.observations.vector(observations))
            return torch.cat((observations[_HANDED], normal[:, self.proprio]), -1)

    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Nothing: the places that keys can have are known, and maps are fitted to them."""


def _memory_of(config: PlaceMemoryConfig) -> Any:
    circle_m, kappa = config.circle_m, config.kappa
    if config.memory == "grid":
        return PlaceGrid(circle_m, config.cell_m, config.forgetting)
    if config.memory == "exact":
        steps = None if config.exact_s is None else round(config.exact_s / config.decision_s)
        return ExactPlaces(circle_m, kappa, config.forgetting, steps)
    return LinearPlaces(config)
