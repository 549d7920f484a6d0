"""The Implicit Attention Policy (Hybrid Random Features, section 4.4 and appendix K.1).

Images become tokens; attention scores them in O(L) and keeps the best; a small controller turns
what is left, with the other numbers of the observation, into an action.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attention.components import component
from attention.construction import Rebuilt
from policies.config import PolicyConfig
from policies.dense import DenseController
from policies.depth_repair import DepthRepair
from policies.feature_maps import attention_kernel
from policies.geometry import Geometry
from policies.heads import Decision, FootholdHead
from policies.normaliser import RunningNormaliser, RunningStatistics
from policies.recurrent import GATES, RecurrentController
from policies.selection import LearnedSelection, RandomSelection
from policies.sight import Sight
from policies.tokens import PatchTokens
from policies.vote import VoteController

__all__ = ["ImplicitAttentionPolicy", "Memory"]

_CHUNK = 1024  # observations measured at once


@dataclass(frozen=True)
class Memory:
    """What a policy carries from step to step of an episode; nothing at its beginning."""

    state: Tensor
    """Of a recurrent controller, (batch, state_size)."""
    last: Tensor
    """The action before, as the head codes it, (batch, coded); zeros where there was none."""

    def where(self, kept: Tensor) -> "Memory":
        """The same, but nothing for those of the batch that are not kept, (batch,) bool."""
        factor = kept.unsqueeze(-1).to(self.state)
        return Memory(self.state * factor, self.last * factor)


class ImplicitAttentionPolicy(Rebuilt):
    """Selects tokens of images by attention and acts by what it kept.

    Without images there is no attention: the controller acts by the vector alone.

    Args:
        config: its settings.
        observation_space: see `policies.observation`.
        action_space: a Box, Discrete, MultiDiscrete or MultiBinary.
        geometry: of the robot, see `policies.geometry`.

    Raises:
        ValueError: one sentence, if the spaces are others or do not go with the settings.
    """

    def __init__(
        self,
        config: PolicyConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        sight = self.sight = Sight(config, observation_space, action_space, geometry)
        self.head = sight.head
        self.repair: DepthRepair | None = None
        if config.repair != "none":
            self.repair = DepthRepair(config.repair == "full", sight.observations.pictures)
        generator = torch.Generator().manual_seed(config.init_seed)
        self.normaliser = RunningNormaliser(sight.measured)
        self.tokens: PatchTokens | None = None
        self.selection: LearnedSelection | RandomSelection | None = None
        if sight.images:
            self.tokens = PatchTokens(
                sight.cut,
                config.patch, config.stride, config.edges, config.standardise,
            )  # fmt: skip
            self.tokens.start_statistics([images.scale.fixed for images in sight.images])
            self.selection = self._selection(self.tokens, generator)
        self.controller: VoteController | DenseController | RecurrentController
        sizes = sight.inputs, self.head.size, config.hidden, generator
        if sight.votes is not None:
            self.controller = VoteController(sight.votes, self.normaliser)
        elif config.controller in GATES:
            self.controller = RecurrentController(config.controller, *sizes)
        else:
            self.controller = DenseController(*sizes)
        self._memory: Memory | None = None

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
                f"selection must be random or all where the patch {list(config.patch)} makes all "
                "that is seen one token, got learned"
            )
        kernel = attention_kernel(config, config.qk_dim)
        return LearnedSelection(tokens.num_features, kept, kernel, generator, config.score_step)

    @property
    def remembers(self) -> bool:
        """Whether an action depends on what was before it in its episode."""
        return self.config.last_action or isinstance(self.controller, RecurrentController)

    def reset(self) -> None:
        """Begin an episode: what is carried from step to step is forgotten."""
        self._memory = None
        if self.repair is not None:
            self.repair.reset()

    def start(self, batch: int) -> Memory:
        """What is carried at the beginning of so many episodes: nothing."""
        own = self.normaliser.mean
        state = getattr(self.controller, "state_size", 0)
        last = self.head.coded if self.config.last_action else 0
        sizes = ((batch, state), (batch, last))
        return Memory(*(torch.zeros(size, device=own.device) for size in sizes))

    def forward(self, *parts: Tensor) -> Decision:
        """A batch of each part of the observation, in the space's order -> decisions."""
        return self.decide(dict(zip(self.sight.observations.keys, parts, strict=True)))

    def decide(self, observations: Mapping[str, Tensor], memory: Memory | None = None) -> Decision:
        """Observations, each part (batch, ...) as the space has it, and what is carried, by default
        nothing -> decisions."""
        if not isinstance(self.controller, VoteController):
            return self.head(self._step(self.given(observations), memory)[0])
        assert isinstance(self.head, FootholdHead)
        assert self.tokens is not None
        handed = self._attended(self.tokens, observations)
        with component("controller"):
            vector = self.sight.observations.vector(observations)
            return self.head.votes(*self.controller(handed[0], vector))

    def numbers(self, observations: Mapping[str, Tensor]) -> Tensor:
        """What a controller without votes makes of observations that begin an episode, each part
        (batch, ...): (batch, head.size), which the head reads."""
        return self._step(self.given(observations), None)[0]

    def given(self, observations: Mapping[str, Tensor]) -> Tensor:
        """What a controller without votes is given, but for the last action, (batch, k)."""
        handed = None if self.tokens is None else self._attended(self.tokens, observations)
        with component("controller"):
            normal = self.normaliser(self.sight.observations.vector(observations))
            return normal if handed is None else torch.cat((handed, normal), -1)

    def _step(self, given: Tensor, memory: Memory | None) -> tuple[Tensor, Tensor]:
        """The controller's numbers, and its state from now on."""
        with component("controller"):
            memory = memory or self.start(len(given))
            if self.config.last_action:
                given = torch.cat((given, memory.last), -1)
            if isinstance(self.controller, RecurrentController):
                numbers, state = self.controller(given, memory.state)
                return numbers, state
            return self.controller(given), memory.state

    def unroll(
        self, observations: Mapping[str, Tensor], actions: Tensor, starts: Tensor, memory: Memory
    ) -> tuple[Decision, Memory]:
        """Decisions one after the other.

        Args:
            observations: each part (batch, steps, ...).
            actions: that were taken, (batch, steps, ...).
            starts: (batch, steps) bool, where an episode begins.
            memory: what is carried to the first step.

        Returns:
            The decisions, (batch times steps, ...), and what is carried on, without gradients.
        """
        given = self.given({key: part.flatten(0, 1) for key, part in observations.items()})
        given = given.unflatten(0, starts.shape)
        taken = self.head.code(actions.flatten(0, 1)).unflatten(0, starts.shape).to(given)
        if not self.config.last_action:
            taken = taken[..., :0]
        numbers = []
        for step in range(starts.shape[1]):
            memory = memory.where(~starts[:, step])
            made, state = self._step(given[:, step], memory)
            numbers.append(made)
            memory = Memory(state, taken[:, step])
        decision = self.head(torch.stack(numbers, 1).flatten(0, 1))
        return decision, Memory(memory.state.detach(), memory.last.detach())

    def _attended(self, cut: PatchTokens, observations: Mapping[str, Tensor]) -> Any:
        """What attention hands on: numbers (batch, k), or pictures where the controller takes
        such."""
        config, selection = self.config, self.selection
        with component("tokens"):
            pictures = self._pictures(observations)
            values = cut(pictures)
            tokens = cut.with_places(values) if selection is not None else None
        as_pictures = isinstance(self.controller, VoteController)
        if tokens is None or selection is None:
            attended = values
        elif config.variant == "trans":
            assert isinstance(selection, LearnedSelection)
            query, key = selection.project(tokens)
            with component("score"):
                attended = selection.features.attend(query, key, values)
        elif config.variant == "rank" and not as_pictures:
            assert isinstance(selection, LearnedSelection)
            handed = {
                "both": (tokens,), "values": (values,), "places": (cut.where().unsqueeze(0),),
            }  # fmt: skip
            return selection.ranked(tokens, handed[config.rank_with]).flatten(1)
        else:
            gate = selection(tokens)
            with component("score"):
                if not cut.is_tiling:
                    gates = cut.gates(gate)
                    seen = [p * g for p, g in zip(pictures, gates, strict=True)]
                    return seen if as_pictures else _joined(seen)
                attended = values * gate.unsqueeze(-1)
        if as_pictures:
            with component("controller"):
                return cut.pictures(attended)
        if cut.is_tiling:
            return attended.flatten(1)
        return _joined(pictures if selection is None else cut.pictures(attended))

    def _pictures(self, observations: Mapping[str, Tensor]) -> list[Tensor]:
        """Groups of scaled pictures (batch, count, channels, height, width)."""
        assert self.tokens is not None
        read = [images.read(observations, torch.float32) for images in self.sight.images]
        if self.sight.votes is not None:
            seen, scale = self.sight.votes.view(read), self.sight.images[0].scale
            return [scale(seen, 0, self.normaliser)]
        if self.tokens.standardises:
            return self.tokens.standardised(read)
        scaled = zip(read, self.sight.images, self.sight.statistics_at, strict=True)
        return [images.scale(pixels, at, self.normaliser) for pixels, images, at in scaled]

    def attended_tokens(self, observations: Mapping[str, Tensor]) -> Tensor:
        """The tokens that attention sees, (batch, tokens, features)."""
        assert self.tokens is not None
        return self.tokens.with_places(self.tokens(self._pictures(observations)))

    def loss(
        self,
        observations: Mapping[str, Tensor],
        actions: Tensor,
        generator: torch.Generator | None = None,
        speed_weight: float = 5.0,
    ) -> Tensor:
        """Loss of cloning, a scalar, see `policies.heads`; no random number is drawn.

        Args:
            observations: each part (batch, ...).
            actions: the expert's, (batch, ...).
            speed_weight: of what is regressed beside footholds.
        """
        return self.decide(observations).loss(actions, speed_weight)

    @torch.no_grad()
    def fit_attention(self, observations: Mapping[str, Tensor]) -> None:
        """Fit the feature map to this policy's own queries and keys of some observations.

        Nothing happens to maps without data-dependent parameters, or without learned selection.

        Args:
            observations: each part (batch, ...).

        Raises:
            ValueError: for tokens that the map cannot be fitted to, such as numbers not finite.
        """
        if isinstance(self.selection, LearnedSelection):
            self.selection.fit(self.attended_tokens(observations))

    def measured(self, observation: Any) -> NDArray[np.float64]:
        """What the normaliser needs of one observation, (k,)."""
        observations = self.sight.observations
        one = observations.batch_of_one(observation, torch.device("cpu"))
        return self._measure(one)[0]

    def _measure(self, observations: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """The vector, then each channel's mean and mean square where statistics run, (batch, k)."""
        found = [self.sight.observations.vector(observations, torch.float64)]
        for images in self.sight.images:
            if images.scale.fixed is None:
                pixels = images.read(observations, torch.float64)
                found += [pixels.mean((1, 3, 4)), pixels.square().mean((1, 3, 4))]
        numbers: NDArray[np.float64] = torch.cat(found, -1).cpu().numpy()
        return numbers

    @torch.no_grad()
    def statistics_of(self, observations: Mapping[str, Tensor]) -> RunningStatistics:
        """What the normaliser needs of observations, each part (N, ...)."""
        found = [self._measure(part) for part in _chunks(observations)]
        return RunningStatistics.empty(self.sight.measured).update(np.concatenate(found))

    @torch.no_grad()
    def set_statistics(self, observations: Mapping[str, Tensor]) -> None:
        """Normalise by these observations alone, each part (N, ...)."""
        self.normaliser.statistics = self.statistics_of(observations)
        if self.tokens is not None and self.tokens.standardises:
            self.tokens.set_statistics([images.read(observations) for images in self.sight.images])

    @torch.inference_mode()
    def act(self, observation: Any) -> Any:
        """The action for one observation, as the action space has it."""
        decision = self.decide_one(observation)
        with component("controller"):
            return self.head.given(decision.action()[0])

    def decide_one(self, observation: Any) -> Decision:
        """The decision, a batch of one, for an observation as the environment gives it; it is
        carried on that its action is taken."""
        if self.repair is not None:
            with component("repair"):
                observation = self.repair(observation)
        observations = self._one(observation)
        if not self.remembers:
            return self.decide(observations)
        numbers, state = self._step(self.given(observations), self._memory)
        decision = self.head(numbers)
        coded = self.config.last_action
        taken = self.head.code(decision.action()) if coded else numbers[:, :0]
        self._memory = Memory(state, taken)
        return decision

    def took(self, action: Tensor) -> None:
        """Carry on that another action (1, ...) was taken than that of the last decision."""
        if self._memory is not None and self.config.last_action:
            self._memory = Memory(self._memory.state, self.head.code(action))

    @torch.inference_mode()
    def attention_masks(self, observation: Any) -> dict[str, NDArray[np.bool_]]:
        """Pixels that attention keeps, by the key of their images: (height, width), or (pictures,
        height, width) where a part holds several apart; all where there is no choice."""
        if self.repair is not None:
            observation = self.repair.seen(observation)
        observations = self._one(observation)
        gates: list[Tensor] | None = None
        chooses = self.selection is not None and self.config.variant != "trans"
        if self.tokens is not None and self.selection is not None and chooses:
            gates = self.tokens.gates(self.selection(self.attended_tokens(observations)))
        kept = [
            torch.ones(count, *shape[1:]) if gates is None else gates[i][0, :, 0]
            for i, (count, shape) in enumerate(self.sight.cut)
        ]
        return self.sight.masks([part > 0.5 for part in kept])

    def attention_mask(self, observation: Any) -> NDArray[np.bool_]:
        """`attention_masks` where one part of the observation is images: those of that part.

        Raises:
            ValueError: where none or several are.
        """
        masks = self.attention_masks(observation)
        if len(masks) != 1:
            raise ValueError(
                f"attention_mask is of one part of images, got {', '.join(masks) or 'none'}; "
                "attention_masks gives those of all"
            )
        return next(iter(masks.values()))

    def _one(self, observation: Any) -> dict[str, Tensor]:
        return self.sight.observations.batch_of_one(observation, self.normaliser.mean.device)


def _joined(pictures: list[Tensor]) -> Tensor:
    flat = [part.flatten(1) for part in pictures]
    return flat[0] if len(flat) == 1 else torch.cat(flat, -1)


def _chunks(observations: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    count = len(next(iter(observations.values())))
    for first in range(0, count, _CHUNK):
        yield {key: part[first : first + _CHUNK] for key, part in observations.items()}
