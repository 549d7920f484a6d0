"""Data sets of the UCI archive, kernel regression on them, and the command, on small files; where
the real files are found, also on those."""

import hashlib
import io
import math
import os
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attention
from experiments.data.uci import SOURCES, Split, load, split
from experiments.simplex_random_features import bandwidths, classification
from experiments.simplex_random_features.classification import (
    compare,
    positive_features,
    rows,
    summary,
)
from experiments.simplex_random_features.classification_published import (
    CRT_TABLE_1,
    MEAN_V,
    SIGMA,
    TABLE_2,
    TABLE_3,
)
from experiments.simplex_random_features.kernel_regression import accuracies, exact_accuracy

from .runs import quick

ABALONE = "M,0.4,0.3,9\nF,0.5,0.1,10\nI,0.6,0.2,9\nM,0.7,0.5,7\n"


def written(folder: Path, name: str, text: str) -> None:
    path = folder / name / SOURCES[name].file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())


def serve(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[str]:
    """The requested addresses; `answer` makes the response."""
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> Any:
        asked.append(url)
        return answer()

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> Any:
        raise urllib.error.URLError("no network in tests")

    serve(monkeypatch, refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FOVEATE_DATA", raising=False)


def test_numeric_columns_come_before_one_hot_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abalone.data").write_text(ABALONE)  # straight in the folder
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))
    for data in (load("abalone", tmp_path), load("abalone")):
        expected = [[0.4, 0.3, 0, 0, 1], [0.5, 0.1, 1, 0, 0], [0.6, 0.2, 0, 1, 0],
                    [0.7, 0.5, 0, 0, 1]]  # fmt: skip
        np.testing.assert_array_equal(data.features, expected)
        assert data.classes == ("10", "7", "9")
        assert data.labels.tolist() == [2, 0, 2, 1]
        assert not data.blank_end
    row = "usual,proper,complete,1,convenient,convenient,nonprob,{},recommend\n"
    written(tmp_path, "nursery", row.format("a") + row.format("b") + "\n")
    data = load("nursery", tmp_path)
    np.testing.assert_array_equal(data.features, [[1] * 7 + [1, 0], [1] * 7 + [0, 1]])
    assert data.blank_end
    assert len(split(data, 0.5, 0.5).x_train) == 1


@pytest.mark.parametrize(
    ("name", "text", "features", "labels"),
    [
        ("banknote", "3.5,-1,0\r\n4,2,1", [[3.5, -1], [4, 2]], [0, 1]),
        ("wifi", "-64\t-56\t1\r\n-68\t-57\t4\r\n", [[-64, -56], [-68, -57]], [0, 1]),
        ("yeast", "A_B  0.58  0.61  MIT\nC_D  0.4  0.6  CYT\n", [[0.58, 0.61], [0.4, 0.6]], [1, 0]),
        ("wine", "2,14.2,1.7\n1,13,1.5\n", [[14.2, 1.7], [13, 1.5]], [1, 0]),
        ("boston", " 0.006  18.0  24.0\n 0.02   0.0  21.6\n", [[0.006, 18], [0.02, 0]], [24, 21.6]),
    ],
)  # fmt: skip
def test_each_format(name: str, text: str, features: Any, labels: Any, tmp_path: Path) -> None:
    written(tmp_path, name, text)
    data = load(name, tmp_path)
    np.testing.assert_array_equal(data.features, features)
    np.testing.assert_array_equal(data.labels, labels)
    assert (data.classes == ()) == (name == "boston")


def test_split_leaves_out_the_last_line_and_standardises_by_the_training_rows(
    tmp_path: Path,
) -> None:
    values = np.random.default_rng(1).standard_normal((41, 2))
    lines = [f"{a},{b},{i % 2}" for i, (a, b) in enumerate(values)]
    written(tmp_path, "banknote", "\n".join(lines) + "\n")
    parts = split(load("banknote", tmp_path))
    order = np.random.default_rng(42).permutation(40)
    train, test = values[order[:36]], values[order[38:]]
    np.testing.assert_allclose(parts.x_train, (train - train.mean(0)) / train.std(0))
    np.testing.assert_allclose(parts.x_test, (test - train.mean(0)) / train.std(0))
    assert parts.y_train.tolist() == [i % 2 for i in order[:36]]
    assert parts.y_test.tolist() == [i % 2 for i in order[38:]]
    published_code = split(load("banknote", tmp_path), train_share=0.95)
    assert published_code.y_train.tolist() == [i % 2 for i in order[:38]]
    assert published_code.y_test.tolist() == parts.y_test.tolist()
    written(tmp_path, "banknote", "".join(f"{i},3,{i % 2}\n" for i in range(9)))
    parts = split(load("banknote", tmp_path), 0.75, 0.25)
    np.testing.assert_array_equal(parts.x_train[:, 1], 0.0)  # a constant column stays finite


def test_a_download_is_verified_cached_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = ABALONE.encode()
    known = replace(SOURCES["abalone"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(SOURCES, "abalone", known)
    asked = serve(monkeypatch, lambda: io.BytesIO(content))
    assert len(load("abalone").features) == len(load("abalone").features) == 4
    assert asked == [known.url]
    cached = tmp_path / "cache" / "foveate" / "abalone" / "abalone.data"
    assert cached.read_bytes() == content
    assert list(cached.parent.iterdir()) == [cached]


class Cut(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise IncompleteRead(b"4,1", 100)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: io.BytesIO(b"<html>moved</html>"), "must have SHA-256 de37cd.*, got "),
        (Cut, "of abalone cannot be fetched from http"),
        (None, r"of abalone cannot be fetched from https://archive\.ics\.uci\.edu/\S+ .*no network"
               ".* --data or FOVEATE_DATA"),
    ],
)  # fmt: skip
def test_a_bad_download_is_one_sentence_and_not_kept(
    answer: Any, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer:
        serve(monkeypatch, answer)
    with pytest.raises(ValueError, match=r"abalone\.data " + error):
        load("abalone")
    assert not (tmp_path / "cache").exists()
    assert all(s.url.startswith("https://archive.ics.uci.edu/") for s in SOURCES.values())


@pytest.mark.parametrize(
    ("name", "text", "options", "error"),
    [
        ("iris", None, {}, r"data set must be one of abalone, .*, got 'iris'"),
        ("car", None, {}, r"car must have car\.data in .*, and it is not there"),
        ("abalone", "M,1,2\nF,1\n", {}, r"rows of one length, got the lengths \[2, 3\]"),
        ("wine", "1,red,2\n", {}, r"must hold numbers where wine has them: .*red"),
        ("banknote", "1,2,0\n3,4,1\n5,6,1\n", {"test_share": 0.2}, r"at most 1, got 0\.9 and 0\.2"),
        ("banknote", "1,2,0\n3,4,1\n5,6,1\n", {"test_share": 0.0}, r"positive .*, got 0\.9 and 0"),
        ("boston", "1 2\n3 4\n", {}, r"split needs a set with classes, got 'boston'"),
    ],
)
def test_bad_requests_and_files(
    name: str, text: str | None, options: Any, error: str, tmp_path: Path
) -> None:
    if text is not None:
        written(tmp_path, name, text)
    with pytest.raises(ValueError, match=error):
        split(load(name, tmp_path), **options)


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of real files, which is not part of the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    folder = Path(os.environ.get("FOVEATE_SHARED", beside)) / "data"
    if not folder.is_dir():
        pytest.skip("real data not found: set FOVEATE_SHARED to a folder with data/")
    return folder


@pytest.mark.records
@pytest.mark.parametrize(
    ("name", "lines", "d", "classes", "train", "test", "exact", "crt_train"),
    [
        ("abalone", 4177, 10, 28, 3967, 208, 0.1827, 3758),
        ("banknote", 1372, 4, 2, 1302, 68, 0.9412, None),
        ("car", 1728, 21, 4, 1640, 86, 0.8605, None),
        ("cmc", 1473, 9, 3, 1398, 73, 0.4932, 1324),
        ("chess", 28056, 40, 18, 26652, 1402, 0.2090, 25249),
    ],
)
def test_the_simplex_papers_published_code_and_the_rows_that_chefs_random_tables_prints(
    name: str, lines: int, d: int, classes: int, train: int, test: int, exact: float,
    crt_train: int | None, real: Path,
) -> None:  # fmt: skip
    data = load(name, real)
    assert data.features.shape == (lines, d)
    assert len(data.classes) == classes
    parts, ours = split(data, train_share=0.95), split(data)
    assert (len(parts.y_train), len(parts.y_test)) == (train, test)
    assert crt_train in (None, len(ours.y_train))
    np.testing.assert_array_equal(ours.y_test, parts.y_test)
    for one in (parts, ours):
        x_train, _, x_test, _ = rows(one, SIGMA[name])
        mean_v = torch.cdist(-x_test[:500], x_train[:2000]).mean()
        assert abs(float(mean_v) - MEAN_V[name]) < 0.06
    assert exact_accuracy(*rows(parts, SIGMA[name]), classes) == pytest.approx(exact, abs=5e-5)


@pytest.mark.records
def test_the_printed_table_tells_the_share_of_training_rows(real: Path) -> None:
    def z(train_share: float) -> float:
        data = rows(split(load("cmc", real), train_share), SIGMA["cmc"])
        sample = positive_features(data, 3, "simplex", blocks=1, repeats=4000, seed=0)
        return float(compare(summary(sample), TABLE_2["cmc"]["simplex"])["z"])

    assert abs(z(0.9)) < 3
    assert z(0.95) < -4


def test_the_real_wine_and_boston(real: Path) -> None:
    wine, boston = load("wine", real), load("boston", real)
    assert wine.features.shape == (178, 13)
    assert np.bincount(wine.labels.astype(int)).tolist() == [59, 71, 48]
    assert boston.features.shape == (506, 13)
    assert boston.labels[0] == 24.0
    for name, source in SOURCES.items():
        path = real / name / source.file
        if source.sha256 and path.is_file():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256, name


@pytest.fixture
def clusters() -> Any:
    """Three overlapping classes in the plane: x_train, y_train, x_test, y_test."""
    rng = np.random.default_rng(0)
    labels = np.arange(180) % 3
    points = np.array([[0.7, 0.0], [-0.7, 0.0], [0.0, 0.9]])[labels]
    points = torch.from_numpy(points + 0.5 * rng.standard_normal((180, 2)))
    classes = torch.from_numpy(labels)
    return points[:120], classes[:120], points[120:], classes[120:]


def test_exact_accuracy_is_that_of_a_plain_loop(clusters: Any) -> None:
    x_train, y_train, x_test, y_test = clusters
    right = 0
    for x, label in zip(x_test.tolist(), y_test.tolist(), strict=True):
        scores = [0.0, 0.0, 0.0]
        for other, c in zip(x_train.tolist(), y_train.tolist(), strict=True):
            scores[c] += math.exp(-0.5 * math.dist(x, other) ** 2)
        right += scores.index(max(scores)) == label
    assert exact_accuracy(*clusters, 3) == pytest.approx(right / 60)
    assert 0.6 < right / 60 < 1.0
    fm = attention.feature_map("positive", 2, 4000, kernel="gaussian").double()
    assert abs(accuracies(fm, 1, *clusters, 3)[0] - right / 60) <= 2 / 60


@pytest.mark.parametrize("name", ["positive", "hyperbolic", "trig"])
def test_draws_in_one_map_equal_draws_apart(name: str, clusters: Any) -> None:
    omega = torch.randn(4 * 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def found(projection: torch.Tensor, draws: int) -> Any:
        m = len(projection)
        fm = attention.feature_map(name, 2, m, kernel="gaussian", projection=projection)
        return accuracies(fm, draws, *clusters, 3)

    apart = np.concatenate([found(part, 1) for part in omega.split(5)])
    np.testing.assert_array_equal(found(omega, 4), apart)
    assert len(set(apart)) > 1


def test_summary_comparison_and_padding() -> None:
    ours = summary(np.array([0.2, 0.4, 0.6]))
    assert ours == {"accuracy": pytest.approx(0.4), "error": pytest.approx(0.2 / math.sqrt(3))}
    near = compare({"accuracy": 0.50, "error": 0.03}, (0.60, 0.04))
    assert near["z"] == pytest.approx(-2.0)
    assert near["within"]
    assert not compare({"accuracy": 0.50, "error": 0.03}, (0.70, 0.04))["within"]
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
    assert classification.CRT_M == 128


@pytest.mark.records
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).standard_normal((81, 4))
    lines = [",".join(map(str, [*row, int(row[0] > 0)])) for row in values]
    (tmp_path / "data_banknote_authentication.txt").write_text("\n".join(lines) + "\n")
    words = ["--repeats", "3", "--crt-repeats", "2", "banknote", "--data", str(tmp_path)]
    result = quick(classification, tmp_path / "out", *words)["sets"]["banknote"]
    text = capsys.readouterr().out
    assert "banknote: d 4, 72 train, 4 test" in text
    assert "figures within 3 combined standard errors, 3 draws" in text
    assert set(result["table_3"]) == set(TABLE_3["banknote"])
    assert set(result["figure_8"]["simplex"]) == {"1", "2"}
    assert set(result["crt_table_1"]) == set(CRT_TABLE_1["banknote"]) & set(attention.available())
    for module in (classification, bandwidths):
        assert module.main(["iris"]) == 2
        assert "set must be one of abalone, " in capsys.readouterr().err


def test_a_curve_over_bandwidths_has_its_best_where_features_are_good(clusters: Any) -> None:
    parts = Split(*(clusters[i].numpy() for i in (0, 1, 2, 3)))
    used = bandwidths.validation("banknote", parts)
    assert (len(used.y_train), len(used.y_test)) == (120, 30)
    found = bandwidths.curve("banknote", parts, 3, [1e-6, 1.0, 30.0], 0)
    assert bandwidths.best(found, "accuracy") == 1.0
    assert found[1]["accuracy"] > found[2]["accuracy"]
    assert found[1]["exact"] == exact_accuracy(*rows(used, 1.0), 3)
