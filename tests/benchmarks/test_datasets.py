"""Loaders on small files of the same formats, on stand-ins for the network, and on real files."""

import hashlib
import io
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

from experiments.data.uci import SOURCES, load, split
from experiments.simplex_random_features.classification import (
    compare,
    positive_features,
    rows,
    summary,
)
from experiments.simplex_random_features.classification_published import MEAN_V, SIGMA, TABLE_2
from experiments.simplex_random_features.kernel_regression import exact_accuracy

ABALONE = "M,0.4,0.3,9\nF,0.5,0.1,10\nI,0.6,0.2,9\nM,0.7,0.5,7\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name / SOURCES[name].file
    path.parent.mkdir()
    path.write_bytes(text.encode())
    return path


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(url: str, timeout: float) -> Any:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FOVEATE_DATA", raising=False)


def test_numeric_columns_come_before_one_hot_blocks(tmp_path: Path) -> None:
    written(tmp_path, "abalone", ABALONE)
    data = load("abalone", tmp_path)
    expected = [
        [0.4, 0.3, 0, 0, 1],
        [0.5, 0.1, 1, 0, 0],
        [0.6, 0.2, 0, 1, 0],
        [0.7, 0.5, 0, 0, 1],
    ]
    np.testing.assert_array_equal(data.features, expected)
    assert data.classes == ("10", "7", "9")
    assert data.labels.tolist() == [2, 0, 2, 1]
    assert not data.blank_end


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
def test_each_format(
    name: str, text: str, features: list[list[float]], labels: list[float], tmp_path: Path
) -> None:
    written(tmp_path, name, text)
    data = load(name, tmp_path)
    np.testing.assert_array_equal(data.features, features)
    np.testing.assert_array_equal(data.labels, labels)
    assert (data.classes == ()) == (name == "boston")


def test_categorical_sets_have_no_numeric_columns(tmp_path: Path) -> None:
    row = "usual,proper,complete,1,convenient,convenient,nonprob,{},recommend\n"
    written(tmp_path, "nursery", row.format("a") + row.format("b") + "\n")
    data = load("nursery", tmp_path)
    np.testing.assert_array_equal(data.features, [[1] * 7 + [1, 0], [1] * 7 + [0, 1]])
    assert data.blank_end
    assert len(split(data, 0.5, 0.5).x_train) == 1


def test_a_file_straight_in_the_folder_and_the_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abalone.data").write_text(ABALONE)
    assert len(load("abalone", tmp_path).features) == 4
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))
    assert len(load("abalone").features) == 4


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


def test_a_constant_training_column_stays_finite(tmp_path: Path) -> None:
    written(tmp_path, "banknote", "".join(f"{i},3,{i % 2}\n" for i in range(9)))
    parts = split(load("banknote", tmp_path), 0.75, 0.25)
    np.testing.assert_array_equal(parts.x_train[:, 1], 0.0)


class Response(io.BytesIO):
    """What urlopen gives: a context manager with `read`."""


def test_a_download_is_verified_cached_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = ABALONE.encode()
    known = replace(SOURCES["abalone"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(SOURCES, "abalone", known)
    asked: list[str] = []

    def serve(url: str, timeout: float) -> Response:
        asked.append(url)
        return Response(content)

    monkeypatch.setattr(urllib.request, "urlopen", serve)
    assert len(load("abalone").features) == len(load("abalone").features) == 4
    assert asked == [known.url]
    cached = tmp_path / "cache" / "foveate" / "abalone" / "abalone.data"
    assert cached.read_bytes() == content
    assert list(cached.parent.iterdir()) == [cached]


def test_a_download_that_differs_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda url, timeout: Response(b"<html>moved</html>")
    )
    with pytest.raises(ValueError, match=r"abalone\.data must have SHA-256 de37cd.*, got "):
        load("abalone")
    assert not (tmp_path / "cache").exists()


def test_a_download_that_is_cut_is_one_sentence_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(Response):
        def read(self, size: int | None = -1) -> bytes:
            raise IncompleteRead(b"4,1", 100)

    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Cut())
    with pytest.raises(ValueError, match=r"abalone\.data of abalone cannot be fetched from http"):
        load("abalone")
    assert not (tmp_path / "cache").exists()


def test_without_network_the_error_names_file_address_and_the_way_out() -> None:
    message = (
        r"krkopt\.data of chess cannot be fetched from https://archive\.ics\.uci\.edu/\S+ "
        r".*no network.* --data or FOVEATE_DATA"
    )
    with pytest.raises(ValueError, match=message):
        load("chess")


def test_every_home_is_an_https_address_of_the_uci_archive() -> None:
    assert all(s.url.startswith("https://archive.ics.uci.edu/") for s in SOURCES.values())


def test_bad_requests_and_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data set must be one of abalone, .*, got 'iris'"):
        load("iris")
    with pytest.raises(ValueError, match=r"car must have car\.data in .*, and it is not there"):
        load("car", tmp_path)
    written(tmp_path, "abalone", "M,1,2\nF,1\n")
    with pytest.raises(ValueError, match=r"must have rows of one length, got the lengths \[2, 3\]"):
        load("abalone", tmp_path)
    written(tmp_path, "wine", "1,red,2\n")
    with pytest.raises(ValueError, match=r"must hold numbers where wine has them: .*red"):
        load("wine", tmp_path)
    written(tmp_path, "banknote", "1,2,0\n3,4,1\n5,6,1\n")
    with pytest.raises(ValueError, match=r"a sum of at most 1, got 0\.9 and 0\.2"):
        split(load("banknote", tmp_path), test_share=0.2)
    with pytest.raises(ValueError, match=r"must be positive .*, got 0\.9 and 0\.0"):
        split(load("banknote", tmp_path), test_share=0.0)
    written(tmp_path, "boston", "1 2\n3 4\n")
    with pytest.raises(ValueError, match=r"split needs a set with classes, got 'boston'"):
        split(load("boston", tmp_path))


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of real files, which is not part of the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    folder = Path(os.environ.get("FOVEATE_SHARED", beside)) / "data"
    if not folder.is_dir():
        pytest.skip("real data not found: set FOVEATE_SHARED to a folder with data/")
    return folder


@pytest.mark.parametrize(
    ("name", "lines", "d", "classes", "train", "test", "exact"),
    [
        ("abalone", 4177, 10, 28, 3967, 208, 0.1827),
        ("banknote", 1372, 4, 2, 1302, 68, 0.9412),
        ("car", 1728, 21, 4, 1640, 86, 0.8605),
        ("cmc", 1473, 9, 3, 1398, 73, 0.4932),
        ("chess", 28056, 40, 18, 26652, 1402, 0.2090),
    ],
)
def test_the_simplex_papers_published_code(
    name: str, lines: int, d: int, classes: int, train: int, test: int, exact: float, real: Path
) -> None:
    data = load(name, real)
    assert data.features.shape == (lines, d)
    assert len(data.classes) == classes
    parts = split(data, train_share=0.95)
    assert (len(parts.y_train), len(parts.y_test)) == (train, test)
    x_train, x_test = (torch.from_numpy(x) * SIGMA[name] for x in (parts.x_train, parts.x_test))
    mean_v = torch.cdist(-x_test[:500], x_train[:2000]).mean()
    assert abs(float(mean_v) - MEAN_V[name]) < 0.06
    y_train, y_test = torch.from_numpy(parts.y_train), torch.from_numpy(parts.y_test)
    accuracy = exact_accuracy(x_train, y_train, x_test, y_test, classes)
    assert accuracy == pytest.approx(exact, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [("abalone", 3758, 208), ("cmc", 1324, 73), ("chess", 25249, 1402)],
)
def test_the_training_rows_are_as_many_as_chefs_random_tables_prints(
    name: str, train: int, test: int, real: Path
) -> None:
    data = load(name, real)
    parts, published_code = split(data), split(data, train_share=0.95)
    assert (len(parts.y_train), len(parts.y_test)) == (train, test)
    np.testing.assert_array_equal(parts.y_test, published_code.y_test)
    scaled = torch.from_numpy(parts.x_test[:500]), torch.from_numpy(parts.x_train[:2000])
    mean_v = torch.cdist(-scaled[0] * SIGMA[name], scaled[1] * SIGMA[name]).mean()
    assert abs(float(mean_v) - MEAN_V[name]) < 0.06


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


@pytest.mark.parametrize("name", sorted(name for name, s in SOURCES.items() if s.sha256))
def test_the_known_hashes_are_those_of_the_real_files(name: str, real: Path) -> None:
    path = real / name / SOURCES[name].file
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the folder")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SOURCES[name].sha256
