"""Whether a policy uses its images, from its loss on the same scenes when they are replaced.

**The test.** If images do not matter to a policy, swapping its results with and without the
intervention leaves their distribution unchanged in every scene. So the differences are as likely as
their negatives, and the probability that random signs give a sum at least as large is the p-value
(Fisher 1935, The Design of Experiments, section 21): exact for any distribution and few scenes. All
p-values that one answer rests on are corrected together by Holm 1979, Scandinavian Journal of
Statistics 6, except those that no signs could make small because all differences are zero (Tarone
1990, Biometrics 46). A policy that does not use its images is judged to use them with a probability
of at most `FALSE_ALARMS`.

**A policy does not use its images** only if each interval lies below the smallest loss that
matters; the absence of an observed loss is not enough. The upper end is computed with one more
scene that loses everything, because 20 equal scenes do not exclude that 1 in 10 differs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.analysis.intervals import Interval, mean_interval

FALSE_ALARMS = 0.05
_EXACT = 14
"""Largest number of scenes for which every choice of signs is tried."""
_DRAWS, _AT_ONCE = 50_000, 1_000


@dataclass(frozen=True)
class Evidence:
    """The effect of an intervention, measured by one outcome."""

    name: str
    """Name of the intervention."""
    lost: NDArray[np.float64]
    """Loss of reward in each scene, (scenes,)."""
    to_lose: float | None
    """Gain of the policy over the floor; None if it is not certainly positive."""
    p: float
    """p-value of the loss for a policy that does not use its images, corrected for all tests."""


@dataclass(frozen=True)
class Verdict:
    """A verdict and its reason."""

    looks: bool | None
    reason: str


def chance(lost: NDArray[np.float64]) -> float:
    """One-sided p-value of a mean loss by random signs; `differences` has shape (scenes,)."""
    moved = lost[lost != 0]
    if not moved.size:
        return 1.0
    scale = float(np.abs(moved).max())
    moved = moved / scale
    least = float(moved.sum()) - 1e-9 * len(moved)
    if len(moved) <= _EXACT:
        bits = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
        return float(((2 * bits - 1) @ moved >= least).mean())
    rng = np.random.default_rng(0)
    as_large = sum(
        int(((2 * rng.integers(0, 2, (_AT_ONCE, len(moved))) - 1) @ moved >= least).sum())
        for _ in range(_DRAWS // _AT_ONCE)
    )
    return (1 + as_large) / (1 + _DRAWS)


def corrected(chances: Sequence[float]) -> list[float]:
    """p-values such that any below a level are false alarms together as rarely as that (Holm)."""
    order = sorted(range(len(chances)), key=lambda i: chances[i])
    result, last = [1.0] * len(chances), 0.0
    possible = sum(p < 1 for p in chances)
    for rank, i in enumerate(order[:possible]):
        last = max(last, min(1.0, chances[i] * (possible - rank)))
        result[i] = last
    return result


def interval(values: NDArray[np.float64], binary: bool = False) -> Interval | None:
    """95 % interval of the mean difference over scenes; None for a single scene.

    `binary`: whether the outcome is 0 or 1. One more difference of each sign is added, so that
    scenes all alike do not make it seem certain (Bonett and Price 2012, Journal of Educational and
    Behavioral Statistics 37(4)).
    """
    if len(values) < 2:
        return None
    if not binary:
        return mean_interval(values[None])
    low, high = mean_interval(np.append(values, (1, -1))[None])
    return max(low, -1.0), min(high, 1.0)


def decide(
    evidence: Sequence[Evidence], acted_otherwise: int, scenes: int, smallest_loss: float
) -> Verdict:
    """The answer.

    Args:
        evidence: evidence of every deciding intervention by every outcome, if it changed images.
        acted_otherwise: number of scenes in which any intervention changed an action.
        scenes: number of scenes.
        smallest_loss: share of the possible loss below which a loss does not matter.
    """
    if not evidence:
        return Verdict(None, "no intervention showed it other images than its own")
    if not acted_otherwise:
        return Verdict(False, f"no action of {_scenes(scenes)} changed with its images")
    surest = min(evidence, key=lambda found: found.p)
    if surest.p <= FALSE_ALARMS:
        return Verdict(True, f"it loses {surest.name} (p = {surest.p:.2g}, corrected)")
    losing = [found for found in evidence if found.to_lose is not None]
    if not losing:
        return Verdict(None, "it comes to no more than the floor, so there is nothing to lose")
    too_few = math.ceil(math.log2(len(evidence) / FALSE_ALARMS))
    if scenes < too_few:
        return Verdict(None, f"only {_scenes(scenes)}: at least {too_few} are needed")
    widest = max(_bounds(found)[1] for found in losing)
    least = min(_bounds(found)[0] for found in losing)
    if -smallest_loss < least and widest < smallest_loss:
        return Verdict(
            False,
            f"it acts otherwise in {acted_otherwise} of {_scenes(scenes)}, but loses at most "
            f"{widest:.0%} of what it has over the floor",
        )
    if widest < smallest_loss:
        return Verdict(None, "its images matter, but not for the better: it gains without them")
    return Verdict(
        None,
        f"it may lose up to {widest:.0%} of what it has over the floor, or nothing: more episodes "
        "would decide",
    )


def _scenes(count: int) -> str:
    return f"{count} episode{'s' if count > 1 else ''}"


def _bounds(found: Evidence) -> tuple[float, float]:
    """95 % interval of the loss as a share of the possible loss."""
    assert found.to_lose is not None
    shares = found.lost / found.to_lose
    if len(shares) < 2:
        return -math.inf, math.inf
    low, high = mean_interval(shares[None])
    more = mean_interval(np.append(shares, max(1.0, float(shares.max())))[None])
    return low, max(high, more[1])
