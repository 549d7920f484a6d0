"""Which pixels occur together in one random feature: the locality of deep compositional kernels.

    python -m experiments.compositional_kernels.cooccurrence [--out DIR] [--quick]

Random Features for Compositional Kernels, Figure 4: 500,000 random features of a flat kernel and of
kernels with one, two and three layers of convolutions, ReLU everywhere. A pixel occurs in a feature
if the feature depends on it; the correlation of two pixels is that of their occurrences. The paper
says neither how large its images and windows are nor which pixels it shows: here 24 x 24 pixels
and windows of 5, 4 and 2 at stride 2, as far as the paper names them elsewhere.

The table has the mean correlation of pairs of pixels by the lowest layer at which a window holds
both. The paper claims that all pairs are alike in the flat kernel, and that otherwise correlations
are larger the lower the layer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attention import compositional
from attention.compositional import Features, ReLU, Skeleton, image_skeleton
from experiments import figure
from experiments.figure import Arguments, Lines, Rows

SIDE = 24
WINDOWS, STRIDE = (5, 4, 2), 2
SHOWN = ((6, 6), (6, 17), (17, 6), (17, 17))
"""Rows and columns of the four pixels of the image."""
FEATURES = 500_000


def skeleton_of(depth: int) -> Skeleton:
    """The kernel with this number of convolution layers."""
    convolutions = [(window, STRIDE, ReLU()) for window in WINDOWS[:depth]]
    return image_skeleton(SIDE, SIDE, convolutions, ReLU())


def correlations(features: Features) -> NDArray[np.float64]:
    """Correlations of occurrences (pixels, pixels); NaN for a pixel that never or always occurs."""
    owners = [terms.owner for terms in features.terms.values()]
    columns = [
        np.full_like(terms.owner, features.skeleton.inputs[name].columns[0])
        for name, terms in features.terms.items()
    ]
    place = (np.concatenate(owners), np.concatenate(columns))
    shape = (len(features), features.skeleton.num_columns)
    occurs = csr_array((np.ones(len(place[0])), place), shape=shape)
    both = (occurs.T @ occurs).toarray() / len(features)
    alone = np.diag(both)
    spread = np.sqrt(alone * (1 - alone))
    spread[spread == 0] = np.nan
    return np.asarray((both - np.outer(alone, alone)) / np.outer(spread, spread))


def tiers(skeleton: Skeleton) -> NDArray[np.int64]:
    """(pixels, pixels): the lowest layer, from 1, of which one node is above both; -1 for a pixel
    with itself and for one that no window reaches. The output is the layer after the last."""
    pixels = skeleton.num_columns
    found = np.full((pixels, pixels), -1)
    below: dict[str, frozenset[int]] = {n: frozenset(b.columns) for n, b in skeleton.inputs.items()}
    height = dict.fromkeys(skeleton.inputs, 0)
    for name in skeleton.order:
        if name in skeleton.inputs:
            continue
        sources = skeleton.nodes[name].inputs
        below[name] = frozenset().union(*(below[source] for source in sources))
        height[name] = 1 + max(height[source] for source in sources)
    for name in sorted(skeleton.nodes, key=lambda n: -height[n]):
        members = sorted(below[name])
        found[np.ix_(members, members)] = height[name]
    np.fill_diagonal(found, -1)
    return found


def measure(arguments: Arguments) -> Rows:
    """Mean correlations by layers and tier; the first row of each kernel has its plot."""
    count = FEATURES // 10 if arguments.quick else FEATURES
    rows = []
    for depth in range(len(WINDOWS) + 1):
        skeleton = skeleton_of(depth)
        features = compositional.draw(skeleton, count, np.random.default_rng(arguments.seed))
        found, layer_of = correlations(features), tiers(skeleton)
        plotted = {"picture": image_of(found).tolist()}
        for tier in range(1, depth + 2):
            values = found[np.triu(layer_of == tier)]
            values = values[np.isfinite(values)]
            if len(values):
                row = {"layers": depth, "tier": tier if tier <= depth else "none"}
                spread = {"mean": float(values.mean()), "deviation": float(values.std())}
                rows.append({**row, "pairs": len(values), **spread, **plotted})
                plotted = {}
    return rows


def show(rows: Rows) -> Lines:
    """Mean correlations of pairs of pixels by layers and tier."""
    columns = {"layers": "{layers}", "window of layer": "{tier}", "pairs": "{pairs}",
               "correlation": "{mean:.6f}", "error": "{deviation:.5f}"}  # fmt: skip
    yield from figure.table(rows, columns, 6, 17, 9, 13, 9)


def image_of(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """(SIDE, SIDE): the largest correlation of each pixel with one of the four shown."""
    chosen = [row * SIDE + column for row, column in SHOWN]
    whole = np.full(SIDE * SIDE, np.nan)
    values = found[chosen].copy()
    values[:, chosen] = np.nan
    seen = np.isfinite(values).any(0)
    whole[np.flatnonzero(seen)] = np.nanmax(values[:, seen], 0)
    return whole.reshape(SIDE, SIDE)


def draw(rows: Rows) -> Any:
    """Each kernel's correlations with one of four pixels, on a common scale."""
    shown = [np.array(row["picture"]) for row in rows if "picture" in row]
    plot, axes = figure.new_figure(len(shown), size=(3.2, 3.4))
    top = max(float(np.nanmax(values)) for values in shown)
    for depth, (axis, values) in enumerate(zip(axes[0], shown, strict=True)):
        # Correlations span decades: the square root of the scale shows all tiers.
        image = axis.imshow(np.sqrt(np.clip(values, 0, None)), cmap="gray", vmax=top**0.5, vmin=0)
        down, across = zip(*SHOWN, strict=True)
        axis.plot(across, down, "s", color="C0", markersize=5)
        axis.set_title(f"layers of convolutions: {depth}")
        axis.set_axis_off()
    ticks = np.linspace(0, top**0.5, 4)
    bar = plot.colorbar(image, ax=axes[0].tolist(), label="correlation")
    bar.set_ticks(ticks, labels=[f"{tick**2:.3f}" for tick in ticks])
    return plot


main = figure.command(measure, show, draw, plotted=("picture",))
