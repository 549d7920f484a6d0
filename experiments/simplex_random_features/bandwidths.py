"""Accuracy of kernel regression by the kernel's bandwidth (Simplex Random Features, Figure 10).

    python -m experiments.simplex_random_features.bandwidths

Inputs are multiplied by sigma, as in `classification.py`: 90 % of the rows train, half of
the others are predicted. Exact Gaussian kernel, and m = 10 d independent positive features, means
of 10 draws. Of chess and nursery 1,000 rows train and 100 are predicted, as in the paper, which
draws the curves and chooses sigma by them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import figure
from experiments.data.uci import Split, load, split
from experiments.figure import Arguments, Lines, Rows
from experiments.simplex_random_features import classification_published as published
from experiments.simplex_random_features.classification import (
    DATA,
    SETS,
    positive_features,
    rows,
    sets_of,
    summary,
)  # fmt: skip
from experiments.simplex_random_features.kernel_regression import exact_accuracy

SIGMAS = tuple(float(v) for v in np.geomspace(0.02, 5.0, 13))
BLOCKS, DRAWS = 10, 10
"""m / d, and draws of the features."""
FEW = {"chess": (1000, 100), "nursery": (1000, 100)}
"""Rows to train on and to predict, of large sets."""


def validation(name: str, parts: Split) -> Split:
    """Rows to train on, and those that choose sigma."""
    train, test = FEW.get(name, (len(parts.y_train), len(parts.y_test) // 2))
    return Split(
        parts.x_train[:train], parts.y_train[:train], parts.x_test[:test], parts.y_test[:test]
    )


def curve(name: str, parts: Split, classes: int, sigmas: Sequence[float], seed: int) -> Rows:
    """A row for each sigma: `exact` accuracy, and that of the features with its error."""
    found = []
    for sigma in sigmas:
        data = rows(validation(name, parts), sigma)
        sample = positive_features(data, classes, "iid", BLOCKS, DRAWS, seed)
        found.append({"sigma": sigma, "exact": exact_accuracy(*data, classes), **summary(sample)})
    return found


def best(curve: Rows, key: str) -> float:
    """The sigma of the highest accuracy."""
    sigma: float = max(curve, key=lambda row: row[key])["sigma"]
    return sigma


def draw(curves: dict[str, Rows]) -> Any:
    """Accuracies of the exact kernel and of features by sigma, a line for each set."""
    rows = [{"set": name, **row} for name, found in curves.items() for row in found]
    return figure.plot(rows, "sigma", ("exact", "accuracy"), "set", scales=("log", "linear"))


def measure(arguments: Arguments) -> dict[str, Rows]:
    """A curve for each set."""
    sigmas = SIGMAS[::4] if arguments.quick else SIGMAS
    curves = {}
    for name in sets_of(arguments.sets, arguments.quick):
        data = load(name, arguments.data)
        parts = split(data, test_share=0.1)
        curves[name] = curve(name, parts, len(data.classes), sigmas, arguments.seed)
    return curves


def show(curves: dict[str, Rows]) -> Lines:
    """The best bandwidths and the curves."""
    for name, found in curves.items():
        yield (
            f"\n{name}: best sigma {best(found, 'exact'):.2f} of the exact kernel, "
            f"{best(found, 'accuracy'):.2f} of features; the paper's code has "
            f"{published.SIGMA[name]:.2f}"
        )
        for row in found:
            yield (
                f"  sigma {row['sigma']:5.2f}  exact {row['exact']:.3f}  "
                f"features {row['accuracy']:.3f} +- {row['error']:.3f}"
            )


main = figure.command(measure, show, draw, SETS, DATA)
