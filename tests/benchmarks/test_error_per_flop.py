"""The benchmark of docs/results/attention.md, quick; the table of maps in the reference is true."""

import json
import re
from pathlib import Path

import attention
from experiments.feature_maps import error_per_flop

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "attention.md"


def test_errors_and_flops_of_every_map(tmp_path: Path) -> None:
    assert error_per_flop.main(["--quick", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "error_per_flop.png").stat().st_size > 10_000
    results = json.loads((tmp_path / "error_per_flop.json").read_text())["results"]
    assert set(results) == {"unit", "gaussian", "clustered"}
    unit = {row["map"]: row for row in results["unit"]["maps"]}
    assert set(unit) <= set(error_per_flop.MAPS)
    assert {options["name"] for options in error_per_flop.MAPS.values()} == set(
        attention.available()
    ) - {"elu", "harmonic", "relu"}
    # 2 d m for the features of a query and of a key each; then sums and reads of F x (dv + 1).
    favor = unit["positive"]
    least = 2 * 2 * 64 * favor["m"] + 2 * 2 * favor["F"] * 64
    assert least < favor["flops_a_token"] < 1.1 * least
    # sqrt((e^2 - 1) / m) for a right angle; fewer rows than d are better than independent.
    assert 0.1 < unit["positive"]["kernel_error"] < 0.6
    assert unit["poisson"]["attention_error"] is None
    clustered = {row["map"]: row for row in results["clustered"]["maps"]}
    complex_a = clustered["clustered_hybrid, complex A"]["kernel_error"]
    assert complex_a < clustered["angular_hybrid"]["kernel_error"]
    # Centres that are noise do no harm: A stays near the identity, that of positive features.
    assert unit["complex_exponential"]["kernel_error"] < 2 * unit["positive"]["kernel_error"]


def test_the_best_within_a_budget() -> None:
    rows = [
        {"map": "a", "flops_a_token": 10, "attention_error": 0.5},
        {"map": "a", "flops_a_token": 20, "attention_error": 0.3},
        {"map": "b", "flops_a_token": 15, "attention_error": 0.4},
        {"map": "c", "flops_a_token": None, "attention_error": None},
    ]
    names = [(r["map"], r["attention_error"]) for r in error_per_flop.best_within(rows, 15)]
    assert names == [("b", 0.4), ("a", 0.5)]
    assert error_per_flop.best_within(rows, 20)[0]["map"] == "a"


def test_the_reference_says_of_every_map_what_is_true() -> None:
    """Its table: F for m = 16, n = 8, two clusters a side, d = 64, and the sign."""
    text = REFERENCE.read_text()
    lines = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (signed|positive)", text, re.MULTILINE)
    assert sorted(name for name, _, _ in lines) == list(attention.available())
    sizes = {"m": 16, "n": 8, "d": 64, "nq": 2, "nk": 2}
    for name, formula, sign in lines:
        fm = attention.feature_map(name, 64, 16)
        assert eval(formula, {}, sizes) == fm.output_dim, name
        assert fm.signed == (sign == "signed"), name


def test_the_reference_names_every_coupling() -> None:
    text = REFERENCE.read_text()
    assert [p for p in attention.available_projections() if f"`{p}`" not in text] == []
