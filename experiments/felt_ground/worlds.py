"""Episodes of samples (appearance, what was felt), whose meaning is drawn anew in each.

Appearances are unit vectors. Labels are 1 where ground gives way and -1 where it holds. Kinds and
labels are drawn independently: with balanced labels or equally many samples a kind, a network could
count them.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

ASKED = 32
"""Questions an episode."""
MISSED = 0.02
"""Share of samples with the wrong label."""
_FACTORS_SEED = 12_345
_WAVES = 64


@dataclass(frozen=True)
class World:
    """How episodes are drawn."""

    kinds: int = 16
    """Kinds of ground; 0: firmness is a smooth function of `factors`."""
    dim: int = 16
    """Dimension of appearances."""
    samples: float = 3.0
    """Samples a kind on average, or of the whole episode where there are no kinds."""
    noise: float = 0.5
    """Norm of the deviation of an appearance from that of its kind."""
    pairs: bool = False
    """Whether a kind is a pair of a colour and a pattern, of which each tells nothing."""
    factors: int = 4
    """Hidden factors, uniform from -1 to 1, that shape the appearance where there are no kinds."""
    length: float = 0.7
    """Length over which firmness changes, in the unit of the factors."""
    later: float = 0.0
    """Samples a kind after all labels are drawn anew."""

    @property
    def count(self) -> int:
        """Samples an episode."""
        return round((self.samples + self.later) * max(1, self.kinds))


class Episodes(NamedTuple):
    """A batch of episodes."""

    keys: Tensor
    """Appearances in the order in which they are felt, (episodes, samples, dim)."""
    values: Tensor
    """(episodes, samples, 1)"""
    queries: Tensor
    """Appearances that are asked at the end, (episodes, ASKED, dim)."""
    truth: Tensor
    """(episodes, ASKED)"""


def draw(world: World, episodes: int, generator: torch.Generator) -> Episodes:
    """Draw independent episodes."""
    drawn = (_smooth if world.kinds == 0 else _of_kinds)(world, episodes, generator)
    keys, values, queries, truth = drawn
    return Episodes(keys, mislabelled(values, generator).unsqueeze(-1), queries, truth)


def mislabelled(values: Tensor, generator: torch.Generator) -> Tensor:
    """Labels of which a share of MISSED is wrong."""
    missed = torch.rand(values.shape, generator=generator) < MISSED
    return torch.where(missed, -values, values)


def right(read: Tensor, truth: Tensor) -> Tensor:
    """Share of right answers of each episode (episodes, ASKED); 0 counts as half right."""
    return ((read.sign() * truth + 1) / 2).mean(-1)


def _of_kinds(world: World, episodes: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    count, dim = world.kinds, world.dim

    def units(*shape: int) -> Tensor:
        return normalize(torch.randn(episodes, *shape, generator=generator), dim=-1)

    if world.pairs:
        side = math.isqrt(count)
        colours, patterns = units(side, dim // 2), units(side, dim // 2)
        both = (colours.repeat_interleave(side, 1), patterns.repeat(1, side, 1))
        looks = torch.cat(both, -1) / math.sqrt(2)
    else:
        looks = units(count, dim)

    def labels() -> Tensor:
        return torch.randint(0, 2, (episodes, count), generator=generator) * 2.0 - 1

    def sampled(number: int, meaning: Tensor) -> tuple[Tensor, Tensor]:
        kinds = torch.randint(0, count, (episodes, number), generator=generator)
        chosen = looks.gather(1, kinds.unsqueeze(-1).expand(-1, -1, dim))
        noise = torch.randn(chosen.shape, generator=generator) * (world.noise / math.sqrt(dim))
        return normalize(chosen + noise, dim=-1), meaning.gather(1, kinds)

    meaning = labels()
    keys, values = sampled(world.count - round(world.later * count), meaning)
    if world.later:
        meaning = labels()
        later = sampled(round(world.later * count), meaning)
        keys, values = torch.cat((keys, later[0]), 1), torch.cat((values, later[1]), 1)
    return keys, values, *sampled(ASKED, meaning)


def _smooth(world: World, episodes: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    fixed = torch.Generator().manual_seed(_FACTORS_SEED)  # appearances mean the same factors always
    mixing = torch.randn(world.factors, world.dim, generator=fixed)
    phases = 2 * math.pi * torch.rand(world.dim, generator=fixed)
    number = world.count + ASKED
    factors = 2 * torch.rand(episodes, number, world.factors, generator=generator) - 1
    looks = normalize((factors @ mixing + phases).cos(), dim=-1)
    noise = torch.randn(looks.shape, generator=generator) * (world.noise / math.sqrt(world.dim))
    keys = normalize(looks + noise, dim=-1)
    waves = torch.randn(episodes, world.factors, _WAVES, generator=generator) / world.length
    starts = 2 * math.pi * torch.rand(episodes, 1, _WAVES, generator=generator)
    heights = torch.randn(episodes, _WAVES, 1, generator=generator)
    firmness = ((factors @ waves + starts).cos() @ heights).squeeze(-1)
    values = torch.where(firmness > 0, 1.0, -1.0)
    split = [world.count, ASKED]
    (keys, queries), (values, truth) = keys.split(split, 1), values.split(split, 1)
    return keys, values, queries, truth
