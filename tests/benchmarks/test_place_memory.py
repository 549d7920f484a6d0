"""The benchmark behind docs/results/memory.md, quick."""

import json
from pathlib import Path

from experiments.place_memory import place_memory


def test_harmonics_remember_places_and_positive_features_do_not(tmp_path: Path) -> None:
    assert place_memory.main(["--quick", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "place_memory.png").stat().st_size > 10_000
    results = json.loads((tmp_path / "place_memory.json").read_text())["results"]
    rows = {row["map"]: row for row in results["memories"]}
    mean = rows[place_memory.MEAN]["error"]
    harmonic = rows["harmonic, m = 26"]
    assert rows[place_memory.GRID]["error"] < 0.6 * mean
    assert harmonic["to_exact"] < 0.02
    assert harmonic["wrong"] < 0.04
    assert rows["positive (FAVOR+), m = 256"]["error"] > 0.9 * mean
    assert rows["positive (FAVOR+), m = 256"]["kernel_error"] > 0.9
    assert harmonic["state"] == 2 * 53 + 3
    assert harmonic["flops"] < rows[place_memory.EXACT]["flops"] / 50
    for size in results["sizes"]:
        assert size["circle"] < size["torus"] < size["product"]
