"""Table 1 of the paper from an experiment's results: does the kernel rank architectures as their
networks do?

python -m experiments.compositional.ranks results/compositional/table.csv
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from experiments.results import read_table
from training.io.config import ArgumentParser, UserError, exit_status

PUBLISHED = {
    "4,5": (72.88, 77.09), "6,4": (72.42, 77.06), "6,6": (72.25, 75.52), "4,4": (71.49, 74.94),
    "5,4": (71.45, 76.78), "4,6": (70.62, 74.24), "5,6": (70.39, 75.38), "6,5": (70.14, 74.23),
    "5,5": (69.64, 73.57), "full": (60.01, 55.09),
}  # fmt: skip
"""Accuracy of features and of the network in %, on CIFAR-10 (Table 1)."""


def ranks(accuracies: dict[str, tuple[float, float]]) -> list[tuple[str, float, float, int, int]]:
    """Architecture, accuracies of features and network, and their ranks, sorted by features'
    accuracy.
    """
    by_features = sorted(accuracies, key=lambda name: -accuracies[name][0])
    by_network = sorted(accuracies, key=lambda name: -accuracies[name][1])
    return [
        (name, *accuracies[name], number, by_network.index(name) + 1)
        for number, name in enumerate(by_features, 1)
    ]


def _read(path: Path) -> dict[str, tuple[float, float]]:
    """Mean accuracies over seeds of the variants "features ARCH" and "network ARCH"."""
    means = {}
    for variant, models in read_table(path).items():
        values = [numbers.get("accuracy") for numbers in models.values()]
        if None in values:
            raise UserError(f"{path}: variant {variant} must have an accuracy for every seed")
        means[variant] = float(np.mean(np.array(values, float)))
    both = {
        name: (means[f"features {name}"], means[f"network {name}"])
        for name in PUBLISHED
        if f"features {name}" in means and f"network {name}" in means
    }
    if len(both) < 2:
        raise UserError(
            f"{path} must have features and networks of two architectures, got {[*means]}"
        )
    return both


def _print(title: str, accuracies: dict[str, tuple[float, float]]) -> None:
    print(f"{title}\n{'arch':<6} {'features':>8} {'network':>8} {'gap':>6}  rank  network's")
    for name, feature, network, own, its in ranks(accuracies):
        gap = network - feature
        print(f"{name:<6} {feature:>8.2f} {network:>8.2f} {gap:>6.2f} {own:>5} {its:>10}")
    convolutions = [name for name in accuracies if name != "full"]
    for label, names in (("all", [*accuracies]), ("convolutions", convolutions)):
        if len(names) > 2:
            rho = spearmanr(*zip(*(accuracies[name] for name in names), strict=True)).statistic
            print(f"Spearman's correlation, {label}: {rho:.2f}")


def run(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = ArgumentParser(
        prog="python -m experiments.compositional.ranks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("table", metavar="TABLE", help="table.csv of the experiment")
    here = _read(Path(parser.parse_args(argv).table))
    _print("here", here)
    _print("\npublished, CIFAR-10", {name: PUBLISHED[name] for name in here})
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
