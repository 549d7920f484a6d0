"""Recording of the compared observations for `deploy.loop` on the robot's computer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from deploy.formats import Run

RECORDED = "recorded.npz"


class Recording:
    """A model that stores the first observations that it receives.

    Args:
        run: the model.
        parts: names of those inputs that are observed.
        most: number of observations to store.
    """

    def __init__(self, run: Run, parts: Mapping[str, Any], most: int) -> None:
        self._run, self._most = run, most
        self._kept: dict[str, list[Any]] = {name: [] for name in parts}

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for name, kept in self._kept.items():
            if len(kept) < self._most:
                kept.append(inputs[name].numpy().copy())
        return self._run(inputs)

    def write(self, folder: Path) -> None:
        """Write each part as (steps, ...); nothing if none was stored."""
        arrays: dict[str, Any] = {name: np.stack(kept) for name, kept in self._kept.items() if kept}
        if arrays:
            np.savez_compressed(folder / RECORDED, **arrays)
