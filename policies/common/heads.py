"""Action heads: from a controller's output to actions of any space.

A head says how many numbers it needs (`size`), and reads them as a `Decision`: the action, the
cloning loss of the expert's action, and how often the two agree.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from policies.common.action_parts import ActionParts
from policies.common.geometry import Footholds, yaw_rate_of
from policies.footholds.head import OFFSETS, FootholdVotes, most_voted, two_bin_labels

_LARGEST_WIDTH = 1e6
"""Bounds further apart are none: an action squashed to them would have no use."""
_NEAR = 1 / 12  # share of half the range, as wide as a foothold's bin


class Decision(Protocol):
    """A controller's decisions for a batch."""

    def action(self) -> Tensor:
        """(batch, ...) within the action space."""

    def loss(self, actions: Tensor, speed_weight: float = 1.0) -> Tensor:
        """The cloning loss for the expert's `actions`, a scalar; the weight applies to the values
        regressed beside footholds.
        """

    def right(self, actions: Tensor) -> Tensor:
        """Share of the action's numbers that equal the expert's or are close to them, a scalar."""

    def choices(self) -> Sequence[Tensor]:
        """Logits (batch, n) for each categorical choice."""

    def means(self) -> Tensor:
        """Continuous values (batch, k), in units of half the range, or 1 without a range."""


class Head(Protocol):
    """Interprets a controller's output (batch, size) as decisions."""

    size: int
    coded: int
    """Count of the numbers that `code` returns for an action."""
    judged: tuple[int, ...]
    """Index of the action's number for each choice of a decision, then for each mean."""
    described: str
    """The kind of actions, in a few words."""

    def __call__(self, numbers: Tensor) -> Decision:
        """The decisions for a batch."""

    def code(self, actions: Tensor) -> Tensor:
        """Actions (batch, ...) as numbers (batch, coded) about as large as 1."""

    def given(self, action: Tensor) -> Any:
        """One action in the environment's format."""

    def explored(self, chosen: Tensor, numbers: Tensor) -> Tensor:
        """Actions (batch, ...) of choices (batch, n), whole numbers from 0, and numbers (batch, k)
        about a decision's means; `given` brings them into the action space."""


class FootholdHead:
    """Footholds by votes, see `policies.footholds.head`. Where an action has a yaw rate, that and
    the lateral offsets are regressed beside the lateral speed."""

    def __init__(self, footholds: Footholds) -> None:
        self.plan = footholds
        yaw_rate = yaw_rate_of(footholds)
        self.others = () if yaw_rate is None else (yaw_rate, *footholds.lateral)
        self.size = footholds.legs * OFFSETS + 1 + len(self.others)
        self.coded = footholds.actions
        self.judged = (*footholds.forward, footholds.speed, *self.others)
        self.described = f"footholds of {footholds.legs} legs"

    def __call__(self, numbers: Tensor) -> FootholdVotes:
        votes = self.plan.legs * OFFSETS
        offsets = numbers[..., :votes].reshape(-1, self.plan.legs, OFFSETS)
        others = numbers[..., votes + 1 :] if self.others else None
        return self.votes(offsets, numbers[..., votes], others)

    def votes(self, offsets: Tensor, speed: Tensor, others: Tensor | None = None) -> FootholdVotes:
        """Votes (batch, legs, 25), the lateral speed (batch,) and, where there are such, what else
        is regressed (batch, n) as a decision."""
        plan = self.plan
        return FootholdVotes(
            offsets, speed, tuple(plan.forward), plan.speed, plan.actions, others, self.others
        )

    def code(self, actions: Tensor) -> Tensor:
        return actions

    def given(self, action: Tensor) -> NDArray[np.float32]:
        found: NDArray[np.float32] = action.float().cpu().numpy()
        return found

    def explored(self, chosen: Tensor, numbers: Tensor) -> Tensor:
        actions = numbers.new_zeros(len(numbers), self.plan.actions)
        actions[:, list(self.plan.forward)] = chosen.to(numbers) * (2 / (OFFSETS - 1)) - 1
        actions[:, self.plan.speed] = numbers[:, 0]
        if self.others:
            actions[:, list(self.others)] = numbers[:, 1:]
        return actions.clamp(-1, 1)


class BoxHead:
    """Numbers of a Box, squashed to its bounds by tanh, or unchanged on an unbounded side."""

    def __init__(self, space: spaces.Box) -> None:
        self._space = space
        self.size = self.coded = math.prod(space.shape)
        self.judged = tuple(range(self.coded))
        self.described = f"actions of {self.coded} numbers"
        low, high = (
            torch.as_tensor(bound.astype(np.float64).flatten()).float()
            for bound in (space.low, space.high)
        )
        self.squashed = (high - low).isfinite() & (high - low < _LARGEST_WIDTH)
        self.middle = torch.where(self.squashed, (low + high) / 2, 0.0)
        self.half = torch.where(self.squashed, (high - low) / 2, 1.0).clamp_min(1e-12)

    def __call__(self, numbers: Tensor) -> "BoxDecision":
        return BoxDecision(self, numbers)

    def code(self, actions: Tensor) -> Tensor:
        flat = actions.flatten(1)
        return (flat - self.middle.to(flat)) / self.half.to(flat)

    def given(self, action: Tensor) -> NDArray[Any]:
        space, found = self._space, action.detach().cpu().double().numpy().reshape(self.shape)
        if np.issubdtype(space.dtype, np.integer):
            found = found.round()
        if isinstance(space, ActionParts):
            return space.rounded(found)
        # Rounding must not move an action beyond a bound.
        given: NDArray[Any] = np.clip(found, space.low, space.high).astype(space.dtype)
        return given

    def explored(self, chosen: Tensor, numbers: Tensor) -> Tensor:
        return self.decoded(numbers)

    def decoded(self, numbers: Tensor) -> Tensor:
        """Actions (batch, ...) of numbers (batch, coded) in units of half the range."""
        action = self.middle.to(numbers) + numbers * self.half.to(numbers)
        return action.view(-1, *self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an action."""
        return self._space.shape


class BoxDecision:
    """See `BoxHead`; `numbers` (batch, size)."""

    def __init__(self, head: BoxHead, numbers: Tensor) -> None:
        self._head = head
        self._coded = torch.where(head.squashed.to(numbers.device), numbers.tanh(), numbers)

    def action(self) -> Tensor:
        return self._head.explored(self._coded, self._coded)

    def loss(self, actions: Tensor, speed_weight: float = 1.0) -> Tensor:
        return mse_loss(self._coded, self._head.code(actions.to(self._coded)))

    def right(self, actions: Tensor) -> Tensor:
        miss = (self._coded - self._head.code(actions.to(self._coded))).abs()
        return (miss <= _NEAR).float().mean()

    def choices(self) -> Sequence[Tensor]:
        return ()

    def means(self) -> Tensor:
        return self._coded


class BinnedHead(BoxHead):
    """Numbers of a Box, some of them chosen among equally spaced values between the bounds, so that
    an action may change abruptly with the observation.

    The most probable value is taken; of equal ones the nearest to the middle.

    Args:
        space: the actions.
        bins: values of each number; 0: it is regressed.

    Raises:
        ValueError: for other than one count a number, a single bin, or bins without bounds.
    """

    def __init__(self, space: spaces.Box, bins: tuple[int, ...]) -> None:
        super().__init__(space)
        if len(bins) != self.coded:
            raise ValueError(
                f"bins must have a count for each of the action's {self.coded} numbers, got "
                f"{len(bins)}"
            )
        self.binned = tuple(i for i, count in enumerate(bins) if count)
        self.regressed = tuple(i for i, count in enumerate(bins) if not count)
        if not bool(self.squashed[list(self.binned)].all()):
            raise ValueError("bins must be 0 for numbers of an action without bounds")
        self.bins = tuple(bins[i] for i in self.binned)
        self.judged = (*self.binned, *self.regressed)
        self.size = sum(self.bins) + len(self.regressed)
        self.described += f", {len(self.binned)} of them chosen among bins"

    def __call__(self, numbers: Tensor) -> "BinnedDecision":  # type: ignore[override]
        return BinnedDecision(self, numbers)

    def joined(self, values: Sequence[Tensor], means: Tensor) -> Tensor:
        """Values (batch,) of the choices and means (batch, k) as numbers (batch, coded)."""
        found = torch.cat([torch.stack(list(values), -1), means], -1) if values else means
        order = sorted(range(self.coded), key=self.judged.__getitem__)
        return found.index_select(-1, torch.tensor(order, device=found.device))

    def explored(self, chosen: Tensor, numbers: Tensor) -> Tensor:
        values = [binned(chosen[:, i], count).to(numbers) for i, count in enumerate(self.bins)]
        return self.decoded(self.joined(values, numbers))


class PartsHead(BinnedHead):
    """Choices and numbers of an action of several parts, see `ActionParts`."""

    def __init__(self, space: ActionParts, bins: int | tuple[int, ...] | None = None) -> None:
        each = (bins,) * len(space.bins) if isinstance(bins, int) else bins
        super().__init__(space, space.bins if each is None else each)
        self._parts = space
        self.described += f", in {len(space.slices)} parts"

    def given(self, action: Tensor) -> Any:
        return self._parts.nested(super().given(action))

    def flat(self, action: Any) -> NDArray[Any]:
        """The numbers (coded,) of an action in the environment's format."""
        return self._parts.joined(action)


def binned(chosen: Tensor, count: int) -> Tensor:
    """Values from -1 to 1 of choices (...) among `count`."""
    return (2 * chosen - count + 1) / (count - 1)


class BinnedDecision:
    """See `BinnedHead`; `numbers` (batch, size): logits of each choice, then the regressed
    numbers."""

    def __init__(self, head: BinnedHead, numbers: Tensor) -> None:
        self._head = head
        *self._logits, rest = numbers.split([*head.bins, len(head.regressed)], -1)
        squashed = head.squashed[list(head.regressed)].to(numbers.device)
        self._means = torch.where(squashed, rest.tanh(), rest)

    def action(self) -> Tensor:
        values = []
        for logits in self._logits:
            # 0 and not a side where all are equal, as with zero weights
            count = logits.shape[-1]
            low, high = (binned(most_voted(logits, side), count) for side in (-1, 1))
            values.append(((low + high) / 2).to(logits))
        return self._head.decoded(self._head.joined(values, self._means))

    def loss(self, actions: Tensor, speed_weight: float = 1.0) -> Tensor:
        coded = self._head.code(actions.to(self._means))
        each = [
            -(two_bin_labels(coded[:, i].clamp(-1, 1), count) * logits.log_softmax(-1)).sum(-1)
            for i, count, logits in zip(
                self._head.binned, self._head.bins, self._logits, strict=True
            )
        ]
        loss = torch.stack(each).mean() if each else self._means.new_zeros(())
        if not self._head.regressed:
            return loss
        return loss + speed_weight * mse_loss(self._means, coded[:, list(self._head.regressed)])

    def right(self, actions: Tensor) -> Tensor:
        code = self._head.code
        miss = (code(self.action()) - code(actions.to(self._means))).abs()
        return (miss <= _NEAR).float().mean()

    def choices(self) -> Sequence[Tensor]:
        return self._logits

    def means(self) -> Tensor:
        return self._means


class ChoiceHead:
    """Categorical choices: Discrete, MultiDiscrete and MultiBinary."""

    def __init__(self, space: gymnasium.Space[Any], choices: tuple[int, ...], start: Any) -> None:
        self._space, self.choices = space, choices
        self.size = self.coded = sum(choices)
        self.judged = tuple(range(len(choices)))
        self.described = f"actions among {' x '.join(map(str, choices[:4]))} choices"
        self.start = torch.as_tensor(np.asarray(start)).long().flatten().expand(len(choices))

    def __call__(self, numbers: Tensor) -> "ChoiceDecision":
        return ChoiceDecision(self, numbers)

    def index(self, actions: Tensor) -> Tensor:
        """Actions (batch, ...) -> index of each number's choice, (batch, numbers)."""
        index = actions.reshape(len(actions), -1)
        if index.is_floating_point():
            index = index.round().long()
        return index.long() - self.start.to(index.device)

    def code(self, actions: Tensor) -> Tensor:
        index = self.index(actions)
        each = [one_hot(index[:, i], n) for i, n in enumerate(self.choices)]
        return torch.cat(each, -1).float()

    def given(self, action: Tensor) -> Any:
        found = action.cpu().numpy().astype(self._space.dtype)
        return found.reshape(self._space.shape) if self._space.shape else found.reshape(-1)[0]

    def explored(self, chosen: Tensor, numbers: Tensor) -> Tensor:
        return chosen + self.start.to(chosen.device)


class ChoiceDecision:
    """See `ChoiceHead`; `numbers` (batch, size) are logits."""

    def __init__(self, head: ChoiceHead, numbers: Tensor) -> None:
        self._head = head
        self._logits = numbers.split(head.choices, -1)

    def action(self) -> Tensor:
        best = torch.stack([logits.argmax(-1) for logits in self._logits], -1)
        return self._head.explored(best, best)

    def loss(self, actions: Tensor, speed_weight: float = 1.0) -> Tensor:
        index = self._head.index(actions)
        each = [cross_entropy(logits, index[:, i]) for i, logits in enumerate(self._logits)]
        return torch.stack(each).mean()

    def right(self, actions: Tensor) -> Tensor:
        index = self._head.index(actions)
        each = [(logits.argmax(-1) == index[:, i]) for i, logits in enumerate(self._logits)]
        return torch.stack(each).float().mean()

    def choices(self) -> Sequence[Tensor]:
        return self._logits

    def means(self) -> Tensor:
        return self._logits[0][:, :0]


def head_for(
    space: gymnasium.Space[Any],
    footholds: Footholds | None = None,
    bins: int | tuple[int, ...] | None = None,
) -> Head:
    """The head for an action space; bins if there are any, or choices among the parts of an action,
    otherwise votes for footholds if the geometry has them.

    Raises:
        ValueError: for an action space that no head supports.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return PartsHead(ActionParts(space), bins)
    if bins is None and isinstance(space, ActionParts) and any(space.bins):
        bins = space.bins
    if bins is not None:
        if not isinstance(space, spaces.Box):
            raise ValueError(f"bins must be null for actions that are no Box, got {space}")
        each = bins if isinstance(bins, tuple) else (bins,) * math.prod(space.shape)
        return BinnedHead(space, each)
    if footholds is not None and space.shape == (footholds.actions,):
        return FootholdHead(footholds)
    if isinstance(space, spaces.Box) and 0 not in space.shape:
        return BoxHead(space)
    if isinstance(space, spaces.Discrete):
        return ChoiceHead(space, (int(space.n),), space.start)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(space.start, space.nvec.shape).flatten()
        return ChoiceHead(space, tuple(int(n) for n in space.nvec.flatten()), start)
    if isinstance(space, spaces.MultiBinary):
        return ChoiceHead(space, (2,) * math.prod(space.shape), 0)
    raise ValueError(
        "action_space must be a Box that holds numbers, Discrete, MultiDiscrete or MultiBinary, or "
        f"a Dict or Tuple of such, got {space}"
    )
