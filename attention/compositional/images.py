"""Skeletons for images: circle inputs, layers of convolutions, a fully connected output.

Random Features for Compositional Kernels, section 6 and Figure 2. Each pixel is an input node.
"""

from collections.abc import Sequence

from attention.compositional.activations import Activation
from attention.compositional.characters import Circle
from attention.compositional.skeleton import Internal, Skeleton

Convolution = tuple[int, int, Activation]
"""(window, stride, activation): a layer of square windows without padding."""


def image_skeleton(
    height: int,
    width: int,
    convolutions: Sequence[Convolution],
    output: Activation,
    *,
    scale: float = 1.0,
) -> Skeleton:
    """A skeleton over images of `height` x `width` pixels, flattened row by row.

    A pixel p is the point exp(i scale p) of the unit circle: with pixels in [0, 1] and
    scale = pi/2, black and white are orthogonal. Each convolution maps a grid of nodes to the grid
    of its windows; the output node takes what the last one leaves.

    Raises ValueError for sizes below 1 and windows larger than their grid.
    """
    if height < 1 or width < 1:
        raise ValueError(f"height and width must be at least 1, got {height} and {width}")
    grid = [[f"pixel_{i}_{j}" for j in range(width)] for i in range(height)]
    inputs = {
        grid[i][j]: Circle((i * width + j,), scale) for i in range(height) for j in range(width)
    }
    nodes: dict[str, Internal] = {}
    for layer, (window, stride, activation) in enumerate(convolutions, 1):
        rows, columns = len(grid), len(grid[0])
        if not 1 <= window <= min(rows, columns) or stride < 1:
            raise ValueError(
                f"convolution {layer}: window must lie between 1 and {min(rows, columns)} and "
                f"stride be at least 1, got {window} and {stride}"
            )
        above: list[list[str]] = []
        for i in range(0, rows - window + 1, stride):
            above.append([])
            for j in range(0, columns - window + 1, stride):
                patch = tuple(n for row in grid[i : i + window] for n in row[j : j + window])
                name = f"layer{layer}_{i // stride}_{j // stride}"
                nodes[name] = Internal(patch, activation)
                above[-1].append(name)
        grid = above
    nodes["output"] = Internal(tuple(name for row in grid for name in row), output)
    # Strides may leave a margin that no window reaches: it is no part of the skeleton.
    used = {"output"}
    for name in reversed(nodes):
        if name in used:
            used.update(nodes[name].inputs)
    return Skeleton(
        {name: base for name, base in inputs.items() if name in used},
        {name: node for name, node in nodes.items() if name in used},
    )
