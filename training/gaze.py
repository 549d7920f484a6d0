"""Where an Implicit Attention Policy looks: what it keeps, against chance.

The scripted oracle walks, so that every policy is shown the same views. Stone tops are 0.35 to
0.45 m below the cameras, the floor 0.85 m: a pixel whose depth is over 0.6 m sees past the stones.
A pixel lies on a gap's edge where it and its neighbour ahead or behind, in the same column of the
image, are on different sides of that depth. A token lies on one where one of its pixels does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

import envs
from policies import Oracle
from training import checkpoint
from training.episode import run_episode
from training.state_files import State

__all__ = ["Gaze", "distracted", "gap_edges", "gaze", "oracle_views"]

PAST_STONES_M = 0.6
EVERY = 7  # decisions between views; not a divisor of the gait's ten


Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=State)
class Gaze:
    """Shares over some views; what is kept, and chance: what there is."""

    edges_kept: Share
    """Share of the kept tokens that lie on a gap's edge."""
    edges: Share
    """Share of all tokens that do."""
    past_kept: Share
    """Share of the kept pixels that see past the stones."""
    past: Share
    """Share of all pixels that do."""


def oracle_views(env: dict[str, Any], seeds: Sequence[int]) -> list[dict[str, NDArray[np.float32]]]:
    """Observations of SteppingStones-v0 with settings `env`, one every 0.35 s of the oracle's
    walks."""
    views: list[Any] = []

    def collect(env: Any, observation: Any, action: Any, reward: float, player: Any) -> None:
        views.append(observation)

    with checkpoint.make_env(envs.STEPPING_STONES, env) as world:
        for seed in seeds:
            run_episode(world, Oracle(world), seed, on_step=collect)
    return views[::EVERY]


def gap_edges(depth_m: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Pixels on a gap's edge, of depth (cameras, rows, columns) in metres."""
    past = depth_m > PAST_STONES_M
    across = past[:, 1:] != past[:, :-1]
    edges = np.zeros(depth_m.shape, bool)
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    return edges


def gaze(policy: Any, views: Sequence[dict[str, NDArray[np.float32]]]) -> Gaze:
    """What an Implicit Attention Policy keeps of each view, all views counting alike."""
    rows, columns = policy.config.patch
    shares = []
    for view in views:
        depth = view["depth"]
        cameras, height, width = depth.shape
        grid = (cameras, height // rows, rows, width // columns, columns)
        kept: NDArray[np.bool_] = policy.attention_mask(view)
        tokens_kept = kept.reshape(grid).any((2, 4))
        edges = np.asarray(gap_edges(depth).reshape(grid).any((2, 4)))
        past = depth > PAST_STONES_M
        shares.append((edges[tokens_kept].mean(), edges.mean(), past[kept].mean(), past.mean()))
    return Gaze(*(float(share) for share in np.mean(shares, axis=0)))


def distracted(
    policy: Any,
    views: Sequence[dict[str, NDArray[np.float32]]],
    plain: Sequence[dict[str, NDArray[np.float32]]],
) -> tuple[float, float]:
    """Share of the pixels kept that a distraction changed, and of all pixels, over all views.

    Args:
        policy: an Implicit Attention Policy, which is shown `views`.
        views: of walks with a distraction, which the oracle does not see.
        plain: of the same walks without it.
    """
    pairs = zip(views, plain, strict=True)
    changed = np.stack([view["depth"] != before["depth"] for view, before in pairs])
    kept = np.stack([policy.attention_mask(view) for view in views])
    return float(changed[kept].mean()), float(changed.mean())
