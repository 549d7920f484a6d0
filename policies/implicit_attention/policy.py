"""The Implicit Attention Policy (Hybrid Random Features, section 4.4 and appendix K.1).

Images become tokens; attention scores them in O(L) and keeps the best; a small controller turns
these tokens, with the other numbers of the observation, into an action.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from numpy import bool_
from numpy.typing import NDArray
from torch import Tensor

from attention.components import component
from attention.joining import joined
from policies.common.base_policy import SeeingPolicy
from policies.common.feature_maps import attention_kernel
from policies.common.geometry import Geometry
from policies.common.heads import Decision, FootholdHead
from policies.common.recurrent_state import RecurrentState
from policies.footholds.vote import VoteController
from policies.implicit_attention.config import PolicyConfig
from policies.implicit_attention.selection import LearnedSelection, RandomSelection
from policies.implicit_attention.tokens import PatchTokens


class ImplicitAttentionPolicy(SeeingPolicy):
    """Selects tokens of images by attention and acts on them.

    Without images there is no attention: the controller acts on the vector alone.

    Arguments and errors are those of `SeeingPolicy`.
    """

    config: PolicyConfig

    def __init__(
        self,
        config: PolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__(config, observation_space, action_space, geometry)
        generator = torch.Generator().manual_seed(config.init_seed)
        self.selection: LearnedSelection | RandomSelection | None = None
        if self.tokens is not None:
            self.selection = self._selection(self.tokens, generator)
        if self.inputs.votes is not None:
            self.controller = VoteController(self.inputs.votes)
        else:
            self.controller = self.dense(generator)

    def _selection(
        self, tokens: PatchTokens, generator: torch.Generator
    ) -> LearnedSelection | RandomSelection | None:
        config, kept = self.config, self.config.kept(tokens.count)
        if config.selection == "random":
            return RandomSelection(tokens.count, kept, generator)
        if config.selection == "all":
            return None
        if tokens.count < 2:
            raise ValueError(
                f"selection must be random or all where the patch {list(config.patch)} makes "
                f"the whole observation one token, got learned"
            )
        kernel = attention_kernel(config, config.qk_dim)
        return LearnedSelection(
            tokens.num_features, kept, kernel, generator, config.score_step,
            config.qk_lengths == "unit", config.init_keys == "opposed",
        )  # fmt: skip

    def decide(
        self, observations: Mapping[str, Tensor], memory: RecurrentState | None = None
    ) -> Decision:
        """Observations, each part (batch, ...) as the space has it, and the recurrent state, by
        default the initial one -> decisions."""
        if not isinstance(self.controller, VoteController):
            return super().decide(observations, memory)
        assert isinstance(self.head, FootholdHead)
        assert self.tokens is not None
        attended = self._attended(self.tokens, observations)
        with component("controller"):
            vector = self.inputs.observations.vector(observations)
            votes = self.controller(attended[0], vector, self.normaliser(vector))
            return self.head.votes(*votes)

    def _attended(self, cut: PatchTokens, observations: Mapping[str, Tensor]) -> Any:
        """Attention output: a vector (batch, k), or images if the controller takes images."""
        config, selection = self.config, self.selection
        with component("tokens"):
            groups = self._scaled_images(observations)
            values = cut(groups)
            tokens = cut.with_places(values) if selection is not None else None
        as_images = isinstance(self.controller, VoteController)
        if config.image_means != "none":
            gate = None if tokens is None or selection is None else selection(tokens)
            return self._means(cut, groups, values, gate)
        if tokens is None or selection is None:
            attended = values
        elif config.variant == "trans":
            assert isinstance(selection, LearnedSelection)
            query, key = selection.project(tokens)
            with component("score"):
                attended = selection.features.attend(query, key, values)
        elif config.variant == "rank" and not as_images:
            assert isinstance(selection, LearnedSelection)
            parts = {
                "both": (tokens,), "values": (values,), "places": (cut.where().unsqueeze(0),),
            }  # fmt: skip
            return selection.ranked(tokens, parts[config.rank_with]).flatten(1)
        else:
            gate = selection(tokens)
            with component("score"):
                if not cut.is_tiling:
                    gates = cut.gates(gate)
                    seen = [p * g for p, g in zip(groups, gates, strict=True)]
                    return seen if as_images else _joined(seen)
                attended = values * gate.unsqueeze(-1)
        if as_images:
            with component("controller"):
                return cut.to_images(attended)
        if cut.is_tiling:
            return attended.flatten(1)
        return _joined(groups if selection is None else cut.to_images(attended))

    def _means(
        self, cut: PatchTokens, images: list[Tensor], values: Tensor, gate: Tensor | None
    ) -> Tensor:
        """Means of lines or patches of images that are masked by the gates of tokens."""
        with component("score"):
            if self.config.image_means == "patches":
                means = values.mean(-1)
                return means if gate is None else means * gate
            if gate is not None:
                images = [p * g for p, g in zip(images, cut.gates(gate), strict=True)]
            return _joined([part.mean(axis) for part in images for axis in (-1, -2)])

    def _scaled_images(self, observations: Mapping[str, Tensor]) -> list[Tensor]:
        """Groups of scaled images (batch, count, channels, height, width)."""
        if self.inputs.votes is None:
            return super()._scaled_images(observations)
        read = [images.read(observations, torch.float32) for images in self.inputs.images]
        seen = self.inputs.votes.view(read)
        return [self.inputs.images[0].scaled(seen, 0, self.normaliser)]

    def attended_tokens(self, observations: Mapping[str, Tensor]) -> Tensor:
        """The tokens that attention sees, (batch, tokens, features)."""
        assert self.tokens is not None
        return self.tokens.with_places(self.tokens(self._scaled_images(observations)))

    @torch.no_grad()
    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Fit the feature map to this policy's queries and keys of observations.

        Nothing happens to maps without data-dependent parameters, or without learned selection.

        Args:
            observations: each part (batch, ...).

        Raises:
            ValueError: for tokens that the map cannot be fitted to, such as numbers not finite.
        """
        if isinstance(self.selection, LearnedSelection):
            self.selection.fit(self.attended_tokens(observations))

    @torch.inference_mode()
    def attention_masks(self, observation: Any) -> dict[str, NDArray[bool_]]:
        """Pixels that attention keeps, by the key of their images: (height, width), or (images,
        height, width) where a part holds several apart; all pixels if there is no selection."""
        if self.repair is not None:
            observation = self.repair.seen(observation)
        observations = self._one(observation)
        gates: list[Tensor] | None = None
        chooses = self.selection is not None and self.config.variant != "trans"
        if self.tokens is not None and self.selection is not None and chooses:
            gates = self.tokens.gates(self.selection(self.attended_tokens(observations)))
        kept = [
            torch.ones(count, *shape[1:]) if gates is None else gates[i][0, :, 0]
            for i, (count, shape) in enumerate(self.inputs.cut)
        ]
        return self.inputs.masks([part > 0.5 for part in kept])

    def attention_mask(self, observation: Any) -> NDArray[bool_]:
        """The mask of `attention_masks` for an observation with one image part.

        Raises:
            ValueError: if there is no such part or several.
        """
        masks = self.attention_masks(observation)
        if len(masks) != 1:
            raise ValueError(
                f"attention_mask is of one part of images, got {', '.join(masks) or 'none'}; "
                "attention_masks gives those of all"
            )
        return next(iter(masks.values()))


def _joined(groups: list[Tensor]) -> Tensor:
    flat = [part.flatten(1) for part in groups]
    return joined(flat, -1)
