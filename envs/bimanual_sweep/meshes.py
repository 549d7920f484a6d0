"""Triangles of the moving bodies, as PyBullet's software renderer creates them.

It makes hulls of spheres and cylinders, and does not give them out: `sim_assets` has them.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.bimanual_sweep.rasteriser import Meshes
from envs.bullet import BulletClient

Floats = NDArray[np.float64]
Shape = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]
"""Vertices (n, 3), metres, normals (n, 3), and faces (m, 3) of vertices."""

_SHAPES = "drawn_shapes.json"
_BASE = -1
"""PyBullet's number of a body's first link."""


class Movers(NamedTuple):
    """Moving bodies and their visual shapes."""

    meshes: Meshes
    links: tuple[tuple[int, tuple[int, ...]], ...]
    """Each body in PyBullet, and those of its links that show, in the order of `Meshes.bodies`."""

    @classmethod
    def of(cls, client: BulletClient, bodies: Sequence[int]) -> "Movers | None":
        """Find the moving bodies of a client; None where a shape is not known.

        That is a mesh, or a cylinder of another size than the arms have.
        """
        parts: list[Shape] = []
        owners: list[int] = []
        colours: list[NDArray[np.float32]] = []
        links: list[tuple[int, tuple[int, ...]]] = []
        for body in bodies:
            visuals = client.getVisualShapeData(body)
            before = sum(len(others) for _, others in links)
            shown = tuple(sorted({visual[1] for visual in visuals}))  # the base, -1, first
            links.append((body, shown))
            for _, link, kind, size, _, place_m, turn, colour in visuals:
                shape = _shape(client, kind, size)
                if shape is None:
                    return None
                inertia = client.getDynamicsInfo(body, link)[3:5]
                parts.append(_placed(client, shape, inertia, (place_m, turn)))
                owners.append(before + shown.index(link))
                colours.append(np.trunc(255 * np.array(colour[:3], np.float32)))
        ends = np.cumsum([(0, 0)] + [(len(v), len(f)) for v, _, f in parts], 0, np.int32)
        first_vertex, first_face = ends.T.copy()
        faces = [part[2] + first for part, first in zip(parts, first_vertex[:-1], strict=True)]
        meshes = Meshes(
            np.concatenate([part[0] for part in parts]).astype(np.float32),
            np.concatenate([part[1] for part in parts]).astype(np.float32),
            np.concatenate(faces).astype(np.int32),
            first_vertex,
            first_face,
            np.array(owners, np.int32),
            np.array(colours),
        )
        return cls(meshes, tuple(links))

    def poses(self, client: BulletClient) -> tuple[Floats, Floats]:
        """Return current positions (n, 3) and quaternions (n, 4) of `Meshes.bodies`."""
        found = []
        for body, links in self.links:
            if _BASE in links:
                found.append(client.getBasePositionAndOrientation(body))
            others = [link for link in links if link != _BASE]
            if others:
                found += [state[:2] for state in client.getLinkStates(body, others)]
        places, turns = zip(*found, strict=True)
        return np.array(places), np.array(turns)


def _shape(client: BulletClient, kind: int, size: tuple[float, ...]) -> Shape | None:
    """A visual shape of PyBullet in its own frame."""
    shapes = _shapes()
    if kind == client.GEOM_BOX:
        vertices, normals, faces = shapes["box"]
        return vertices * (0.5 * np.array(size)), normals, faces
    if kind == client.GEOM_SPHERE:
        vertices, normals, faces = shapes["sphere"]
        return vertices * size[0], normals, faces
    if kind == client.GEOM_CYLINDER:
        return shapes.get((size[1], size[0]))
    return None


@lru_cache(maxsize=1)
def _shapes() -> dict[object, Shape]:
    """What `sim_assets` has: "box", "sphere", and cylinders by radius and length, metres."""
    found = json.loads((resources.files("sim_assets") / _SHAPES).read_text(encoding="utf-8"))
    shapes = {(one["radius_m"], one["length_m"]): _read(one) for one in found["cylinders"]}
    solids = {"box": found["box of half extents 1"], "sphere": found["sphere of radius 1"]}
    return shapes | {name: _read(solid) for name, solid in solids.items()}


def _read(shape: dict[str, list[list[float]]]) -> Shape:
    vertices = np.array(shape["vertices"], np.float64)
    outward = vertices / np.sqrt((vertices**2).sum(-1, keepdims=True))
    normals = np.array(shape.get("normals", outward), np.float64)
    return vertices, normals, np.array(shape["faces"], np.int32)


def _placed(
    client: BulletClient,
    shape: Shape,
    inertia: tuple[tuple[float, ...], tuple[float, ...]],
    visual: tuple[tuple[float, ...], tuple[float, ...]],
) -> Shape:
    """In the frame of the link's centre of mass, as PyBullet rounds; both frames are positions and
    quaternions in the link's."""
    vertices, normals, faces = shape
    (of_mass, mass_turn), (of_shape, shape_turn) = inertia, visual
    back = _rotation(client, mass_turn).T
    turn = back @ _rotation(client, shape_turn)
    move = back @ (np.array(of_shape) - np.array(of_mass))
    vertices = vertices.astype(np.float32).astype(np.float64) @ turn.T + move
    return vertices, normals.astype(np.float32).astype(np.float64) @ turn.T, faces


def _rotation(client: BulletClient, quaternion: tuple[float, ...]) -> Floats:
    return np.array(client.getMatrixFromQuaternion(quaternion)).reshape(3, 3)
