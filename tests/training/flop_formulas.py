"""Closed formulas for the FLOPs of token scores, counted as `evaluation.op_counter` counts.

Token scores are column sums of the kernel attention matrix. With L_x queries and L_y keys of
dimension d, T = L_x + L_y, m random vectors, n of them for a lambda coefficient:

* exact softmax: products 2 L_x L_y d, exponentials L_x L_y, sums L_x L_y. Quadratic.
* a feature map with F = t m features: projection 2 T m d; then |u|^2/2 and the weight's logarithm,
  (2d + 3) T, and 2 T more from d = 16 on, where lengths are taken in one pass; element-wise work,
  2 to 4 for each projection; scores F L_x (sum over queries) and 2 F L_y (product with the sum).
* the angular hybrid, never forming outer products: projection 2 T (m + n) d; the bases'
  element-wise work and n signs a token; and, with f of length t m where t = t_1 + t_2, and r of
  length n + 1, the matrix sum of f r^T 2 t m (n + 1) L_x, its coefficients t m (n + 1), the
  products with keys 2 t m (n + 1) L_y and 2 t m L_y.

`test_flops` holds these formulas against the counter, operator by operator, so they also say what a
change of the code costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ScoreCost", "angular_hybrid_scores", "exact_scores", "feature_map_scores"]

_TERMS = {"positive": 1, "hyperbolic": 2, "trig": 2}
"""t: features a projection."""


@dataclass(frozen=True)
class ScoreCost:
    """FLOPs of token scores by component."""

    projection: int
    exponentials: int
    score: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.projection + self.exponentials + self.score


def _base_exponentials(name: str, tokens: int, m: int) -> int:
    """Element-wise work that turns projections of `tokens` tokens into t m features."""
    if name == "positive":  # add the weight's logarithm, exp
        return 2 * tokens * m
    if name == "hyperbolic":  # add, subtract, exp of twice as many
        return 4 * tokens * m
    return 4 * tokens * m + tokens  # trig: sin, cos, times exp(log-weight)


def feature_map_scores(
    name: str, dim: int, num_features: int, queries: int, keys: int, block: int | None = None
) -> ScoreCost:
    """Scores by `positive`, `hyperbolic` or `trig` features.

    `block` is the number of tokens treated at once; None means all of them.
    """
    tokens, width = queries + keys, _TERMS[name] * num_features
    blocks = math.ceil(queries / block) if block else 1
    partial_sums = blocks * width if blocks > 1 else 0
    return ScoreCost(
        projection=2 * tokens * dim * num_features + tokens * (2 * dim + 3),
        exponentials=_base_exponentials(name, tokens, num_features),
        score=queries * width + partial_sums + 2 * keys * width,
    )


def angular_hybrid_scores(
    dim: int,
    num_features: int,
    num_lambda_features: int,
    queries: int,
    keys: int,
    *,
    shared_projections: bool = True,
    base: tuple[str, str] = ("hyperbolic", "trig"),
) -> ScoreCost:
    """Scores by the angular hybrid."""
    tokens, columns = queries + keys, num_lambda_features + 1
    width = sum(_TERMS[name] for name in base) * num_features
    omegas = (1 if shared_projections else 2) * num_features
    return ScoreCost(
        projection=2 * tokens * dim * (omegas + num_lambda_features) + tokens * (2 * dim + 1),
        exponentials=sum(_base_exponentials(name, tokens, num_features) for name in base)
        + tokens * (4 + num_lambda_features),
        score=2 * width * columns * tokens + width * columns + 2 * width * keys,
    )


def exact_scores(dim: int, queries: int, keys: int, block: int | None = None) -> ScoreCost:
    """Scores by exact softmax, `block` queries at a time (None: all of them)."""
    blocks = math.ceil(queries / block) if block else 1
    return ScoreCost(
        projection=0,
        exponentials=queries * keys,
        score=2 * queries * keys * dim + queries * keys + (blocks - 1) * keys,
    )
