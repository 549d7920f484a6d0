"""Every feature map as a scikit-learn transformer. Needs scikit-learn, which `attention` does not.

from attention.estimators import RandomFeatures

RandomFeatures("positive", n_components=256, sigma=2.0).fit_transform(X)   # (n, F) array
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from attention.features import FeatureMap
from attention.options import check_count, check_positive
from attention.registry import check_map_options
from attention.registry import feature_map as build_map

SIDES = ("queries", "keys")
RESERVED = ("dim", "num_features", "kernel", "projection", "seed", "heads", "dtype", "device")


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of the Gaussian or softmax kernel, by the name of their map.

    `transform_queries(X) @ transform_keys(Y).T` estimates exp(-|x-y|^2 / (2 sigma^2)), or
    exp(x.y / sigma^2) for the softmax kernel. Most maps are symmetric: both sides are the same
    function, and `transform` can feed any linear model. Hybrids and complex exponentials are not;
    there `side` says which one `transform` gives.

    `fit` draws the random vectors, and sets the data-dependent parameters of maps that have them,
    with X as queries and as keys. Features are computed in the dtype of the X fitted and returned
    in that of the X transformed, float64 or float32.

    Args:
        feature_map: one of `attention.available()`.
        n_components: m, the number of random vectors. The number of output columns F is a multiple
            of it for most maps, see `feature_map_.output_dim`.
        kernel: "gaussian" or "softmax".
        sigma: bandwidth, > 0: inputs are divided by it. scikit-learn's gamma is 1 / (2 sigma^2).
        projection: one of `attention.available_projections()`, or an array (m, d).
        side: "queries" or "keys".
        random_state: int, numpy RandomState or None; one draw of it seeds the map.
        options: the map's own options, for example {"num_lambda_features": 8} for a hybrid.

    Attributes:
        feature_map_: the fitted `attention.FeatureMap`.
        n_features_in_: d.
    """

    feature_map_: FeatureMap
    n_features_in_: int

    def __init__(
        self,
        feature_map: str = "positive",
        n_components: int = 100,
        *,
        kernel: str = "gaussian",
        sigma: float = 1.0,
        projection: str | ArrayLike = "orthogonal",
        side: str = "queries",
        random_state: int | np.random.RandomState | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.feature_map = feature_map
        self.n_components = n_components
        self.kernel = kernel
        self.sigma = sigma
        self.projection = projection
        self.side = side
        self.random_state = random_state
        self.options = options

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Draw the random vectors for X (n, d). y is ignored.

        Raises ValueError for a parameter that is not allowed or an X that is not finite.
        """
        options = self._checked_options()
        array = validate_data(self, X, dtype=(np.float64, np.float32))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._dtype = torch.float32 if array.dtype == np.float32 else torch.float64
        tokens = self._tokens(array)
        self.feature_map_ = build_map(
            self.feature_map,
            self.n_features_in_,
            self.n_components,
            kernel=self.kernel,
            projection=self.projection,
            seed=seed,
            dtype=self._dtype,
            device="cpu",
            **options,
        )
        try:
            with torch.no_grad():
                self.feature_map_.fit(tokens, tokens)
        except ValueError as error:
            raise ValueError(f"{error} (X has n_samples={len(tokens)})") from error
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """(n, d) -> (n, F), features of the side that `side` names."""
        return self._features(X, self.side)

    def transform_queries(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """(n, d) -> (n, F), the queries' side."""
        return self._features(X, "queries")

    def transform_keys(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """(n, d) -> (n, F), the keys' side; equal to `transform_queries` for symmetric maps."""
        return self._features(X, "keys")

    @property
    def _n_features_out(self) -> int:
        """F, the name that scikit-learn's column-name mixin reads."""
        return self.feature_map_.output_dim

    def _features(self, X: ArrayLike, side: str) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        array = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        tokens = self._tokens(array)
        with torch.no_grad():
            features = getattr(self.feature_map_, side)(tokens)
        return features.numpy().astype(array.dtype, copy=False)

    def _tokens(self, array: NDArray[np.floating[Any]]) -> Tensor:
        """X / sigma in the dtype fitted; copied, since PyTorch takes no read-only memory."""
        return torch.tensor(array, dtype=self._dtype, device="cpu") / self.sigma

    def _checked_options(self) -> dict[str, Any]:
        if self.side not in SIDES:
            raise ValueError(f"side must be one of {', '.join(SIDES)}, got {self.side!r}")
        check_positive(sigma=self.sigma)
        check_count("n_components", self.n_components)
        if not isinstance(self.options, Mapping | None):
            raise ValueError(f"options must be a mapping or None, got {self.options!r}")
        options = dict(self.options or {})
        for name in RESERVED:
            if name in options:
                raise ValueError(
                    f"options must hold only the map's own, got {name!r}, which RandomFeatures sets"
                )
        check_map_options(self.feature_map, options, RESERVED)
        return options

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
