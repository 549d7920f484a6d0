"""The hybrids' benchmarks, quick: their budgets are equal, and the expected orders come out."""

import json

import pytest

from benchmarks import outer_products
from experiments.hybrid_random_features import clustered, hybrid_bases


def test_bases(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hybrid_bases, "SIZES", ((16, 64), (16, 1)))
    monkeypatch.setattr(hybrid_bases, "REFERENCE_M", 64)
    assert hybrid_bases.main(["--quick", "--out", str(tmp_path)]) == 0
    saved = json.loads((tmp_path / "hybrid_bases.json").read_text())
    assert (tmp_path / "hybrid_bases.png").stat().st_size > 0
    rows = saved["results"]
    assert len(rows) == 2 * len(hybrid_bases.MAPS) * len(hybrid_bases.LENGTHS)
    for row in rows:
        assert row["flops"] <= row["budget"] or row["m"] == 1
        if "hyperbolic" in row["map"]:
            assert row["relative_error_by_angle"][0] < 1e-4
            # Trig terms of order exp(r^2) cancel here, in float32.
            assert row["relative_error_by_angle"][-1] < 0.01
    assert "FAVOR+ (positive)" in capsys.readouterr().out


def test_cost_counts_what_the_map_does():
    """d = 16, dv = 64, m = n = 8, shared: 2 d (m + n), T = 4 m, F = T (n + 1), 2 F dv."""
    candidate = hybrid_bases.MAPS[0]
    features = 4 * 8 * 9
    assert hybrid_bases.cost(candidate, 8, 16, 64) == 32 * 16 + 32 + features + 128 * features
    assert hybrid_bases.cost(candidate, 8, 16, 1) == 32 * 16 + 32 + 2 * features
    budget = hybrid_bases.cost(candidate, 8, 16, 64)
    assert hybrid_bases.vectors_within(candidate, budget, 16, 64) == 8
    assert hybrid_bases.vectors_within(candidate, budget - 1, 16, 64) == 7


def test_clusters(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(clustered, "DATA_SETS", clustered.DATA_SETS[:1])
    assert clustered.main(["--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "clustered.json").read_text())["results"]
    assert rows[0]["losses"] == pytest.approx([0.08, 0.05, 0.04, 0.03], abs=5e-3)
    error = {row["map"]: row["mse"] for row in rows}
    assert error["hybrid, complex A"] < error["hybrid, real A"] < error["trig"]
    assert error[clustered.OF_CENTRES] < error["FAVOR+ (positive)"]
    assert error[clustered.OF_CENTRES] < rows[0]["published"][1]


@pytest.mark.slow
def test_published_ranges():
    """Table 3, first data set, m = 20 and 200: our mean lies within each published range."""
    pytest.importorskip("sklearn")
    import torch

    name, losses, sigma = clustered.DATA_SETS[0]
    x, y, _ = clustered.make_data(losses, clustered.SPREAD[sigma], torch.Generator().manual_seed(0))
    for row in (0, -1):
        for label, column in clustered.COLUMN.items():
            errors = clustered.errors_of(label, clustered.COUNTS[row], x, y, 20, 0)
            low, high = clustered.PUBLISHED[name][row][column : column + 2]
            assert low < sum(errors) / len(errors) < high


def test_outer_products(capsys):
    assert outer_products.main(["--quick"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[:5] for row in rows] == [
        ["16", "16", "1", "64", kind] for kind in ("training", "inference")
    ]
    for row in rows:
        made, not_made, ratio = (float(row.split()[i]) for i in (5, 6, 7))
        assert ratio == pytest.approx(made / not_made, rel=0.05)
