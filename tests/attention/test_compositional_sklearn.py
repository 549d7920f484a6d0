"""Compositional features as a scikit-learn transformer."""

import math

import numpy as np
import pytest

from attention import compositional as c
from attention.compositional import Exponential, Gaussian, ReLU, Skeleton


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize("options", [{}, {"layout": "phase", "budget": "distinct"}], ids=str)
def test_check_estimator(options):
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(c.CompositionalFeatures(n_components=20, **options))


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def digits_skeleton() -> Skeleton:
    return c.image_skeleton(
        8, 8, [(3, 1, Exponential(0.25)), (2, 2, ReLU())], ReLU(), scale=math.pi / 32
    )


@pytest.mark.parametrize(
    "options",
    [{"n_components": 200, "budget": "distinct"}, {"n_components": 800, "layout": "phase"}],
    ids=str,
)
def test_pipeline_classifies_digits(digits, options):
    """A floor far above chance (10 %) and below what either setting reaches (91 % and more)."""
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    x, y = digits
    features = c.CompositionalFeatures(digits_skeleton(), random_state=0, **options)
    model = make_pipeline(features, RidgeClassifier(1e-4)).fit(x[:1000], y[:1000])
    assert model.score(x[1000:], y[1000:]) > 0.85


def test_default_skeleton_estimates_its_kernel(digits):
    x = digits[0][:100]
    model = c.CompositionalFeatures(n_components=20_000, random_state=0).fit(x)
    z = model.transform(x)
    exact = model.skeleton_.gram(x)
    assert len(model.skeleton_.inputs) == 8
    assert np.abs(z @ z.T - exact).max() < 0.05
    block = model.skeleton_.inputs["columns_0_7"]
    assert isinstance(block, Gaussian)
    assert block.a**-2 == pytest.approx(x[:, :8].var(0).sum())


def test_transformer_dtypes_seeds_and_names(digits):
    x = digits[0][:50]
    data = digits_skeleton().to_dict()
    model = c.CompositionalFeatures(data, n_components=300, random_state=3).fit(x)
    again = c.CompositionalFeatures(digits_skeleton(), n_components=300, random_state=3).fit(x)
    z = model.transform(x)
    np.testing.assert_array_equal(z, again.transform(x))
    assert not np.array_equal(z[:, :5], again.set_params(random_state=4).fit_transform(x)[:, :5])
    single_precision = model.transform(x.astype(np.float32))
    assert single_precision.dtype == np.float32
    np.testing.assert_allclose(single_precision, z, atol=1e-5)
    names = model.get_feature_names_out()
    assert len(names) == z.shape[1] == 2 * len(model.features_)
    assert names[0] == "compositionalfeatures0"
    assert model.n_features_in_ == 64
    whole = c.CompositionalFeatures(data, n_components=300, random_state=3, deduplicate=False)
    long = whole.fit_transform(x)
    assert long.shape[1] == 600 > z.shape[1]
    np.testing.assert_allclose(long @ long.T, z @ z.T, rtol=1e-12)
