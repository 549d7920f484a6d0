"""Benchmarks of kernel estimates, quick: files appear, and the papers' orders come out."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks import coupling_costs
from experiments.chefs_random_tables import oprf_gain, variance
from experiments.error_of_random_fourier_features import max_error
from experiments.hybrid_random_features import error_surface, pointwise, quasi_monte_carlo
from experiments.simplex_random_features import couplings, resultants


def results_of(benchmark: ModuleType, folder: Path, *arguments: str) -> Any:
    assert benchmark.main(["--quick", "--out", str(folder), *arguments]) == 0
    name = benchmark.__name__.rpartition(".")[2]
    assert (folder / f"{name}.png").stat().st_size > 10_000
    saved = json.loads((folder / f"{name}.json").read_text())
    assert saved["provenance"]["hardware"]["cores"] >= 1
    return saved["results"]


def test_the_angular_hybrid_has_the_smallest_maximal_error(tmp_path: Path) -> None:
    results = results_of(pointwise, tmp_path)
    for radius in pointwise.LENGTHS:
        largest = {
            r["map"]: max(r["relative_error_theory"]) for r in results if r["length"] == radius
        }
        assert min(largest, key=largest.__getitem__).startswith("angular hybrid")
    for r in results:
        if r["length"] == 1 and r["map"] == "trig":
            measured, theory = r["relative_error"], r["relative_error_theory"]
            assert measured[0] == pytest.approx(0, abs=1e-12)
            np.testing.assert_allclose(measured[1:], theory[1:], rtol=0.3)


def test_equal_cost_by_the_papers_count() -> None:
    """4 m d + n d + 4 m n multiplications against 2 m d of trig."""
    m = pointwise.equal_cost_m(128, 8, 64)
    assert 4 * m * 64 + 8 * 64 + 4 * m * 8 <= 2 * 128 * 64
    assert 4 * (m + 1) * 64 + 8 * 64 + 4 * (m + 1) * 8 > 2 * 128 * 64


def test_regimes_where_one_sided_features_gain_most(tmp_path: Path) -> None:
    results = results_of(variance, tmp_path)
    at_one = {(r["regime"], r["map"]): r["mean"] for r in results if r["scale"] == 1}
    assert {regime for regime, _ in at_one} == set(variance.REGIMES)
    for regime in ("normal", "heterogen"):
        assert at_one[regime, "positive"] - at_one[regime, "oprf"] > 60
    for regime in variance.REGIMES:
        assert at_one[regime, "oprf"] < at_one[regime, "positive"]
        assert at_one[regime, "gerf"] <= at_one[regime, "trig"] + 1e-9


def test_simplex_rows_beat_orthogonal_ones_beat_independent_ones(tmp_path: Path) -> None:
    results = results_of(couplings, tmp_path)
    order = ("iid", "orthogonal", "simplex", "simplex_plus", "optimised")
    conformity = [results["conformity"][name] for name in order]
    assert conformity == sorted(conformity, reverse=True)
    ratio = results["error_ratio"]
    # Far out both ratios are 1 but for rounding.
    curves = zip(ratio["v"], ratio["simplex"], ratio["orthogonal"], strict=True)
    assert all(a < b < 1 for v, a, b in curves if v < 4)
    gram = {r["coupling"]: r["mean"] for r in results["gram"] if r["m"] == 64}
    assert gram["simplex"] < gram["orthogonal"] < gram["iid"]


def test_phi_beats_psi(tmp_path: Path) -> None:
    phi, psi = results_of(max_error, tmp_path)
    assert (phi["features"], psi["features"]) == ("phi", "psi")
    assert phi["mean_largest_error"][-1] < psi["mean_largest_error"][-1]
    assert phi["mean_largest_error"] == sorted(phi["mean_largest_error"])


def test_the_constants_of_phi_are_the_smaller() -> None:
    phi, psi = max_error.constants().values()
    assert all(a < b for a, b in zip(phi, psi, strict=True))
    assert phi.index(max(phi)) + 1 == 64


def test_fast_rows_are_kept_in_fewer_numbers_that_grow_with_d(tmp_path: Path) -> None:
    results = results_of(coupling_costs, tmp_path)
    kept = {name: [found[name]["kept"] for found in results.values()] for name in results["32"]}
    sizes = [int(d) for d in results]
    assert coupling_costs.powers(sizes, kept["simplex_plus"]) == [pytest.approx(2)]
    assert coupling_costs.powers(sizes, kept["fast_simplex"]) == [pytest.approx(1)]
    assert all(ms > 0 for found in results.values() for ms in found["simplex"].values())
    buffers = coupling_costs.drawn("fast_simplex", 48, 0).buffers()
    assert sum(buffer.numel() for buffer in buffers) == coupling_costs.kept("fast_simplex", 48)


def test_coupling_takes_mass_from_long_sums(tmp_path: Path) -> None:
    results = results_of(resultants, tmp_path)
    for dim in resultants.DIMS:
        iid, orthogonal, simplex = (r for r in results if r["dim"] == dim)
        assert simplex["share_long"] < orthogonal["share_long"] < iid["share_long"]
        assert iid["share_long"] == pytest.approx(0.05, abs=1e-3)
        for entry in (iid, orthogonal, simplex):
            assert entry["conformity_of_density"] == pytest.approx(entry["conformity"], rel=1e-6)
            # Of 100 pairs, whose lengths have deviations below 1: 4 of theirs.
            assert entry["mean_drawn"] == pytest.approx(entry["mean"], abs=4 / 100**0.5)


def test_the_hybrid_alone_has_no_error_at_both_ends(tmp_path: Path) -> None:
    results = results_of(error_surface, tmp_path)
    for entry in results["slices"]:
        values = entry.get("errors") or entry["measured"]
        ends = [abs(value) < 1e-12 * max(values) for value in (values[0], values[-1])]
        assert (
            ends
            == {
                "trig": [True, False],
                "FAVOR+ (hyperbolic)": [False, True],
                "angular hybrid": [True, True],
            }[entry["map"]]
        )


def test_optimal_positive_features_gain_as_printed(tmp_path: Path) -> None:
    results = {r["dim"]: r for r in results_of(oprf_gain, tmp_path)}
    assert results[64]["shown"][-1] == pytest.approx(-61.22, abs=0.01)
    assert all(mu == sorted(mu, reverse=True) for mu in (r["mu"] for r in results.values()))
    np.testing.assert_allclose(results[2]["drawn"], results[2]["shown"][:2], atol=0.15)


def test_orthogonal_trig_beats_independent_on_data(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 13))
    for name, file in (("wine", "wine.data"), ("boston", "housing.data")):
        lines = [
            [1 + i % 3, *row] if name == "wine" else [*row, 20.0] for i, row in enumerate(rows)
        ]
        separator = "," if name == "wine" else " "
        text = "\n".join(separator.join(f"{value:g}" for value in line) for line in lines)
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text + "\n")
    results = results_of(quasi_monte_carlo, tmp_path, "--data", str(tmp_path))
    means = {(r["set"], r["method"]): r["mean_1e-3"] for r in results}
    for name in quasi_monte_carlo.SETS:
        assert means[name, "ORF-reg"] < means[name, "iid"]
