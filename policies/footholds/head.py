"""The foothold head that all controllers share: votes over a grid of offsets become an action.

A safe foothold is not a smooth function of the observation: near a gap there is a solution on
either side, and their mean lies in the gap. So controllers vote for offsets, and the winner and its
neighbours are averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

LEGS = 4
OFFSETS = 25
"""Forward offsets voted on, from -1 to 1 in units of the action."""
_NEIGHBOURS = 2


@dataclass(frozen=True)
class FootholdVotes:
    """The decision of a controller with foothold votes.

    Attributes:
        offsets: (batch, legs, 25) votes for each leg's forward foothold offset, as logits.
        speed: (batch,) lateral body speed, in units of the action.
        forward: indices of the legs' forward offsets in the action.
        lateral_speed: index of the lateral speed.
        actions: number of action dimensions; the others are 0.
        others: (batch, n) further regressed values, in units of the action; None: none.
        others_at: their indices in the action.
    """

    offsets: Tensor
    speed: Tensor
    forward: tuple[int, ...] = tuple(range(LEGS))
    lateral_speed: int = 2 * LEGS
    actions: int = 2 * LEGS + 1
    others: Tensor | None = None
    others_at: tuple[int, ...] = ()

    def action(self) -> Tensor:
        """(batch, actions): forward offsets, lateral speed and further regressed values, in [-1,
        1].
        """
        grid = torch.linspace(-1, 1, OFFSETS, dtype=self.offsets.dtype, device=self.offsets.device)
        winner = most_voted(self.offsets).unsqueeze(-1)
        distance = (torch.arange(OFFSETS, device=winner.device) - winner).abs()
        near = self.offsets.masked_fill(distance > _NEIGHBOURS, -torch.inf)
        forward = near.softmax(-1) @ grid
        nothing = torch.zeros_like(self.speed).unsqueeze(-1)
        found = torch.cat((forward, self.means().clamp(-1, 1), nothing), -1)
        known = (*self.forward, self.lateral_speed, *self.others_at)
        places = {number: place for place, number in enumerate(known)}
        order = [places.get(number, len(known)) for number in range(self.actions)]
        return found.index_select(-1, torch.tensor(order, device=found.device))

    def loss(self, actions: Tensor, speed_weight: float = 5.0) -> Tensor:
        """Mean cross-entropy of the legs' offsets plus the weighted squared error of the speed, and
        of each of the others.

        Beside a gap there are two good footholds but their mean is not one, so each leg's offset is
        a class among 25; the lateral speed is regressed.

        Args:
            actions: (batch, actions), the expert's.
            speed_weight: weight of the regression errors.
        """
        labels = two_bin_labels(actions[:, list(self.forward)])
        cross_entropy = -(labels * self.offsets.log_softmax(-1)).sum(-1).mean()
        loss = cross_entropy + speed_weight * mse_loss(self.speed, actions[:, self.lateral_speed])
        if self.others is None:
            return loss
        errors = (self.others - actions[:, list(self.others_at)]).square().mean(0)
        return loss + speed_weight * errors.sum()

    def right(self, actions: Tensor) -> Tensor:
        """Share of the offsets within one bin of the expert's."""
        own = list(self.forward)
        miss = (self.action()[:, own] - actions[:, own]).abs()
        return (miss <= 2 / (OFFSETS - 1)).float().mean()

    def choices(self) -> Sequence[Tensor]:
        """Votes of each leg, (batch, 25)."""
        return self.offsets.unbind(1)

    def means(self) -> Tensor:
        """The lateral speed and further regressed values, (batch, 1 + n)."""
        speed = self.speed.unsqueeze(-1)
        return speed if self.others is None else torch.cat((speed, self.others), -1)


def most_voted(votes: Tensor, side: int = -1) -> Tensor:
    """Index (...) of the largest of votes (..., bins), of equal ones that nearest to the middle;
    of two as near, the lower, or with side = 1 the upper."""
    bins = votes.shape[-1]
    nearest = sorted(range(bins), key=lambda i: (abs(2 * i - bins + 1), -side * i))
    order = torch.tensor(nearest, device=votes.device)
    return order[votes.index_select(-1, order).argmax(-1)]


def two_bin_labels(offsets: Tensor, bins: int = OFFSETS) -> Tensor:
    """Offsets (...) in [-1, 1] -> (..., bins): each shared by its two nearest bins."""
    place = (offsets + 1) * ((bins - 1) / 2)
    places = torch.arange(bins, dtype=offsets.dtype, device=offsets.device)
    return (1 - (place.unsqueeze(-1) - places).abs()).clamp_min(0)
