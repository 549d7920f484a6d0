"""Commands that measure speed and cost, and write the figures with hardware and seeds.

The papers' figures are in `experiments`; `python -m benchmarks.NAME` still starts those that were
here, and prints their new name."""

from pathlib import Path

import experiments  # first: signals and threads

__path__ += [
    str(Path(experiments.__path__[0], folder))
    for folder in (
        "hybrid_random_features", "chefs_random_tables", "simplex_random_features",
        "compositional_kernels", "error_of_random_fourier_features", "feature_maps",
        "place_memory", "robots",
    )
]  # fmt: skip
