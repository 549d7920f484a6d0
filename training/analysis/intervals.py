"""95 % intervals where every policy meets the same scenes: training seeds and scenes are crossed.

Rewards are a matrix with one row per training seed and one column per scene, modelled as a mean
plus a seed's, a scene's and a residual effect, all random. The mean's variance comes from the mean
squares of that two-way table: a part of the seeds, that of their means, and the rest, of the
scenes. The half width is Student's t times its root, where t is the mean of the two parts'
quantiles weighted by the parts (Cochran and Cox 1957, Experimental Designs): with few seeds, whose
quantile is large, it is wide as far as the seeds make the figure uncertain. One seed gives an
interval over scenes alone.

A ratio of two variants on the same scenes has the variance of its linearised difference (Cochran
1977, Sampling Techniques), in which scenes are paired and each variant has separate seeds, their
degrees of freedom by Welch 1947. A share of episodes has Wilson's interval with the effective
number of episodes and the t-quantile (Korn and Graubard 1998, Survey Methodology 24(2)).

In simulations of 3 seeds and 200 scenes, whose seeds differ by 0 to 0.5 times as much as scenes, 95
to 98 % of the intervals of means and ratios hold the true value, and 95 to 99 % of those of shares,
which are wide near 0 and 1."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Interval = tuple[float, float]


@lru_cache
def t_quantile(freedom: float) -> float:
    """Two-sided 95 % quantile of Student's t; degrees of freedom of at least 1, integer or not."""
    from scipy.special import stdtrit  # imported here because it takes most of a second

    return float(stdtrit(freedom, 0.975))


def _spread(terms: Sequence[tuple[float, np.ndarray]]) -> tuple[float, float]:
    """Variance of a weighted sum of mean values, and the t that goes with it.

    Args:
        terms: weight and values (seeds, scenes) of each; at least two scenes, the same for all.
    """
    scenes = terms[0][1].shape[1]
    of_scenes = np.zeros(scenes)
    of_seeds, squares, residual = 0.0, 0.0, 0.0
    for weight, values in terms:
        of_scenes = of_scenes + weight * values.mean(0)
        seeds = len(values)
        if seeds == 1:
            continue
        by_seed = values.mean(1, keepdims=True)
        rest = values - by_seed - values.mean(0) + values.mean()
        part = weight**2 * float(by_seed.var(ddof=1)) / seeds
        of_seeds += part
        squares += part**2 / (seeds - 1)
        residual += weight**2 * float((rest**2).sum()) / ((seeds - 1) * (scenes - 1)) / values.size
    beside = max(float(of_scenes.var(ddof=1)) / scenes - residual, 0.0)
    variance, t = of_seeds + beside, t_quantile(scenes - 1)
    if squares > 0:
        share = of_seeds / variance
        t = share * t_quantile(of_seeds**2 / squares) + (1 - share) * t
    return variance, t


def mean_interval(values: np.ndarray) -> Interval:
    """95 % interval of the mean of `values` (seeds, scenes), over seeds and scenes."""
    variance, t = _spread([(1.0, values)])
    half = t * math.sqrt(variance)
    return float(values.mean()) - half, float(values.mean()) + half


def seeds_interval(values: np.ndarray) -> Interval | None:
    """95 % interval of the mean of `values` (seeds,), one per seed, by Student's t; None for a
    single value.
    """
    if len(values) < 2:
        return None
    half = t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def ratio_interval(ours: np.ndarray, theirs: np.ndarray) -> Interval | None:
    """95 % interval of mean(ours) / mean(theirs), (seeds, scenes) each, the same scenes.

    None if `theirs` is not clearly positive, as the ratio is then meaningless.
    """
    assert ours.shape[1] == theirs.shape[1], f"{ours.shape} and {theirs.shape}: other scenes"
    if mean_interval(theirs)[0] <= 0:
        return None
    ratio = float(ours.mean() / theirs.mean())
    variance, t = _spread([(1.0, ours), (-ratio, theirs)])
    half = t * math.sqrt(variance) / float(theirs.mean())
    return ratio - half, ratio + half


def wilson_interval(share: float, trials: float, z: float = 1.959964) -> Interval:
    """Wilson's score interval of a success probability; z = 1.96 covers 95 %.

    Unlike the normal interval it stays inside [0, 1] and has a width at shares of 0 and 1.
    """
    extra = z * z / trials
    centre = share + extra / 2
    half = z * math.sqrt(share * (1 - share) / trials + extra / (4 * trials))
    low, high = (centre - half) / (1 + extra), (centre + half) / (1 + extra)
    return max(0.0, low) if share > 0 else 0.0, min(1.0, high) if share < 1 else 1.0


def share_interval(values: np.ndarray) -> Interval:
    """95 % interval of the mean of `values` (seeds, scenes), each 0 or 1; inside [0, 1].

    If all values are equal, no variance can be measured, and every scene counts as one episode.
    """
    seeds, scenes = values.shape
    share = float(values.mean())
    variance, t = _spread([(1.0, values)])
    trials, z = float(scenes), t_quantile(scenes - 1)
    if 0 < share < 1:
        most = float(seeds * scenes)
        trials = min(share * (1 - share) / variance, most) if variance > 0 else most
        z = t
    return wilson_interval(share, trials, z)
