"""Where an Implicit Attention Policy looks: what it keeps, against chance.

The scripted oracle walks, so that every policy is shown the same views. What sees past the stones,
or whatever a task's ground is, its description says: a pixel whose depth is over `edges.past_m`.
A pixel lies on a gap's edge where it and its neighbour in the same column of the image are on
different sides of that depth. A token lies on one where one of its pixels does. Depth images are
the observation's `depth` (cameras, height, width) and all `depth_...` (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

import envs
from envs.task import DepthEdges
from policies import Oracle
from training import checkpoint, environments
from training.config import UserError
from training.episode import run_episode
from training.state_files import State

__all__ = [
    "Gaze",
    "depth_edges",
    "depth_images",
    "distracted",
    "gap_edges",
    "gaze",
    "oracle_views",
]

View = dict[str, NDArray[np.float32]]
EVERY = 7  # decisions between views; not a divisor of the gait's ten


Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=State)
class Gaze:
    """Shares over some views; what is kept, and chance: what there is."""

    edges_kept: Share
    """Share of the kept tokens that lie on an edge of the ground."""
    edges: Share
    """Share of all tokens that do."""
    past_kept: Share
    """Share of the kept pixels that see past it."""
    past: Share
    """Share of all pixels that do."""


def depth_edges(env_id: str = environments.DEFAULT) -> DepthEdges:
    """What a policy ought to look at there. UserError where the description does not say."""
    task = envs.find_task(env_id)
    if task is None or task.edges is None:
        raise UserError(f"the description of {env_id} does not say where its ground ends (edges)")
    return task.edges


def oracle_views(
    env: dict[str, Any], seeds: Sequence[int], env_id: str = environments.DEFAULT
) -> list[View]:
    """Observations of an environment with settings `env`, every seventh of its oracle's episodes
    (of SteppingStones-v0 one every 0.35 s)."""
    views: list[Any] = []

    def collect(env: Any, observation: Any, action: Any, reward: float, player: Any) -> None:
        views.append(observation)

    with checkpoint.make_env(env_id, env) as world:
        for seed in seeds:
            run_episode(world, Oracle(world), seed, on_step=collect)
    return views[::EVERY]


def depth_images(view: View) -> dict[str, NDArray[np.float32]]:
    """The depth images (cameras, height, width) of an observation by its keys, metres."""
    names = [name for name in view if name == "depth" or name.startswith("depth_")]
    return {name: view[name].reshape(-1, *view[name].shape[-2:]) for name in names}


def gap_edges(depth_m: NDArray[np.float32], past_m: float | None = None) -> NDArray[np.bool_]:
    """Pixels on a gap's edge, of depth (cameras, rows, columns) in metres."""
    past = depth_m > (depth_edges().past_m if past_m is None else past_m)
    across = past[:, 1:] != past[:, :-1]
    edges = np.zeros(depth_m.shape, bool)
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    return edges


def _kept(policy: Any, view: View) -> dict[str, NDArray[np.bool_]]:
    """What the policy keeps of each depth image (cameras, height, width)."""
    images = depth_images(view)
    of_each = getattr(policy, "attention_masks", None)
    masks = of_each(view) if of_each else {"depth": policy.attention_mask(view)}
    return {name: np.asarray(masks[name]).reshape(depth.shape) for name, depth in images.items()}


def _tokens(pixels: NDArray[np.bool_], patch: Sequence[int]) -> NDArray[np.bool_]:
    """Which patches of (cameras, height, width) hold one of the pixels, flat; those at the ends
    may be cut off."""
    height, width = pixels.shape[1:]
    below, beside = -height % patch[0], -width % patch[1]
    whole = np.pad(pixels, ((0, 0), (0, below), (0, beside)))
    grid = (len(pixels), -1, patch[0], (width + beside) // patch[1], patch[1])
    return np.asarray(whole.reshape(grid).any((2, 4))).ravel()


def gaze(policy: Any, views: Sequence[View], past_m: float | None = None) -> Gaze:
    """What an Implicit Attention Policy keeps of each view, all views counting alike; `past_m` is
    that of SteppingStones-v0 where it is None."""
    past_m = depth_edges().past_m if past_m is None else past_m
    patch, shares = policy.config.patch, []
    for view in views:
        images, kept = depth_images(view), _kept(policy, view)
        tokens = np.concatenate([_tokens(kept[name], patch) for name in images])
        found = [_tokens(gap_edges(depth, past_m), patch) for depth in images.values()]
        edges = np.concatenate(found)
        pixels = np.concatenate([kept[name].ravel() for name in images])
        past = np.concatenate([depth.ravel() > past_m for depth in images.values()])
        shares.append((edges[tokens].mean(), edges.mean(), past[pixels].mean(), past.mean()))
    return Gaze(*(float(share) for share in np.mean(shares, axis=0)))


def distracted(policy: Any, views: Sequence[View], plain: Sequence[View]) -> tuple[float, float]:
    """Share of the pixels kept that a distraction changed, and of all pixels, over all views.

    Args:
        policy: an Implicit Attention Policy, which is shown `views`.
        views: of walks with a distraction, which the oracle does not see.
        plain: of the same walks without it.
    """
    changed, kept = [], []
    for view, before in zip(views, plain, strict=True):
        images, undisturbed, masks = depth_images(view), depth_images(before), _kept(policy, view)
        changed += [(depth != undisturbed[name]).ravel() for name, depth in images.items()]
        kept += [masks[name].ravel() for name in images]
    all_changed, all_kept = np.concatenate(changed), np.concatenate(kept)
    return float(all_changed[all_kept].mean()), float(all_changed.mean())
