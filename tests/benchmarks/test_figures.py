"""Quick runs of the papers' figures: the orders that the papers claim, and values by hand."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import attention
from attention.compositional import ReLU, draw, image_skeleton
from benchmarks import coupling_costs
from experiments import figure
from experiments.chefs_random_tables import oprf_gain, variance
from experiments.compositional_kernels import cooccurrence
from experiments.error_of_random_fourier_features import max_error
from experiments.feature_maps import error_per_flop, far_from_zero
from experiments.hybrid_random_features import (
    clustered,
    error_surface,
    hybrid_bases,
    pointwise,
    quasi_monte_carlo,
)
from experiments.place_memory import place_memory
from experiments.robots import action_search
from experiments.simplex_random_features import couplings, resultants

from .runs import quick

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "attention.md"


def test_a_record_is_printed_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figure, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(figure, "ROOT", Path(figure.__file__).parents[1])
    assert oprf_gain.main(["--quick", "--record", "other"]) == 0
    printed = capsys.readouterr().out
    assert oprf_gain.main(["--table", "other"]) == 0
    assert capsys.readouterr().out == printed
    assert "square" not in figure.read_record("other")[0]  # only the plot needs it
    assert oprf_gain.main(["--table", "none"]) == 2
    assert "--table needs the record docs/records/none.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["far_from_zero", "couplings", "gaze", "same_keys", "compositional"]
)
def test_a_figure_that_was_a_benchmark_still_starts_there(name):
    spec = importlib.util.find_spec(f"benchmarks.{name}")
    assert spec is not None
    assert "/experiments/" in str(spec.origin)


@pytest.mark.records
def test_the_angular_hybrid_has_the_smallest_maximal_error(tmp_path):
    results = quick(pointwise, tmp_path)
    for radius in pointwise.LENGTHS:
        largest = {
            r["map"]: max(r["relative_error_theory"]) for r in results if r["length"] == radius
        }
        assert min(largest, key=largest.__getitem__).startswith("angular hybrid")
    (trig,) = figure.select(results, length=1, map="trig")
    assert trig["relative_error"][0] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(
        trig["relative_error"][1:], trig["relative_error_theory"][1:], rtol=0.3
    )


def test_equal_cost_by_the_papers_count():
    """4 m d + n d + 4 m n multiplications against 2 m d of trig."""
    m = pointwise.equal_cost_m(128, 8, 64)
    assert 4 * m * 64 + 8 * 64 + 4 * m * 8 <= 2 * 128 * 64
    assert 4 * (m + 1) * 64 + 8 * 64 + 4 * (m + 1) * 8 > 2 * 128 * 64


@pytest.mark.records
def test_regimes_where_one_sided_features_gain_most(tmp_path):
    results = quick(variance, tmp_path)
    at_one = {(r["regime"], r["map"]): r["mean"] for r in results if r["scale"] == 1}
    assert {regime for regime, _ in at_one} == set(variance.REGIMES)
    for regime in variance.REGIMES:
        gain = at_one[regime, "positive"] - at_one[regime, "oprf"]
        assert gain > (60 if regime in ("normal", "heterogen") else 0)
        assert at_one[regime, "gerf"] <= at_one[regime, "trig"] + 1e-9


@pytest.mark.records
def test_simplex_rows_beat_orthogonal_ones_beat_independent_ones(tmp_path):
    results = quick(couplings, tmp_path)
    order = ("iid", "orthogonal", "simplex", "simplex_plus", "optimised")
    conformity = [results["conformity"][name] for name in order]
    assert conformity == sorted(conformity, reverse=True)
    ratio = results["error_ratio"]
    # Far out both ratios are 1 but for rounding.
    curves = zip(ratio["v"], ratio["simplex"], ratio["orthogonal"], strict=True)
    assert all(a < b < 1 for v, a, b in curves if v < 4)
    gram = {r["coupling"]: r["mean"] for r in results["gram"] if r["m"] == 64}
    assert gram["simplex"] < gram["orthogonal"] < gram["iid"]


@pytest.mark.records
def test_phi_beats_psi(tmp_path):
    phi, psi = quick(max_error, tmp_path)
    assert (phi["features"], psi["features"]) == ("phi", "psi")
    assert phi["mean_largest_error"][-1] < psi["mean_largest_error"][-1]
    assert phi["mean_largest_error"] == sorted(phi["mean_largest_error"])
    of_phi, of_psi = max_error.constants().values()
    assert all(a < b for a, b in zip(of_phi, of_psi, strict=True))
    assert of_phi.index(max(of_phi)) + 1 == 64


def test_fast_rows_are_kept_in_fewer_numbers_that_grow_with_d(tmp_path):
    results = quick(coupling_costs, tmp_path)
    kept = {name: [found[name]["kept"] for found in results.values()] for name in results["32"]}
    sizes = [int(d) for d in results]
    assert coupling_costs.powers(sizes, kept["simplex_plus"]) == [pytest.approx(2)]
    assert coupling_costs.powers(sizes, kept["fast_simplex"]) == [pytest.approx(1)]
    assert all(ms > 0 for found in results.values() for ms in found["simplex"].values())
    buffers = coupling_costs.drawn("fast_simplex", 48, 0).buffers()
    assert sum(buffer.numel() for buffer in buffers) == coupling_costs.kept("fast_simplex", 48)


@pytest.mark.records
def test_coupling_takes_mass_from_long_sums(tmp_path):
    results = quick(resultants, tmp_path)
    for dim in resultants.DIMS:
        iid, orthogonal, simplex = figure.select(results, dim=dim)
        assert simplex["share_long"] < orthogonal["share_long"] < iid["share_long"]
        assert iid["share_long"] == pytest.approx(0.05, abs=1e-3)
        for entry in (iid, orthogonal, simplex):
            assert entry["conformity_of_density"] == pytest.approx(entry["conformity"], rel=1e-6)
            # Of 100 pairs, whose lengths have deviations below 1: 4 of theirs.
            assert entry["mean_drawn"] == pytest.approx(entry["mean"], abs=4 / 100**0.5)


@pytest.mark.records
def test_the_hybrid_alone_has_no_error_at_both_ends(tmp_path):
    none = {"trig": [True, False], "FAVOR+ (hyperbolic)": [False, True]}
    for entry in quick(error_surface, tmp_path)["slices"]:
        values = entry.get("errors") or entry["measured"]
        ends = [abs(value) < 1e-12 * max(values) for value in (values[0], values[-1])]
        assert ends == none.get(entry["map"], [True, True])


@pytest.mark.records
def test_optimal_positive_features_gain_as_printed(tmp_path):
    results = {r["dim"]: r for r in quick(oprf_gain, tmp_path)}
    assert results[64]["shown"][-1] == pytest.approx(-61.22, abs=0.01)
    assert all(mu == sorted(mu, reverse=True) for mu in (r["mu"] for r in results.values()))
    np.testing.assert_allclose(results[2]["drawn"], results[2]["shown"][:2], atol=0.15)


@pytest.mark.records
def test_orthogonal_trig_beats_independent_on_data(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 13))
    for name, file in (("wine", "wine.data"), ("boston", "housing.data")):
        lines = [
            [1 + i % 3, *row] if name == "wine" else [*row, 20.0] for i, row in enumerate(rows)
        ]
        separator = "," if name == "wine" else " "
        text = "\n".join(separator.join(f"{value:g}" for value in line) for line in lines)
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text + "\n")
    results = quick(quasi_monte_carlo, tmp_path, "--data", str(tmp_path))
    means = {(r["set"], r["method"]): r["mean_1e-3"] for r in results}
    for name in quasi_monte_carlo.SETS:
        assert means[name, "ORF-reg"] < means[name, "iid"]


@pytest.mark.records
def test_bases_within_one_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hybrid_bases, "SIZES", ((16, 64), (16, 1)))
    monkeypatch.setattr(hybrid_bases, "REFERENCE_M", 64)
    rows = quick(hybrid_bases, tmp_path)
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


@pytest.mark.records
def test_clusters(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(clustered, "DATA_SETS", clustered.DATA_SETS[:1])
    rows = quick(clustered, tmp_path)
    assert rows[0]["losses"] == pytest.approx([0.08, 0.05, 0.04, 0.03], abs=5e-3)
    error = {row["map"]: row["mse"] for row in rows}
    assert error["hybrid, complex A"] < error["hybrid, real A"] < error["trig"]
    assert error[clustered.OF_CENTRES] < error["FAVOR+ (positive)"]
    assert error[clustered.OF_CENTRES] < rows[0]["published"][1]


@pytest.mark.slow
def test_published_ranges_of_clusters():
    """Table 3, first data set, m = 20 and 200: our mean lies within each published range."""
    pytest.importorskip("sklearn")
    name, losses, sigma = clustered.DATA_SETS[0]
    x, y, _ = clustered.make_data(losses, clustered.SPREAD[sigma], torch.Generator().manual_seed(0))
    for row in (0, -1):
        for label, column in clustered.COLUMN.items():
            errors = clustered.errors_of(label, clustered.COUNTS[row], x, y, 20, 0)
            low, high = clustered.PUBLISHED[name][row][column : column + 2]
            assert low < sum(errors) / len(errors) < high


@pytest.mark.records
def test_errors_and_flops_of_every_map(tmp_path):
    results = quick(error_per_flop, tmp_path)
    assert set(results) == {"unit", "gaussian", "clustered"}
    unit, clusters = ({r["map"]: r for r in results[k]["maps"]} for k in ("unit", "clustered"))
    assert set(unit) <= set(error_per_flop.MAPS)
    assert {options["name"] for options in error_per_flop.MAPS.values()} == set(
        attention.available()
    ) - {"elu", "harmonic", "quadratic", "relu"}
    # 2 d m for the features of a query and of a key each; then sums and reads of F x (dv + 1).
    favor = unit["positive"]
    least = 2 * 2 * 64 * favor["m"] + 2 * 2 * favor["F"] * 64
    assert least < favor["flops_a_token"] < 1.1 * least
    # sqrt((e^2 - 1) / m) for a right angle; fewer rows than d are better than independent.
    assert 0.1 < favor["kernel_error"] < 0.6
    assert unit["poisson"]["attention_error"] is None
    complex_a = clusters["clustered_hybrid, complex A"]["kernel_error"]
    assert complex_a < clusters["angular_hybrid"]["kernel_error"]
    # Centres that are noise do no harm: A stays near the identity, that of positive features.
    assert unit["complex_exponential"]["kernel_error"] < 2 * favor["kernel_error"]


def test_the_best_within_a_budget():
    rows = [
        {"map": "a", "flops_a_token": 10, "attention_error": 0.5},
        {"map": "a", "flops_a_token": 20, "attention_error": 0.3},
        {"map": "b", "flops_a_token": 15, "attention_error": 0.4},
        {"map": "c", "flops_a_token": None, "attention_error": None},
    ]
    names = [(r["map"], r["attention_error"]) for r in error_per_flop.best_within(rows, 15)]
    assert names == [("b", 0.4), ("a", 0.5)]
    assert error_per_flop.best_within(rows, 20)[0]["map"] == "a"


def test_the_reference_is_true_of_every_map_and_names_every_coupling():
    """Its table: F for m = 16, n = 8, two clusters a side, d = 64, and the sign."""
    text = REFERENCE.read_text()
    lines = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (signed|positive)", text, re.MULTILINE)
    assert sorted(name for name, _, _ in lines) == list(attention.available())
    sizes = {"m": 16, "n": 8, "d": 64, "nq": 2, "nk": 2}
    for name, formula, sign in lines:
        fm = attention.feature_map(name, 64, 16)
        assert eval(formula, {}, sizes) == fm.output_dim, name
        assert fm.signed == (sign == "signed"), name
    assert [p for p in attention.available_projections() if f"`{p}`" not in text] == []


@pytest.mark.records
def test_only_trigonometric_features_stand_a_mean_far_from_zero(tmp_path):
    results = quick(far_from_zero, tmp_path)
    for name in ("oprf", "gerf", "positive"):
        near, *_, far = figure.column(figure.select(results, map=name, way="as it is"), "error")
        assert near < 0.25
        assert far > 0.95
        centred = figure.select(results, map=name, way="centred")
        assert max(figure.column(centred, "error")) < 0.25
    assert max(r["error"] for r in figure.select(results, map="trig", way="as it is")) < 0.1


@pytest.mark.records
def test_pairs_of_lower_layers_occur_together_more_often(tmp_path):
    """Orders as here came out with six of six seeds; the smallest gap was 0.002."""
    rows = quick(cooccurrence, tmp_path)
    for layers in range(4):
        means = [row["mean"] for row in rows if row["layers"] == layers]
        assert len(means) >= min(layers, 2) + 1
        assert means == sorted(means, reverse=True)
        assert means[0] > (1.5 * means[1] if layers else 0)


def test_correlations_and_tiers_are_those_of_the_features():
    skeleton = image_skeleton(4, 4, [(2, 2, ReLU())], ReLU())
    features = draw(skeleton, 500, np.random.default_rng(0))
    occurs = np.zeros((500, 16))
    for name, terms in features.terms.items():
        occurs[terms.owner, skeleton.inputs[name].columns[0]] = 1
    expected = np.corrcoef(occurs.T)
    np.testing.assert_allclose(cooccurrence.correlations(features), expected, atol=1e-12)
    layer_of = cooccurrence.tiers(skeleton)
    assert layer_of[0].tolist() == [-1, 1, 2, 2, 1, 1, *[2] * 10]


@pytest.mark.records
def test_harmonics_remember_places_and_positive_features_do_not(tmp_path):
    results = quick(place_memory, tmp_path)
    rows = {row["map"]: row for row in results["memories"]}
    mean, harmonic = rows[place_memory.MEAN]["error"], rows["harmonic, m = 26"]
    favor = rows["positive (FAVOR+), m = 256"]
    assert rows[place_memory.GRID]["error"] < 0.6 * mean
    assert harmonic["to_exact"] < 0.02
    assert harmonic["wrong"] < 0.04
    assert favor["error"] > 0.9 * mean
    assert favor["kernel_error"] > 0.9
    assert harmonic["state"] == 2 * 53 + 3
    assert harmonic["flops"] < rows[place_memory.EXACT]["flops"] / 50
    for size in results["sizes"]:
        assert size["circle"] < size["torus"] < size["product"]


@pytest.mark.records
def test_searches(tmp_path):
    assert figure.column(quick(action_search, tmp_path), "search") == [
        "autoregressive",
        "joint, langevin",
        "joint, derivative-free",
        "joint, chain negatives, langevin",
        "joint, chain negatives, derivative-free",
        "explicit",
    ]


def test_errors_are_distances_to_the_nearer_right_action():
    weights = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    context = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    first, second = action_search.right_actions(context, weights)
    for right in (first, second):
        assert action_search.errors(right, context, weights)["all"] == 0
    found = action_search.errors((first + second) / 2, context, weights)
    assert found["smooth"] == found["constant"] == 0
    torch.testing.assert_close(found["two values"], 50 * (0.6 + 0.3) / 2)
