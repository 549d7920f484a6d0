"""The scikit-learn face: its own checks for every map, and agreement with the maps themselves."""

import tracemalloc
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

import attention

pytest.importorskip("sklearn")

from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from attention.estimators import RandomFeatures
from tests.attention.cases import rejects
from tests.attention.custom_maps import Taylor

CHECKED = ("clustered_hybrid", "poisson_plus")
"""Of what is fitted: clusters, and a shift."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in CHECKED else pytest.mark.slow)
        for name in attention.available()
    ],
)
def test_scikit_learn_checks(name: str) -> None:
    check_estimator(RandomFeatures(name, num_features=3, random_state=0), on_skip=None)


def test_the_default_parameters_pass_scikit_learn_checks() -> None:
    check_estimator(RandomFeatures(), on_skip=None)


@pytest.fixture
def rows() -> np.ndarray:
    return 0.4 * np.random.default_rng(0).standard_normal((12, 4))


@pytest.mark.parametrize("name", attention.available())
def test_both_sides_are_those_of_the_map(name: str, rows: np.ndarray) -> None:
    features = RandomFeatures(name, num_features=5, sigma=2.0, random_state=0).fit(rows)
    tokens = torch.tensor((rows - features.offset_) / 2.0)
    fm = features.feature_map_
    middle = 0 if fm.own_kernel else rows.mean(0)
    np.testing.assert_allclose(features.offset_, np.broadcast_to(middle, 4), atol=1e-15)
    np.testing.assert_array_equal(features.transform_queries(rows), fm.queries(tokens).numpy())
    np.testing.assert_array_equal(features.transform_keys(rows), fm.keys(tokens).numpy())
    np.testing.assert_array_equal(features.transform(rows), features.transform_queries(rows))
    features.set_params(side="keys").fit(rows)
    np.testing.assert_array_equal(features.transform(rows), features.transform_keys(rows))
    assert features.n_features_in_ == 4
    assert features.transform(rows).shape == (12, fm.output_dim)
    assert len(features.get_feature_names_out()) == fm.output_dim


def test_random_state_decides_the_draw_and_nothing_global_is_seeded(rows: np.ndarray) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (
        RandomFeatures(random_state=seed).fit_transform(rows) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(torch_state, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002
    shared = np.random.RandomState(1)
    drawn = [RandomFeatures(random_state=shared).fit_transform(rows) for _ in range(2)]
    assert not np.array_equal(*drawn)


def test_float32_is_kept_and_agrees_with_float64(rows: np.ndarray) -> None:
    single = RandomFeatures("positive", random_state=0).fit(rows.astype(np.float32))
    double = RandomFeatures("positive", random_state=0).fit(rows)
    assert single.transform(rows.astype(np.float32)).dtype == np.float32
    assert single.transform(rows).dtype == np.float64
    np.testing.assert_allclose(single.transform(rows), double.transform(rows), rtol=1e-5)


@pytest.mark.parametrize("name", attention.available())
def test_moving_all_rows_changes_no_feature_of_the_gaussian_kernel(
    name: str, rows: np.ndarray
) -> None:
    features = RandomFeatures(name, num_features=5, random_state=0)
    here = features.fit_transform(rows)
    if features.feature_map_.own_kernel:
        assert not np.allclose(features.fit_transform(rows + 50), here)
        return
    np.testing.assert_allclose(features.fit_transform(rows + 50), here, rtol=1e-9, atol=1e-12)
    far = (rows + 2.0**12).astype(np.float32)
    near = (far.astype(np.float64) - 2.0**12).astype(np.float32)
    np.testing.assert_allclose(
        features.fit_transform(far), features.fit_transform(near), rtol=1e-3, atol=1e-5
    )


def test_the_softmax_kernel_and_places_given_are_not_moved(rows: np.ndarray) -> None:
    for features in (
        RandomFeatures("positive", kernel="softmax", random_state=0),
        RandomFeatures("poisson_plus", options={"shift": np.full(4, 1.0)}, random_state=0),
        RandomFeatures("clustered_hybrid", options={"key_centers": np.ones((2, 4))}),
    ):
        np.testing.assert_array_equal(features.fit(rows + 3).offset_, np.zeros(4))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_sigma_scale_is_that_of_scikit_learns_gamma_scale(kind: Any, rows: np.ndarray) -> None:
    gamma = 1 / (4 * rows.var())
    features = RandomFeatures(sigma="scale", random_state=0).fit(kind(rows))
    assert features.sigma_ == pytest.approx((2 * gamma) ** -0.5, rel=1e-12)
    for value in (0.1, 1.0, -3e7):
        constant = RandomFeatures(sigma="scale").fit(kind(np.full((5, 3), value)))
        assert constant.sigma_ == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(
    ("name", "kind"), list(zip(attention.available(), cycle([sparse.csr_matrix, sparse.coo_array])))
)
def test_sparse_rows_have_the_features_of_dense_ones(
    name: str, kind: Any, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = np.where(rows > 0.2, rows, 0)
    dense = RandomFeatures(name, num_features=5, sigma="scale", random_state=0).fit(few)
    monkeypatch.setattr("attention.estimators._BLOCK_ENTRIES", 200)
    features = clone(dense).fit(kind(few))
    np.testing.assert_allclose(features.offset_, dense.offset_, atol=1e-15)
    for side in ("transform", "transform_queries", "transform_keys"):
        ours = getattr(features, side)(kind(few))
        np.testing.assert_allclose(ours, getattr(dense, side)(few), rtol=1e-9, atol=1e-12)


def test_sparse_rows_are_never_dense_all_at_once() -> None:
    wide = sparse.random(3000, 3000, density=1e-4, format="csr", random_state=0)  # 72 MB dense
    tracemalloc.start()
    try:
        features = RandomFeatures(n_components=4, sigma="scale", projection="iid").fit(wide)
        assert features.transform(wide).shape == (3000, 4)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "parameters",
    [
        {"sigma": 5.0},
        {"sigma": "scale"},
        {"side": "keys"},
        {"side": "nonsense"},
        {"kernel": "softmax"},
        {"feature_map": "trig", "options": None},
        {"n_components": 2},
        {"n_components": 0},
        {"projection": "iid"},
        {"random_state": 3},
    ],
)
def test_parameters_set_after_fit_wait_for_the_next_one(
    parameters: dict[str, Any], rows: np.ndarray
) -> None:
    features = RandomFeatures(
        "angular_hybrid", 60, random_state=0, options={"base": ["oprf", "trig"]}
    )
    before = features.fit_transform(rows)
    features.set_params(**parameters)
    np.testing.assert_array_equal(features.transform(rows), before)
    assert len(features.get_feature_names_out()) == before.shape[1]
    if "nonsense" in parameters.values() or 0 in parameters.values():
        rejects("must be", features.fit, rows)
        np.testing.assert_array_equal(features.transform(rows), before)
    else:
        assert not np.array_equal(features.fit_transform(rows), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"feature_map": "cosine"}, "feature map must be one of .*positive.*, got 'cosine'"),
        ({"n_components": 0}, "n_components must be at least 1, got 0"),
        ({"n_components": 3.5}, "n_components must be an integer, got 3.5"),
        ({"projection": None}, "projection must be a tensor or one of .*, got None"),
        ({"sigma": "1"}, "sigma must be a positive finite number, got '1'; 'scale' takes it from"),
        ({"options": 3}, "options must be a mapping or None, got 3"),
        ({"kernel": "rbf"}, "kernel must be .*, got 'rbf'"),
        ({"gamma": 0.0}, "gamma must be a positive finite number, got 0.0"),
        ({"gamma": 0.5, "sigma": 2.0}, "sigma and gamma set the same bandwidth, got sigma=2.0"),
        ({"num_features": 0}, "num_features must be at least 1, got 0"),
        ({"sigma": 0.0}, "sigma must be a positive finite number, got 0.0"),
        ({"sigma": float("inf")}, "sigma must be a positive finite number, got inf"),
        ({"side": "values"}, "side must be one of queries, keys, got 'values'"),
        ({"options": {"seed": 3}}, "options must be those of the feature map, got 'seed'"),
        ({"options": {"depth": 3}}, "trig takes no options, got 'depth'"),
        (
            {"feature_map": "complex_exponential", "options": {"depth": 3}},
            "complex_exponential takes the options A, complex_a, got 'depth'",
        ),
        ({"projection": np.ones((3, 3))}, r"projection must have shape \(3, 4\)"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str, rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match=message):
        RandomFeatures(**parameters).fit(rows)


def test_a_custom_map() -> None:
    X = np.random.default_rng(0).normal(size=(6, 3))
    for given in (Taylor, "tests.attention.custom_maps:Taylor"):
        model = clone(attention.RandomFeatures(given, kernel="softmax"))
        products = X @ X.T
        features = model.fit_transform(X)
        np.testing.assert_allclose(features @ features.T, 1 + products + products**2 / 2)
    with pytest.raises(
        ValueError, match=r"must be a name or a class, since fit creates .*, got Taylor"
    ):
        attention.RandomFeatures(Taylor(3)).fit(X)


@pytest.mark.parametrize("name", attention.available())
def test_n_components_are_columns_and_gamma_is_scikit_learns(name: str, rows: np.ndarray) -> None:
    features = RandomFeatures(name, n_components=90, gamma=0.08, random_state=0).fit(rows)
    columns = features.transform(rows).shape[1]
    more = RandomFeatures(
        name, num_features=features.feature_map_.num_features + 1, random_state=0
    ).fit(rows)
    assert columns <= 90 < more.transform(rows).shape[1] or name in ("elu", "quadratic")
    assert columns == 90 or name in (
        "angular_hybrid",
        "gaussian_hybrid",
        "clustered_hybrid",
        "elu",
        "harmonic",
        "quadratic",
    )
    assert features.sigma_ == pytest.approx(2.5)


def test_pipelines_search_its_parameters() -> None:
    """And name its columns."""
    pytest.importorskip("pandas")
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    model = make_pipeline(StandardScaler(), RandomFeatures(random_state=0), Ridge(0.1))
    model.set_output(transform="pandas")
    grid = {"randomfeatures__gamma": [1e-4, 0.5], "randomfeatures__n_components": [2, 80]}
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_params_ == {
        "randomfeatures__gamma": 0.5,
        "randomfeatures__n_components": 80,
    }
    features = search.best_estimator_[:-1]
    frame = features.transform(X)
    assert list(frame.columns[:2]) == ["randomfeatures0", "randomfeatures1"]
    assert frame.shape == (80, 80)
    assert set(frame.dtypes) == {np.dtype(np.float32)}
    kernel = rbf_kernel(features[0].transform(X), gamma=0.5)
    many = RandomFeatures(n_components=20000, gamma=0.5, random_state=0)
    estimate = many.fit_transform(features[0].transform(X))
    assert abs(estimate @ estimate.T - kernel).max() < 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_of_rows_are_those_of_the_whole(
    dtype: type[np.floating[Any]], rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RandomFeatures(random_state=0).fit(rows.astype(dtype))
    expected = whole.transform(rows.astype(dtype))
    monkeypatch.setattr("attention.estimators._BLOCK_ENTRIES", 500)
    np.testing.assert_allclose(whole.transform(rows.astype(dtype)), expected, atol=1e-6)
    frozen = rows.astype(dtype)[::-1]
    frozen.setflags(write=False)
    np.testing.assert_allclose(whole.transform(frozen), expected[::-1], atol=1e-6)
