"""Which pixels stand in one random feature: the locality of deep compositional kernels.

    python -m benchmarks.cooccurrence [--out DIR] [--quick]

Random Features for Compositional Kernels, Figure 4: 500,000 random features of a flat kernel and of
kernels with one, two and three layers of convolutions, ReLU everywhere. A pixel occurs in a feature
if the feature depends on it; the correlation of two pixels is that of their occurrences. The paper
says neither how large its pictures and windows are nor which pixels it shows: here 24 x 24 pixels
and windows of 5, 4 and 2 at stride 2, as far as the paper names them elsewhere.

The table has the mean correlation of pairs of pixels by the lowest layer at which a window holds
both. The paper claims: all pairs alike in the flat kernel; otherwise the more, the lower the layer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from attention.compositional import Features, ReLU, Skeleton, draw, image_skeleton
from benchmarks.report import make_parser, new_figure, save
from training.io.config import exit_status

SIDE = 24
WINDOWS, STRIDE = (5, 4, 2), 2
SHOWN = ((6, 6), (6, 17), (17, 6), (17, 17))
"""Rows and columns of the four pixels of the picture."""
FEATURES = 500_000


def skeleton_of(depth: int) -> Skeleton:
    """With so many layers of convolutions."""
    convolutions = [(window, STRIDE, ReLU()) for window in WINDOWS[:depth]]
    return image_skeleton(SIDE, SIDE, convolutions, ReLU())


def correlations(features: Features) -> NDArray[np.float64]:
    """(pixels, pixels) of occurrences, NaN for a pixel that never or always occurs."""
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


def measure(count: int, seed: int) -> tuple[list[dict[str, Any]], list[NDArray[np.float64]]]:
    """Mean correlations by tier of each kernel, and its correlations (pixels, pixels)."""
    rows, maps = [], []
    print(f"{'layers':>6} {'window of layer':>16} {'pairs':>8} {'correlation':>12} {'error':>8}")
    for depth in range(len(WINDOWS) + 1):
        skeleton = skeleton_of(depth)
        found = correlations(draw(skeleton, count, np.random.default_rng(seed)))
        maps.append(found)
        layer_of = tiers(skeleton)
        for tier in range(1, depth + 2):
            values = found[np.triu(layer_of == tier)]
            values = values[np.isfinite(values)]
            if not len(values):
                continue
            row = {
                "layers": depth,
                "tier": tier if tier <= depth else "none",
                "pairs": len(values),
                "mean": float(values.mean()),
                "deviation": float(values.std()),
            }
            rows.append(row)
            print(
                f"{depth:>6} {row['tier']:>16} {row['pairs']:>8} {row['mean']:>12.6f} "
                f"{row['deviation']:>8.5f}",
                flush=True,
            )
    return rows, maps


def plot(maps: Sequence[NDArray[np.float64]]) -> Any:
    """Of each kernel: the largest correlation of a pixel with one of four, on a common scale."""
    figure, axes = new_figure(len(maps), size=(3.2, 3.4))
    chosen = [row * SIDE + column for row, column in SHOWN]
    shown = []
    for found in maps:
        whole = np.full(SIDE * SIDE, np.nan)
        values = found[chosen].copy()
        values[:, chosen] = np.nan
        seen = np.isfinite(values).any(0)
        whole[np.flatnonzero(seen)] = np.nanmax(values[:, seen], 0)
        shown.append(whole.reshape(SIDE, SIDE))
    top = max(float(np.nanmax(picture)) for picture in shown)
    for depth, (axis, picture) in enumerate(zip(axes[0], shown, strict=True)):
        # Correlations span decades: the square root of the scale shows all tiers.
        image = axis.imshow(np.sqrt(np.clip(picture, 0, None)), cmap="gray", vmax=top**0.5, vmin=0)
        rows, columns = zip(*SHOWN, strict=True)
        axis.plot(columns, rows, "s", color="C0", markersize=5)
        axis.set_title(f"layers of convolutions: {depth}")
        axis.set_axis_off()
    ticks = np.linspace(0, top**0.5, 4)
    bar = figure.colorbar(image, ax=axes[0].tolist(), label="correlation")
    bar.set_ticks(ticks, labels=[f"{tick**2:.3f}" for tick in ticks])
    return figure


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = make_parser("benchmarks.cooccurrence", __doc__).parse_args(argv)
    rows, maps = measure(FEATURES // 10 if arguments.quick else FEATURES, arguments.seed)
    if arguments.out is not None:
        save(arguments.out, "cooccurrence", arguments.seed, rows, plot(maps))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: exit status 0, or 2 for a mistake in the arguments."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
