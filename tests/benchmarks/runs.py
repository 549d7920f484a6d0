"""A quick run of a figure's command."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any


def quick(module: ModuleType, folder: Path, *words: str) -> Any:
    """The results of `main --quick --out folder`, whose plot and provenance are checked."""
    assert module.main(["--quick", "--out", str(folder), *words]) == 0
    name = module.__name__.rpartition(".")[2]
    assert (folder / f"{name}.png").stat().st_size > 2_000  # a palette of few colours
    saved = json.loads((folder / f"{name}.json").read_text())
    assert saved["benchmark"] == name
    assert saved["provenance"]["hardware"]["cores"] >= 1
    return saved["results"]
