"""Gaze statistics of an Implicit Attention Policy: the pixels that it keeps, against chance.

The scripted oracle acts, so that every policy sees the same views. A pixel lies past the stones, or
more generally the ground, if its depth exceeds `edges.past_m` of the task's description. A pixel
lies on a gap's edge where it and the next one ahead or behind are on different sides of that depth,
those to the left and right being the stones' sides. Whether the rows or the columns of an image run
ahead follows from the environment's geometry. A token lies on an edge where one of its pixels does.
Depth images are the observation's `depth` (cameras, height, width) and all `depth_...` (height,
width).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

import envs
from envs.task import DepthEdges
from policies import Oracle
from policies.common.geometry import camera_rays
from training.collect import environments
from training.collect.environments import make_env
from training.collect.episode import run_episode
from training.io.config import UserError
from training.io.state_files import State

View = dict[str, NDArray[np.float32]]
Axes = Mapping[str, Sequence[int]]
"""For each camera of a depth image, by its key, the axis of an image that runs ahead: 0, the rows,
one above the other, or 1, the columns."""
EVERY = 7  # decisions between views; not a divisor of the gait's ten


Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=State)
class Gaze:
    """Shares over several views, of the kept pixels and, for chance, of all pixels."""

    edges_kept: Share
    """Share of the kept tokens that lie on an edge of the ground."""
    edges: Share
    """Share of all tokens that do."""
    past_kept: Share
    """Share of the kept pixels that see past it."""
    past: Share
    """Share of all pixels that do."""
    ahead: bool = False
    """Whether edges are those that lie ahead or behind. In files without it pixels were compared
    from one row of the image to the next: under the cameras of SteppingStones-v0, with the stones'
    sides."""


def depth_edges(env_id: str = environments.DEFAULT) -> DepthEdges:
    """The description of the edges that a policy should attend to. Raises UserError if the
    environment's description has none.
    """
    task = envs.find_task(env_id)
    if task is None or task.edges is None:
        raise UserError(f"the description of {env_id} has no edges of the ground")
    return task.edges


def oracle_views(
    env: dict[str, Any], seeds: Sequence[int], env_id: str = environments.DEFAULT
) -> list[View]:
    """Observations of an environment with settings `env`, every seventh of its oracle's episodes
    (of SteppingStones-v0 one every 0.35 s)."""
    views: list[Any] = []

    def collect(env: Any, observation: Any, action: Any, reward: float, agent: Any) -> None:
        views.append(observation)

    with make_env(env_id, env) as world:
        for seed in seeds:
            run_episode(world, Oracle(world), seed, on_step=collect)
    return views[::EVERY]


def depth_images(view: View) -> dict[str, NDArray[np.float32]]:
    """The depth images (cameras, height, width) of an observation by its keys, metres."""
    names = [name for name in view if name == "depth" or name.startswith("depth_")]
    return {name: view[name].reshape(-1, *view[name].shape[-2:]) for name in names}


def axes_ahead(
    env: dict[str, Any], env_id: str = environments.DEFAULT
) -> dict[str, tuple[int, ...]]:
    """The forward axis of each depth image of an environment with settings `env`; empty if it has
    no geometry.
    """
    with make_env(env_id, env) as world:
        rays = camera_rays(world)
        images = getattr(world.observation_space, "spaces", {})
    return {
        key: tuple(_axis_ahead(one) for one in rays[key].reshape(-1, *rays[key].shape[-3:]))
        for key in images
        if key in rays
    }


def _axis_ahead(rays: NDArray[np.float64]) -> int:
    """The axis of (rows, columns, 3) along which rays turn ahead or up rather than left."""
    sideways = [np.abs(np.diff(rays[..., 1], axis=axis)).mean() for axis in (0, 1)]
    return int(np.argmin(sideways))


def gap_edges(
    depth_m: NDArray[np.float32], past_m: float | None = None, ahead: Sequence[int] | None = None
) -> NDArray[np.bool_]:
    """Pixels on a gap's edge.

    Args:
        depth_m: (cameras, rows, columns), metres.
        past_m: depth beyond which a pixel lies past the ground; None: as in SteppingStones-v0.
        ahead: for each camera, the axis that runs ahead; None: columns do, as in SteppingStones-v0.
    """
    past = depth_m > (depth_edges().past_m if past_m is None else past_m)
    edges = np.zeros(depth_m.shape, bool)
    for camera, axis in enumerate([1] * len(depth_m) if ahead is None else ahead):
        seen, found = (np.moveaxis(images[camera], axis, 0) for images in (past, edges))
        across = seen[1:] != seen[:-1]
        found[1:] |= across
        found[:-1] |= across
    return edges


def _kept(policy: Any, view: View) -> dict[str, NDArray[np.bool_]]:
    """The pixels that the policy keeps of each depth image (cameras, height, width)."""
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


def gaze(
    policy: Any, views: Sequence[View], past_m: float | None = None, ahead: Axes | None = None
) -> Gaze:
    """The statistics of what an Implicit Attention Policy keeps, averaged over views; `past_m` and
    `ahead` are those of SteppingStones-v0 where they are not given."""
    ahead = ahead or {}
    past_m = depth_edges().past_m if past_m is None else past_m
    patch, shares = policy.config.patch, []
    for view in views:
        images, kept = depth_images(view), _kept(policy, view)
        tokens = np.concatenate([_tokens(kept[name], patch) for name in images])
        found = [
            _tokens(gap_edges(depth, past_m, ahead.get(name)), patch)
            for name, depth in images.items()
        ]
        edges = np.concatenate(found)
        pixels = np.concatenate([kept[name].ravel() for name in images])
        past = np.concatenate([depth.ravel() > past_m for depth in images.values()])
        shares.append((edges[tokens].mean(), edges.mean(), past[pixels].mean(), past.mean()))
    edges_kept, edges_all, past_kept, past_all = (float(share) for share in np.mean(shares, axis=0))
    return Gaze(edges_kept, edges_all, past_kept, past_all, ahead=True)


def distracted(policy: Any, views: Sequence[View], plain: Sequence[View]) -> tuple[float, float]:
    """Share of the pixels kept that a distraction changed, and of all pixels, over all views.

    Args:
        policy: an Implicit Attention Policy that observes `views`.
        views: from episodes with a distraction, which the oracle does not see.
        plain: from the same episodes without it.
    """
    changed, kept = [], []
    for view, before in zip(views, plain, strict=True):
        images, undisturbed, masks = depth_images(view), depth_images(before), _kept(policy, view)
        changed += [(depth != undisturbed[name]).ravel() for name, depth in images.items()]
        kept += [masks[name].ravel() for name in images]
    all_changed, all_kept = np.concatenate(changed), np.concatenate(kept)
    return float(all_changed[all_kept].mean()), float(all_changed.mean())
