"""Compositional random features on 8 x 8 digits: kernel error and accuracy against columns.

    python -m experiments.compositional_kernels.compositional [--out DIR] [--quick]

Random Features for Compositional Kernels, Figure 3 in kind: the paper has CIFAR-10, this has the
digits that scikit-learn ships. Skeletons: linear; shallow (one node exp((r - 1)/4) over all
pixels); deep (exp((r - 1)/4) on 3 x 3 patches, ReLU on 2 x 2 of those, ReLU); deep of ReLU alone.
A pixel of 0 to 16 is an angle of 0 to pi/2. Methods, at equal columns:

* RFS: Algorithm 1, de-duplicated: as many distinct features as the columns hold, from at most
  200,000 draws
* RFS, every draw kept: the same without de-duplication
* RR: scikit-learn's RBFSampler (Rahimi and Recht) for the shallow kernel, which is Gaussian
* RFS+RR: Algorithm 1 down to the patches, a Gaussian random feature for each patch

The kernel error compares estimated and exact kernels on 128 images drawn for each seed. The
accuracy is that of ridge regression on one-hot labels without intercept, on a third of the images;
its penalty, of 1 to 1e-6, is chosen for each run on a third of the training images. Figures are
means over ten draws, as in the paper; they take about eight minutes on one core."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import train_test_split

from attention.compositional import (
    CompositionalFeatures,
    Exponential,
    Gaussian,
    Identity,
    Internal,
    ReLU,
    Skeleton,
    image_skeleton,
)
from experiments import figure
from experiments.figure import Arguments, Lines, Row, Rows
from training.analysis.arguments import positive

Floats = NDArray[np.float64]

SIDE, PIXELS = 8, 64
SCALE = math.pi / 32
"""Radians per grey level of 0 to 16."""
C = 0.25
"""The paper's exp((r - 1)/4), "an RBF kernel with scale 0.5"."""
LAST = (2, 2, ReLU())
"""(window, stride, activation) of the deep skeletons' second layer."""
SKELETONS = {
    "linear": image_skeleton(SIDE, SIDE, [], Identity(), scale=SCALE),
    "shallow": image_skeleton(SIDE, SIDE, [], Exponential(C), scale=SCALE),
    "deep": image_skeleton(SIDE, SIDE, [(3, 1, Exponential(C)), LAST], ReLU(), scale=SCALE),
    "deep ReLU": image_skeleton(SIDE, SIDE, [(3, 1, ReLU()), LAST], ReLU(), scale=SCALE),
}
PENALTIES = tuple(10.0**-i for i in range(7))
COLUMNS: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
BATCH = 128
RFS, PLAIN, RR, RFS_RR = "RFS", "RFS, every draw kept", "RR", "RFS+RR"
METHODS = {
    "linear": (RFS,),
    "shallow": (RFS, PLAIN, RR),
    "deep": (RFS, PLAIN, RFS_RR),
    "deep ReLU": (RFS,),
}
PUBLISHED = {
    "figure 3": "RFS below RR (shallow) and RFS+RR (deep) in mean, root mean square and largest "
    "error and above them in correlation, at every number of features (CIFAR-10; curves only)",
    "table 1": {"deep (4,5)": 0.7288, "fully connected": 0.6001, "data": "CIFAR-10"},
}


def gaussian_patches(skeleton: Skeleton) -> Skeleton:
    """The same kernel with one Gaussian input node for each exponential node over circles.

    exp(c (mean of n cosines - 1)) is Gaussian with a^2 = c/n on the points (cos, sin), which
    `points` appends to the angles.
    """
    inputs, nodes = {}, {}
    for name, node in skeleton.nodes.items():
        if not isinstance(node.activation, Exponential):
            nodes[name] = Internal(node.inputs, node.activation)
            continue
        pixels = [skeleton.inputs[source].columns[0] for source in node.inputs]
        columns = [p + PIXELS for p in pixels] + [p + 2 * PIXELS for p in pixels]
        inputs[name] = Gaussian(tuple(columns), math.sqrt(node.activation.c / len(pixels)))
    return Skeleton(inputs, nodes)


def points(grey: Floats) -> Floats:
    """(n, 64) grey levels -> (n, 192): the levels, then cosines and sines of their angles."""
    return np.concatenate((grey, np.cos(SCALE * grey), np.sin(SCALE * grey)), axis=1)


def _embedding(kernel: str, method: str, columns: int, seed: int) -> Callable[[Floats], Floats]:
    """A function from `points` to features."""
    if method == RR:
        sampler = RBFSampler(gamma=C / (2 * PIXELS), n_components=columns, random_state=seed)
        sampler.fit(np.zeros((1, 2 * PIXELS)))
        return lambda x: np.asarray(sampler.transform(x[:, PIXELS:]))
    skeleton = SKELETONS[kernel]
    features = CompositionalFeatures(
        gaussian_patches(skeleton) if method == RFS_RR else skeleton,
        n_components=columns // 2,
        budget="draws" if method == PLAIN else "distinct",
        deduplicate=False,
        max_draws=200_000,
        random_state=seed,
    ).fit(np.zeros((1, 3 * PIXELS)))
    return lambda x: np.asarray(features.transform(x))


def _errors(estimate: Floats, exact: Floats) -> dict[str, float]:
    """Errors of a Gram matrix; the correlation is NaN if an estimate is constant."""
    difference = np.abs(estimate - exact)
    with np.errstate(invalid="ignore"):
        correlation = float(np.corrcoef(estimate.ravel(), exact.ravel())[0, 1])
    return {
        "mean_absolute": float(difference.mean()),
        "root_mean_square": float(np.sqrt(np.square(difference).mean())),
        "largest": float(difference.max()),
        "correlation": correlation,
    }


@dataclass(frozen=True)
class Digits:
    """The images and their split."""

    x: Floats
    """(n, 192), as `points` gives them"""
    labels: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def load(images: int) -> Digits:
    """The first `images` digits, a third of them, stratified, for testing."""
    grey, labels = load_digits(return_X_y=True)
    labels = labels[:images]
    train, test = train_test_split(
        np.arange(len(labels)), test_size=1 / 3, stratify=labels, random_state=0
    )
    return Digits(points(grey[:images]), labels, train, test)


def _accuracy(gram: Floats, data: Digits, train: Any, test: Any, penalty: float) -> float:
    """Accuracy of kernel ridge regression; gram (n, n), exact or estimated."""
    ridge = gram[np.ix_(train, train)] + penalty * np.eye(len(train))
    dual = np.linalg.solve(ridge, np.eye(10)[data.labels[train]])
    predicted = (gram[np.ix_(test, train)] @ dual).argmax(1)
    return float((predicted == data.labels[test]).mean())


def _ridge(gram: Floats, data: Digits) -> dict[str, float]:
    """The penalty that a third of the training images choose, and the accuracy with it."""
    inner, held_out = train_test_split(
        data.train, test_size=1 / 3, stratify=data.labels[data.train], random_state=0
    )
    penalty = max(PENALTIES, key=lambda value: _accuracy(gram, data, inner, held_out, value))
    accuracy = _accuracy(gram, data, data.train, data.test, penalty)
    return {"penalty": penalty, "accuracy": accuracy}


def estimates(columns: Sequence[int], seeds: int, images: int) -> dict[str, Any]:
    """Errors and accuracies of all skeletons, methods, columns and seeds."""
    data = load(images)
    exact: dict[str, Row] = {}
    rows: Rows = []
    for kernel, methods in METHODS.items():
        skeleton = SKELETONS[kernel]
        gram = skeleton.gram(data.x)
        facts = {"complexity": skeleton.complexity, "expected_calls": skeleton.expected_calls}
        exact[kernel] = facts | _ridge(gram, data)
        for method in methods:
            for width in columns:
                runs = [
                    _run(_embedding(kernel, method, width, seed), seed, data, gram)
                    for seed in range(seeds)
                ]
                row = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
                row["accuracy_std"] = float(np.std([run["accuracy"] for run in runs]))
                rows.append({"kernel": kernel, "method": method, "columns": width, **row})
    return {"images": images, "exact": exact, "results": rows}


def _run(
    embed: Callable[[Floats], Floats], seed: int, data: Digits, gram: Floats
) -> dict[str, float]:
    z = embed(data.x)
    estimate = z @ z.T
    batch = np.random.default_rng(seed).choice(len(z), BATCH, replace=False)
    pairs = np.ix_(batch, batch)
    errors = _errors(estimate[pairs], gram[pairs])
    return {"columns_used": z.shape[1], **errors, **_ridge(estimate, data)}


def ordering(results: Rows) -> dict[str, dict[str, bool]]:
    """The cases in which Figure 3's claim holds: RFS better than its baseline in every measure."""
    found: dict[str, dict[str, bool]] = {}
    for kernel, baseline in (("shallow", RR), ("deep", RFS_RR)):
        ours, theirs = (
            figure.select(results, kernel=kernel, method=method) for method in (RFS, baseline)
        )
        for key in ("mean_absolute", "root_mean_square", "largest", "correlation"):
            sign = -1 if key == "correlation" else 1
            found[f"{kernel}, {key}"] = {
                str(a["columns"]): sign * a[key] < sign * b[key]
                for a, b in zip(ours, theirs, strict=True)
            }
    return found


def draw(report: dict[str, Any]) -> Any:
    """Kernel error and accuracy against columns, a panel for each kernel."""
    keys = ("root_mean_square", "accuracy")
    return figure.plot(report["results"], "columns", keys, "method", "kernel", ("log", "log"))


def measure(arguments: Arguments) -> dict[str, Any]:
    """All estimates and whether the paper's order holds."""
    columns, seeds, images = COLUMNS, arguments.seeds, 1797
    if arguments.quick:
        columns, seeds, images = (32, 256), 1, 450
    start = time.perf_counter()
    report = estimates(columns, seeds, images) | {"seeds": seeds, "published": PUBLISHED}
    report["rfs_better_than_baseline"] = ordering(report["results"])
    return report | {"wall_s": round(time.perf_counter() - start, 1)}


def show(report: dict[str, Any]) -> Lines:
    """Errors, correlations and accuracies, then how often the paper's order holds."""
    rows = []
    for kernel, facts in report["exact"].items():
        rows.append((kernel, "exact", "", "", "", f"{facts['accuracy']:.1%}"))
        for r in (r for r in report["results"] if r["kernel"] == kernel):
            figures = f"{r['root_mean_square']:.2e}", f"{r['correlation']:.4f}"
            rows.append((kernel, r["method"], r["columns"], *figures, f"{r['accuracy']:.1%}"))
    head = ("kernel", "method", "columns", "RMS error", "correl.", "accuracy")
    yield from figure.lines(head, rows, 10, -20, 8, 11, 9, 10)
    held = [ok for sizes in report["rfs_better_than_baseline"].values() for ok in sizes.values()]
    yield f"\nRFS better than its baseline: {sum(held)} of {len(held)} comparisons"
    yield f"published, figure 3: {PUBLISHED['figure 3']}"
    yield f"published, table 1: {PUBLISHED['table 1']}"


main = figure.command(
    measure, show, draw,
    figure.option("--seeds", type=positive, default=10, help="number of draws (default 10)"),
)  # fmt: skip
