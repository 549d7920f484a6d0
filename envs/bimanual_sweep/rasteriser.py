"""Triangles drawn as PyBullet's software renderer draws them, to the byte, four times as fast.

That renderer (`ER_TINY_RENDERER`, without shadows) mixes float32 and float64, and its roundings
change pixels. So every sum here has the same order and types. Results that it does not use are not
computed: the view from the light, and most of a pixel that no triangle covers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiled import compiled

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Indices = NDArray[np.int32]
_Corners = tuple[np.int32, np.int32, np.int32]
_Three = tuple[np.float32, np.float32, np.float32]

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_AMBIENT, _DIFFUSE, _SPECULAR = np.float32(0.6), np.float32(0.35), np.float32(0.05)
_SHARPNESS = _TWO
"""Power of the highlight. It is an argument of the compiled function: a constant would be
multiplied out, and rounded otherwise."""
_THINNEST_PX = 1e-2
"""Twice the area of the least triangle that is drawn, in pixels."""


class Meshes(NamedTuple):
    """Shapes of triangles, one after the other."""

    vertices: Singles
    """(vertices, 3), metres, in the frame of the body that the shape belongs to."""
    normals: Singles
    """(vertices, 3). Drawing divides them by their lengths in place, as PyBullet does; a few change
    by a rounding each time, and a pixel in millions with them."""
    faces: Indices
    """(faces, 3) vertices."""
    first_vertex: Indices
    """(shapes + 1,) where each shape's vertices begin, and where the last one's end."""
    first_face: Indices
    """(shapes + 1,) the same of faces."""
    bodies: Indices
    """(shapes,) the body that each shape belongs to."""
    colours: Singles
    """(shapes, 3) whole numbers from 0 to 255."""


class Rasteriser:
    """Draws moving bodies in front of a background.

    Args:
        width_height: of images, pixels.
        view, projection: the camera's matrices, 16 numbers each, as PyBullet computes them.
        light: direction (x, y, z) that the light comes from.
    """

    def __init__(
        self,
        width_height: tuple[int, int],
        view: tuple[float, ...],
        projection: tuple[float, ...],
        light: list[float],
    ) -> None:
        width, height = width_height
        self._view, self._projection = (
            np.array(matrix, np.float32).reshape(4, 4).T.copy() for matrix in (view, projection)
        )
        direction = np.array(light, np.float32).astype(np.float64)
        self._light = (direction * (1 / np.sqrt((direction**2).sum()))).astype(np.float32)
        slope, offset = self._projection[2, 2], self._projection[2, 3]
        self._near, self._far = offset / (slope - _ONE), offset / (slope + _ONE)
        self._heights = np.full((height, width), -self._far)
        self._colours = np.empty((height, width, 3), np.uint8)

    def draw(
        self, meshes: Meshes, places_m: Floats, turns: Floats, depth: Singles, image: Bytes
    ) -> bool:
        """Draw shapes into `image` where they are nearer than what it shows.

        Args:
            meshes: the shapes.
            places_m: (bodies, 3) where bodies are.
            turns: (bodies, 4) their quaternions, x, y, z, w.
            depth: (height, width) PyBullet's depths of what `image` shows.
            image: (height, width, 3).

        Returns:
            Whether they could be drawn; not where a corner is behind the camera.
        """
        found: bool = _draw(
            *meshes,
            places_m,
            turns,
            self._view,
            self._projection,
            self._light,
            (self._near, self._far, _SHARPNESS),
            self._heights,
            self._colours,
            depth,
            image,
        )
        return found


@compiled
def _draw(
    vertices: Singles,
    normals: Singles,
    faces: Indices,
    first_vertex: Indices,
    first_face: Indices,
    bodies: Indices,
    colours: Singles,
    places_m: Floats,
    turns: Floats,
    view: Singles,
    projection: Singles,
    light: Singles,
    near_far_power: _Three,
    heights: Singles,
    drawn: Bytes,
    depth: Singles,
    image: Bytes,
) -> bool:
    """See `Rasteriser.draw`. heights: minus the clip coordinate z of each pixel, rows from below,
    -far where nothing is drawn, and everywhere afterwards; drawn: their colours."""
    rows, columns = heights.shape
    clip = np.empty((len(vertices), 4), np.float32)
    world = np.empty((len(vertices), 3), np.float64)
    screen = np.empty((len(vertices), 3), np.float64)
    models = np.empty((len(bodies), 4, 4), np.float32)
    for shape in range(len(bodies)):
        model = models[shape] = _model(places_m[bodies[shape]], turns[bodies[shape]])
        seen = _product(projection, _product(view, model))
        for v in range(first_vertex[shape], first_vertex[shape + 1]):
            _place(vertices[v], model, seen, world[v], clip[v])
            if clip[v, 3] <= _ZERO:
                return False
            _project(clip[v], rows, columns, screen[v])
    eye = _inverse_transposed(view)[3]
    turned = np.empty((3, 3), np.float32)
    touched = np.array([rows, 0, columns, 0])
    for shape in range(len(bodies)):
        of_normals = _inverse_transposed(models[shape])
        for f in range(first_face[shape], first_face[shape + 1]):
            corners = faces[f, 0], faces[f, 1], faces[f, 2]
            for k in range(3):
                _bring_to_one(normals[corners[k]])
            if _faces(world, corners, eye):
                for k in range(3):
                    _turn(normals[corners[k]], of_normals, turned[k])
                _triangle(
                    clip, screen, corners, turned, colours[shape], light, near_far_power,
                    heights, drawn, touched,
                )  # fmt: skip
    _show(near_far_power, heights, drawn, touched, depth, image)
    return True


@compiled
def _triangle(
    clip: Singles,
    screen: Floats,
    corners: _Corners,
    normals: Singles,
    base: Singles,
    light: Singles,
    near_far_power: _Three,
    heights: Singles,
    drawn: Bytes,
    touched: NDArray[np.int64],
) -> None:
    """Draw a triangle where nothing nearer is; `touched`: the first row and the one after the last,
    and columns, that all of an image's triangles reach."""
    a, b, c = corners
    near, far, power = near_far_power
    ax, ay, wa = screen[a, 0], screen[a, 1], screen[a, 2]
    bx, by, wb = screen[b, 0], screen[b, 1], screen[b, 2]
    cx, cy, wc = screen[c, 0], screen[c, 1], screen[c, 2]
    za, zb, zc = np.float64(clip[a, 2]), np.float64(clip[b, 2]), np.float64(clip[c, 2])
    left, right = max(0.0, min(ax, bx, cx)), min(heights.shape[1] - 1.0, max(ax, bx, cx))
    down, up = max(0.0, min(ay, by, cy)), min(heights.shape[0] - 1.0, max(ay, by, cy))
    s0x, s0y, s1x, s1y = cx - ax, bx - ax, cy - ay, by - ay
    area = s0x * s1y - s0y * s1x
    if not (left <= right and down <= up and abs(area) > _THINNEST_PX):
        return
    first_row, rows, first_column, columns = int(down), int(up) + 1, int(left), int(right) + 1
    touched[0], touched[1] = min(touched[0], first_row), max(touched[1], rows)
    touched[2], touched[3] = min(touched[2], first_column), max(touched[3], columns)
    for row in range(first_row, rows):
        s1z = ay - row
        for column in range(first_column, columns):
            s0z = ax - column
            of_c, of_b = s0y * s1z - s0z * s1y, s0z * s1x - s0x * s1z
            if (of_c < 0 or of_b < 0) if area > 0 else (of_c > 0 or of_b > 0):
                continue
            share_a = 1.0 - (of_c + of_b) / area
            if share_a < 0:
                continue
            pa, pb, pc = share_a / wa, (of_b / area) / wb, (of_c / area) / wc
            whole = (pa + pb) + pc
            pa, pb, pc = pa / whole, pb / whole, pc / whole
            height = -1.0 * ((zc * pc + zb * pb) + za * pa)
            if heights[row, column] > height or height < -far or height > near:
                continue
            heights[row, column] = height
            shares = np.float32(pa), np.float32(pb), np.float32(pc)
            shine = _shine(normals, shares, light, power)
            for i in range(3):
                drawn[row, column, i] = min(int(_AMBIENT * base[i] + shine * base[i]), 255)


@compiled
def _show(
    near_far_power: _Three,
    heights: Singles,
    drawn: Bytes,
    touched: NDArray[np.int64],
    depth: Singles,
    image: Bytes,
) -> None:
    """Copy drawn pixels into the image where they are nearer, and clear them."""
    near, far, _ = near_far_power
    for row in range(touched[0], touched[1]):
        out = len(heights) - 1 - row
        for column in range(touched[2], touched[3]):
            height = heights[row, column]
            if height == -far:
                continue
            heights[row, column] = -far
            if _depth(-height, near, far) < depth[out, column]:
                for i in range(3):
                    image[out, column, i] = drawn[row, column, i]


@compiled
def _model(place_m: Floats, turn: Floats) -> Singles:
    """A body's frame in the world, (4, 4), from its position and quaternion."""
    x, y, z, w = turn[0], turn[1], turn[2], turn[3]
    twice = 2.0 / (((x * x + y * y) + z * z) + w * w)
    xs, ys, zs = x * twice, y * twice, z * twice
    out = np.zeros((4, 4), np.float32)
    out[0, 0], out[0, 1], out[0, 2] = 1.0 - (y * ys + z * zs), x * ys - w * zs, x * zs + w * ys
    out[1, 0], out[1, 1], out[1, 2] = x * ys + w * zs, 1.0 - (x * xs + z * zs), y * zs - w * xs
    out[2, 0], out[2, 1], out[2, 2] = x * zs - w * ys, y * zs + w * xs, 1.0 - (x * xs + y * ys)
    for i in range(3):
        out[i, 3] = place_m[i]
    out[3, 3] = _ONE
    return out


@compiled
def _product(left: Singles, right: Singles) -> Singles:
    """left @ right of (4, 4), each sum from the last term to the first."""
    out = np.zeros((4, 4), np.float32)
    for i in range(4):
        for j in range(4):
            for k in range(3, -1, -1):
                out[i, j] += left[i, k] * right[k, j]
    return out


@compiled
def _inverse_transposed(matrix: Singles) -> Singles:
    """Return the inverse transpose of a (4, 4) matrix, by cofactors."""
    out = np.empty((4, 4), np.float32)
    for i in range(4):
        for j in range(4):
            minor = _minor(matrix, i, j)
            out[i, j] = minor if (i + j) % 2 == 0 else -minor
    determinant = _ZERO
    for k in range(3, -1, -1):
        determinant += out[0, k] * matrix[0, k]
    return out / determinant


@compiled
def _minor(matrix: Singles, row: int, column: int) -> np.float32:
    """The determinant of a (4, 4) matrix without a row and a column."""
    rest = np.empty((3, 3), np.float32)
    for i in range(3):
        for j in range(3):
            rest[i, j] = matrix[i + (i >= row), j + (j >= column)]
    total = _ZERO
    for i in range(2, -1, -1):
        left, right = (1 if i == 0 else 0), (1 if i == 2 else 2)
        inner = -rest[1, right] * rest[2, left] + rest[1, left] * rest[2, right]
        total += rest[0, i] * (inner if i != 1 else -inner)
    return total


@compiled
def _place(vertex: Singles, model: Singles, seen: Singles, world: Floats, clip: Singles) -> None:
    """A vertex in the world (3,) and in clip coordinates (4,); `seen` combines the transforms of
    body and camera."""
    for i in range(4):
        m = seen[i]
        clip[i] = ((m[3] + m[2] * vertex[2]) + m[1] * vertex[1]) + m[0] * vertex[0]
    for i in range(3):
        m = model[i]
        world[i] = ((m[3] + m[2] * vertex[2]) + m[1] * vertex[1]) + m[0] * vertex[0]


@compiled
def _bring_to_one(normal: Singles) -> None:
    """Divide a normal by its length, in place, as the renderer does at every use."""
    x, y, z = normal[0], normal[1], normal[2]
    unit = _ONE / np.sqrt((x * x + y * y) + z * z)
    normal[0], normal[1], normal[2] = x * unit, y * unit, z * unit


@compiled
def _turn(normal: Singles, matrix: Singles, turned: Singles) -> None:
    """A normal in the world, (3,)."""
    for i in range(3):
        m = matrix[i]
        turned[i] = (m[2] * normal[2] + m[1] * normal[1]) + m[0] * normal[0]


@compiled
def _project(clip: Singles, rows: int, columns: int, screen: Floats) -> None:
    """Clip coordinates as pixels across and up, and w."""
    w = clip[3]
    across, up = np.float32(columns) / _TWO, np.float32(rows) / _TWO
    screen[0], screen[1] = (across * w + across * clip[0]) / w, (up * w + up * clip[1]) / w
    screen[2] = w


@compiled
def _faces(world: Floats, corners: _Corners, eye: Singles) -> bool:
    """Whether the front of a triangle is on the eye's side."""
    a, b, c = world[corners[0]], world[corners[1]], world[corners[2]]
    px, py, pz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    qx, qy, qz = c[0] - a[0], c[1] - a[1], c[2] - a[2]
    nx, ny, nz = py * qz - pz * qy, pz * qx - px * qz, px * qy - py * qx
    return ((a[0] - eye[0]) * nx + (a[1] - eye[1]) * ny) + (a[2] - eye[2]) * nz < 0


@compiled
def _shine(normals: Singles, shares: _Three, light: Singles, power: np.float32) -> np.float32:
    """Brightness by the light, as a share of the colour, between the normals of three corners."""
    a, b, c = shares
    x = (normals[2, 0] * c + normals[1, 0] * b) + normals[0, 0] * a
    y = (normals[2, 1] * c + normals[1, 1] * b) + normals[0, 1] * a
    z = (normals[2, 2] * c + normals[1, 2] * b) + normals[0, 2] * a
    unit = _ONE / np.sqrt((x * x + y * y) + z * z)
    x, y, z = x * unit, y * unit, z * unit
    facing = (z * light[2] + y * light[1]) + x * light[0]
    twice = facing * _TWO
    rx, ry, rz = x * twice - light[0], y * twice - light[1], z * twice - light[2]
    mirrored = rz * (_ONE / np.sqrt((rx * rx + ry * ry) + rz * rz))
    return _DIFFUSE * max(_ZERO, facing) + _SPECULAR * max(mirrored, _ZERO) ** power


@compiled
def _depth(z: np.float32, near: np.float32, far: np.float32) -> np.float32:
    """PyBullet's depth, 0 near and 1 far, of a clip coordinate."""
    below = (2.0 * far * near + np.float64(far * z)) - np.float64(near * z)
    return np.float32(np.float64(far * (near + z)) / below)
