"""Kernel regression against a plain double loop, and the benchmark's command on a small file."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import attention
from experiments.data.uci import Split
from experiments.simplex_random_features import bandwidths, classification
from experiments.simplex_random_features.classification import CRT_M, Rows, compare, rows, summary
from experiments.simplex_random_features.classification_published import (
    CRT_TABLE_1,
    SIGMA,
    TABLE_2,
    TABLE_3,
)
from experiments.simplex_random_features.kernel_regression import accuracies, exact_accuracy


@pytest.fixture
def clusters() -> Rows:
    """Three overlapping classes in the plane."""
    rng = np.random.default_rng(0)
    labels = np.arange(180) % 3
    points = np.array([[0.7, 0.0], [-0.7, 0.0], [0.0, 0.9]])[labels]
    points = torch.from_numpy(points + 0.5 * rng.standard_normal((180, 2)))
    classes = torch.from_numpy(labels)
    return points[:120], classes[:120], points[120:], classes[120:]


def test_exact_accuracy_is_that_of_a_plain_loop(clusters: Rows) -> None:
    x_train, y_train, x_test, y_test = clusters
    right = 0
    for x, label in zip(x_test.tolist(), y_test.tolist(), strict=True):
        scores = [0.0, 0.0, 0.0]
        for other, c in zip(x_train.tolist(), y_train.tolist(), strict=True):
            scores[c] += math.exp(-0.5 * math.dist(x, other) ** 2)
        right += scores.index(max(scores)) == label
    assert exact_accuracy(*clusters, 3) == pytest.approx(right / 60)
    assert 0.6 < right / 60 < 1.0


@pytest.mark.parametrize("name", ["positive", "hyperbolic", "trig"])
def test_draws_in_one_map_equal_draws_apart(name: str, clusters: Rows) -> None:
    omega = torch.randn(4 * 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = attention.feature_map(name, 2, 20, kernel="gaussian", projection=omega)
    apart = [
        accuracies(
            attention.feature_map(name, 2, 5, kernel="gaussian", projection=part), 1, *clusters, 3
        )
        for part in omega.split(5)
    ]
    np.testing.assert_array_equal(accuracies(together, 4, *clusters, 3), np.concatenate(apart))
    assert len(set(np.concatenate(apart))) > 1


def test_many_features_predict_like_the_exact_kernel(clusters: Rows) -> None:
    fm = attention.feature_map("positive", 2, 4000, kernel="gaussian").double()
    found = accuracies(fm, 1, *clusters, 3)
    assert abs(found[0] - exact_accuracy(*clusters, 3)) <= 2 / 60


def test_summary_and_comparison() -> None:
    ours = summary(np.array([0.2, 0.4, 0.6]))
    assert ours == {"accuracy": pytest.approx(0.4), "error": pytest.approx(0.2 / math.sqrt(3))}
    near = compare({"accuracy": 0.50, "error": 0.03}, (0.60, 0.04))
    assert near["z"] == pytest.approx(-2.0)
    assert near["within"]
    assert not compare({"accuracy": 0.50, "error": 0.03}, (0.70, 0.04))["within"]


def test_rows_are_scaled_and_padded() -> None:
    parts = Split(np.ones((2, 3)), np.array([0, 1]), np.ones((1, 3)), np.array([1]))
    x_train, _, x_test, _ = rows(parts, 0.5, 4)
    assert x_train.tolist() == [[0.5, 0.5, 0.5, 0.0]] * 2
    assert x_test.shape == (1, 4)


def test_published_tables_cover_the_same_sets() -> None:
    assert set(TABLE_2) == set(TABLE_3) == set(CRT_TABLE_1) == set(SIGMA)
    assert TABLE_3["banknote"]["fast_simplex"] == (0.7296, pytest.approx(0.0017))
    for column, average in (("trig", 35.5), ("oprf", 57.8), ("geometric_plus", 52.3)):
        mean = np.mean([row[column] for row in CRT_TABLE_1.values()])
        assert 100 * mean == pytest.approx(average, abs=0.06)
    assert CRT_M == 128


def test_the_command_writes_figures_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(0).standard_normal((81, 4))
    lines = [",".join(map(str, [*row, int(row[0] > 0)])) for row in values]
    (tmp_path / "data_banknote_authentication.txt").write_text("\n".join(lines) + "\n")
    arguments = ["--quick", "--repeats", "3", "--crt-repeats", "2", "banknote"]
    where = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert classification.main([*arguments, *where]) == 0
    text = capsys.readouterr().out
    assert "banknote: d 4, 72 train, 4 test" in text
    assert "figures within 3 combined standard errors, 3 draws" in text
    facts = json.loads((tmp_path / "out" / "classification.json").read_text())
    result = facts["results"]["sets"]["banknote"]
    assert set(result["table_3"]) == set(TABLE_3["banknote"])
    assert set(result["figure_8"]["simplex"]) == {"1", "2"}
    assert set(result["crt_table_1"]) == set(CRT_TABLE_1["banknote"]) & set(attention.available())
    assert (tmp_path / "out" / "classification.png").stat().st_size > 1000


def test_a_curve_over_bandwidths_has_its_best_where_features_are_good(clusters: Rows) -> None:
    x_train, y_train, x_test, y_test = (part.numpy() for part in clusters)
    parts = Split(x_train, y_train, x_test, y_test)
    used = bandwidths.validation("banknote", parts)
    assert (len(used.y_train), len(used.y_test)) == (120, 30)
    found = bandwidths.curve("banknote", parts, 3, [1e-6, 1.0, 30.0], 0)
    assert bandwidths.best(found, "accuracy") == 1.0
    assert found[1]["accuracy"] > found[2]["accuracy"]
    assert found[1]["exact"] == exact_accuracy(*rows(used, 1.0), 3)


def test_an_unknown_set_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert classification.main(["iris"]) == 2
    assert bandwidths.main(["iris"]) == 2
    assert "set must be one of abalone, " in capsys.readouterr().err
