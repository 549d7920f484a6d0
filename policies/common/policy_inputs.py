"""A policy's inputs and outputs, derived from settings and spaces alone.

No memory is allocated: `policies.build` uses this to check sizes.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.cnn.config import CNNPolicyConfig
from policies.common.geometry import Geometry, published
from policies.common.heads import FootholdHead, head_for
from policies.common.observation import Observations, prepared
from policies.common.settings import SeeingConfig
from policies.footholds.ground import PlacePlan, place_plan
from policies.footholds.vote_plan import VotePlan, vote_plan
from policies.implicit_attention.config import PolicyConfig
from policies.implicit_attention.tokens import PLACE, grid_of
from policies.place_memory.config import PlaceMemoryConfig
from policies.vision_performer.config import PooledPolicyConfig


class PolicyInputs:
    """Spaces and geometry, interpreted by a policy's settings.

    Attributes:
        observations: interpretation of the observation.
        images: the preprocessed image parts that become tokens.
        statistics_at: positions of their running statistics in the normaliser.
        measured: number of normalised values.
        votes: plan of the vote controller; None for another controller.
        places: plan of a memory of places; None without one.
        head: reads the controller's numbers as an action.
        tokens, size, pixels: tokens of all images, values of one, and numbers of the images.
        outputs: number of values that a controller without images receives of them.

    Raises:
        ValueError: for an incompatible combination.
    """

    def __init__(
        self,
        config: SeeingConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None,
    ) -> None:
        if geometry is None:
            geometry = published(observation_space, action_space)
        self.observations = Observations(observation_space, config.layout, geometry)
        is_projected = isinstance(config, PlaceMemoryConfig)
        self.images = [
            prepared(part, config, geometry)
            for part in ([] if is_projected else self.observations.image_parts)
        ]
        self.statistics_at, end = [], self.observations.vector_size
        for images in self.images:
            self.statistics_at.append(end)
            end += 0 if images.scale else 2 * images.shape[0]
        self.measured = end
        self.votes = self._votes(config, geometry, action_space)
        feet = None if geometry is None else geometry.footholds
        self.head = head_for(action_space, feet, config.bins)
        self._last = self.head.coded if config.last_action else 0
        self._vector = self.observations.vector_size
        self._count(config)
        self.places: PlacePlan | None = None
        if isinstance(config, PlaceMemoryConfig):
            self.places = place_plan(
                self.observations, geometry, self.has_footholds, config.keys == "geometry"
            )
            self.outputs = config.outputs(self.places.footholds.legs, self.places.is_plane)
            self._vector = self.places.numbers

    def _votes(
        self, config: SeeingConfig, geometry: Geometry | None, action_space: Any
    ) -> VotePlan | None:
        if isinstance(config, PlaceMemoryConfig):
            return None  # its votes are of what is remembered
        others = config.standardise or config.last_action or config.init_output != 1
        suits = isinstance(config, PolicyConfig) and config.image_means == "none" and not others
        suits = suits and config.bins is None
        if config.controller != "vote" and not (config.controller == "auto" and suits):
            return None
        found = vote_plan(self.observations, self.images, geometry, action_space)
        if isinstance(found, VotePlan):
            return found
        if config.controller == "vote":
            raise ValueError(f"controller vote needs {found}; mlp takes any")
        return None

    def _count(self, config: SeeingConfig) -> None:
        self.tokens = self.size = self.outputs = self.pixels = 0
        if not self.images:
            return
        if isinstance(config, CNNPolicyConfig):
            self.outputs = config.features_dim
            return
        grids = [
            grid_of(count, shape, config.patch, config.stride, config.edges)
            for count, shape in self.cut
        ]
        self.tokens = sum(grid.tokens for grid in grids)
        self.size = max(grid.channels for grid in grids) * config.patch[0] * config.patch[1]
        self.pixels = sum(grid.pixels for grid in grids)
        if isinstance(config, PooledPolicyConfig):
            self.outputs = config.outputs(self.tokens)
            return
        assert isinstance(config, PolicyConfig)
        tiling = all(grid.is_tiling for grid in grids) and len({g.channels for g in grids}) == 1
        self.outputs = self.tokens * self.size if tiling else self.pixels
        if config.image_means == "patches":
            self.outputs = self.tokens
        elif config.image_means == "lines":
            lines = (g.count * g.channels * (g.height + g.width) for g in grids)
            self.outputs = sum(lines)
        if config.variant == "rank":
            several = sum(grid.count for grid in grids) > 1
            places = 2 + several
            each = {"both": self.size + PLACE, "values": self.size, "places": places}
            self.outputs = config.kept(self.tokens) * each[config.rank_with]

    @property
    def cut(self) -> list[tuple[int, tuple[int, int, int]]]:
        """Number and (channels, height, width) of each group of images that become tokens."""
        if self.votes is None:
            return [(images.count, images.shape) for images in self.images]
        cameras, height, width = self.votes.shape
        return [(cameras, (1, height, width))]

    def masks(self, kept: list[Tensor]) -> dict[str, NDArray[np.bool_]]:
        """Masks of the camera's pixels for masks of these groups' pixels, (count, height, width)
        bool, by the key of their images: (height, width), or (images, height, width) where a part
        holds several apart.
        """
        if self.votes is not None:
            each = iter(self.votes.view.back(kept[0]))
            kept = [torch.stack([next(each) for _ in range(i.count)]) for i in self.images]
        masks = {}
        for images, own in zip(self.images, kept, strict=True):
            mask = images.spread(own).cpu().numpy()
            masks[images.part.key] = mask if "N" in images.part.layout else mask[0]
        return masks

    @property
    def controller(self) -> int:
        """Number of inputs of a controller without votes."""
        return self.outputs + self._vector + self._last

    @property
    def has_footholds(self) -> bool:
        """Whether actions place feet by votes."""
        return isinstance(self.head, FootholdHead)
