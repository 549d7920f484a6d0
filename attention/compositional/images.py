"""Skeletons for images: circle inputs, layers of convolutions, a fully connected output.

Random Features for Compositional Kernels, section 6 and Figure 2. Each channel of a pixel, or each
principal component of a patch, is an input node.
"""

from collections.abc import Sequence

from attention.compositional.activations import Activation
from attention.compositional.characters import Circle
from attention.compositional.skeleton import Internal, Skeleton

Convolution = tuple[int, int, Activation]
"""(window, stride, activation): a layer of square windows without padding."""
_Grid = list[list[tuple[str, ...]]]
"""Names of the nodes at each position."""


def image_skeleton(
    height: int,
    width: int,
    convolutions: Sequence[Convolution],
    output: Activation,
    *,
    scale: float = 1.0,
    channels: int = 1,
    components: int | None = None,
) -> Skeleton:
    """Create a skeleton over images of `height` x `width` pixels, flattened row by row.

    A value p is the point exp(i scale p) of the unit circle: with pixels in [0, 1] and scale =
    pi/2, black and white are orthogonal. Each convolution maps a grid of nodes to the grid of its
    windows; the inputs of the output node are the last grid.

    Args:
        height, width: size of an image in pixels.
        convolutions: the layers, starting at the input.
        output: activation of the output node.
        scale: radians per unit of the data.
        channels: number of adjacent columns per pixel; each is an input node.
        components: number of columns per window of the first convolution, one window after another,
            as returned by `PatchComponents.transform`. None if the columns are pixels.

    Raises ValueError for sizes below 1, windows larger than their grid, and `components` without
    a convolution.
    """
    if height < 1 or width < 1 or channels < 1:
        raise ValueError(
            f"height, width and channels must be at least 1, got {height}, {width} and {channels}"
        )
    if components is not None and (components < 1 or not convolutions):
        raise ValueError(
            "components must be at least 1, of the patches of a convolution, got "
            f"{components} with {len(convolutions)} convolutions"
        )
    inputs: dict[str, Circle] = {}
    nodes: dict[str, Internal] = {}
    grid = _inputs(height, width, channels, "pixel", scale, inputs)
    for layer, (window, stride, activation) in enumerate(convolutions, 1):
        rows, columns = len(grid), len(grid[0])
        if not 1 <= window <= min(rows, columns) or stride < 1:
            raise ValueError(
                f"convolution {layer}: window must lie between 1 and {min(rows, columns)} and "
                f"stride be at least 1, got {window} and {stride}"
            )
        if layer == 1 and components is not None:
            rows, columns = (rows - window) // stride + 1, (columns - window) // stride + 1
            inputs.clear()
            grid = _inputs(rows, columns, components, "patch", scale, inputs)
            window = stride = 1
        grid = _convolve(grid, window, stride, activation, f"layer{layer}", nodes)
    nodes["output"] = Internal(tuple(n for row in grid for names in row for n in names), output)
    # Strides may leave a margin that no window reaches; it is not part of the skeleton.
    used = {"output"}
    for name in reversed(nodes):
        if name in used:
            used.update(nodes[name].inputs)
    return Skeleton(
        {name: base for name, base in inputs.items() if name in used},
        {name: node for name, node in nodes.items() if name in used},
    )


def _inputs(
    rows: int, columns: int, depth: int, kind: str, scale: float, inputs: dict[str, Circle]
) -> _Grid:
    """Add input nodes, `depth` at each position, to `inputs` and return their names."""
    grid: _Grid = []
    for i in range(rows):
        grid.append([])
        for j in range(columns):
            place = f"{kind}_{i}_{j}"
            names = (place,) if depth == 1 else tuple(f"{place}_{k}" for k in range(depth))
            for k, name in enumerate(names):
                inputs[name] = Circle(((i * columns + j) * depth + k,), scale)
            grid[-1].append(names)
    return grid


def _convolve(
    grid: _Grid, window: int, stride: int, activation: Activation, layer: str,
    nodes: dict[str, Internal],
) -> _Grid:  # fmt: skip
    """Add the windows to `nodes` and return their grid."""
    above: _Grid = []
    for i in range(0, len(grid) - window + 1, stride):
        above.append([])
        for j in range(0, len(grid[0]) - window + 1, stride):
            places = [place for row in grid[i : i + window] for place in row[j : j + window]]
            name = f"{layer}_{i // stride}_{j // stride}"
            nodes[name] = Internal(tuple(n for names in places for n in names), activation)
            above[-1].append((name,))
    return above
