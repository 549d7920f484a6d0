"""Every feature map as a scikit-learn transformer. Needs scikit-learn, which `attention` does not.

from attention.estimators import RandomFeatures

RandomFeatures(n_components=256, sigma="scale").fit_transform(X)   # (n, F) array
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from foveate_extras import needs

with needs("RandomFeatures", "sklearn"):
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

from attention.features import FeatureMap
from attention.joining import joined
from attention.options import check_count, check_positive
from attention.registry import Maker, check_map_options
from attention.registry import feature_map as build_map

SIDES = ("queries", "keys")
RESERVED = ("dim", "num_features", "kernel", "projection", "seed", "heads", "dtype", "device")
POSITIONS = ("key_centers", "query_centers", "shift")
"""Options that are places among the tokens X / sigma."""
SCALE = "scale"
_BLOCK_ENTRIES = 1 << 20
"""Entries of a sparse X that are made dense at once, or of their features."""
_DTYPES = (np.float64, np.float32)


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of the Gaussian or softmax kernel, by the name of their map.

    `transform_queries(X) @ transform_keys(Y).T` estimates exp(-|x-y|^2 / (2 sigma^2)), or
    exp(x.y / sigma^2) for the softmax kernel. Most maps are symmetric: both sides are the same
    function, and `transform` can feed any linear model. Hybrids and complex exponentials are not;
    there `side` says which one `transform` gives.

    `fit` draws the random vectors, and sets the data-dependent parameters of maps that have them,
    with X as queries and as keys. Features are computed in the dtype of the X fitted and returned
    in that of the X transformed, float64 or float32.

    The Gaussian kernel does not change when all rows move alike, but features do, and err more the
    farther rows lie from zero: so the mean of the X fitted is taken from all rows. Not where
    `options` say where among the rows something lies (`shift`, `query_centers`, `key_centers`), nor
    for maps with a kernel of their own, elu and relu, nor for the softmax kernel, which does
    change: centre such data yourself if that is the kernel that you want.

    A sparse X is made dense by blocks of rows, but for `fit` of a map with data-dependent
    parameters, which takes all rows at once.

    Args:
        feature_map: one of `attention.available()`, or a map of your own, as a class or by
            "module:Class". The default errs least for the Gaussian kernel, with F = 2 n_components.
        n_components: m, the number of random vectors. The number of output columns F is a multiple
            of it for most maps, see `feature_map_.output_dim`.
        kernel: "gaussian" or "softmax".
        sigma: bandwidth, > 0: inputs are divided by it. scikit-learn's gamma is 1 / (2 sigma^2).
            "scale" is its gamma="scale", 1 / (d Var X) over all entries of the X fitted, so that
            sigma^2 = d Var X / 2; 1 / 2 where they are all equal.
        projection: one of `attention.available_projections()`, or an array (m, d).
        side: "queries" or "keys".
        random_state: int, numpy RandomState or None; one draw of it seeds the map.
        options: the map's own options, for example {"num_lambda_features": 8} for a hybrid.

    Parameters take effect at the next `fit`; what was fitted stays as it is until then.

    Attributes:
        feature_map_: the fitted `attention.FeatureMap`, of tokens (X - offset_) / sigma_.
        offset_: (d,), what is taken from all rows; zeros where nothing is.
        sigma_: the bandwidth as a number.
        side_: the side that `transform` gives.
        n_features_in_: d.
    """

    feature_map_: FeatureMap
    offset_: NDArray[np.float64]
    sigma_: float
    side_: str
    n_features_in_: int

    def __init__(
        self,
        feature_map: str | Maker = "trig",
        n_components: int = 100,
        *,
        kernel: str = "gaussian",
        sigma: float | str = 1.0,
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
        """Draw the random vectors for X (n, d), dense or sparse. y is ignored.

        Raises ValueError for a parameter that is not allowed or an X that is not finite.
        """
        options = self._checked_options()
        array = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        sigma = _scale(array) if isinstance(self.sigma, str) else float(self.sigma)
        projection: Any = self.projection
        made = build_map(
            self.feature_map,
            self.n_features_in_,
            self.n_components,
            kernel=self.kernel,
            projection=projection,
            seed=seed,
            dtype=torch.float32 if array.dtype == np.float32 else torch.float64,
            device="cpu",
            **options,
        )
        invariant = self.kernel == "gaussian" and not made.own_kernel
        moved = invariant and not any(options.get(name) is not None for name in POSITIONS)
        offset = _mean(array) if moved else np.zeros(self.n_features_in_)
        if type(made).fit is not FeatureMap.fit:
            tokens = torch.cat(list(_tokens(array, offset, sigma, made)))
            try:
                with torch.no_grad():
                    made.fit(tokens, tokens)
            except ValueError as error:
                raise ValueError(f"{error} (X has n_samples={len(tokens)})") from error
        # Together, so that a fit that fails leaves what was fitted before.
        self.feature_map_, self.offset_, self.sigma_, self.side_ = made, offset, sigma, self.side
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """(n, d) -> (n, F), features of the side that `side` named when it was fitted."""
        check_is_fitted(self)
        return self._features(X, self.side_)

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
        array = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False)
        fitted = self.feature_map_
        with torch.no_grad():
            parts = [
                getattr(fitted, side)(tokens)
                for tokens in _tokens(array, self.offset_, self.sigma_, fitted)
            ]
        features = joined(parts, 0)
        return features.numpy().astype(array.dtype, copy=False)

    def _checked_options(self) -> dict[str, Any]:
        if not isinstance(self.side, str) or self.side not in SIDES:
            raise ValueError(f"side must be one of {', '.join(SIDES)}, got {self.side!r}")
        sigma: Any = self.sigma
        if not (isinstance(sigma, str) and sigma == SCALE):
            try:
                check_positive(sigma=sigma)
            except ValueError as error:
                raise ValueError(f"{error}; {SCALE!r} takes it from the data") from None
        check_count("n_components", self.n_components)
        if not isinstance(self.options, Mapping | None):
            raise ValueError(f"options must be a mapping or None, got {self.options!r}")
        options = dict(self.options or {})
        for name in RESERVED:
            if name in options:
                raise ValueError(
                    f"options must hold only the map's own, got {name!r}, which RandomFeatures sets"
                )
        if isinstance(self.feature_map, FeatureMap):
            raise ValueError(
                "feature_map must be a name or a class, as fit makes a map for the columns of X, "
                f"got {self.feature_map!r}"
            )
        check_map_options(self.feature_map, options, RESERVED)
        return options

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _tokens(
    array: Any, offset: NDArray[np.float64], sigma: float, made: FeatureMap
) -> Iterator[Tensor]:
    """(X - offset) / sigma in the map's dtype: all of a dense X at once, a sparse one by blocks."""
    rows = step = array.shape[0]
    if not isinstance(array, np.ndarray):
        step = max(1, _BLOCK_ENTRIES // max(array.shape[1], made.output_dim))
    floating = (buffer.dtype for buffer in made.buffers() if buffer.is_floating_point())
    dtype = next(floating, torch.float64)
    for start in range(0, rows, step):
        part = array[start : start + step]
        dense = part if isinstance(part, np.ndarray) else part.toarray()
        # In float64, since far from zero float32 keeps few digits of the difference; copied,
        # since PyTorch takes no read-only memory.
        tokens = torch.tensor(dense, dtype=torch.float64, device="cpu")
        yield ((tokens - torch.tensor(offset, device="cpu")) / sigma).to(dtype)


def _mean(array: Any) -> NDArray[np.float64]:
    """Mean of the rows, (n, d) dense or sparse -> (d,)."""
    return np.asarray(array.mean(axis=0, dtype=np.float64)).ravel()


def _scale(array: Any) -> float:
    """sigma of scikit-learn's gamma="scale", dense or sparse: sqrt(d Var X / 2)."""
    if not isinstance(array, np.ndarray) and not array.has_canonical_format:
        array = array.copy()
        array.sum_duplicates()
    stored = array if isinstance(array, np.ndarray) else array.data
    entries = math.prod(array.shape)
    mean = float(stored.sum(dtype=np.float64)) / entries
    deviations = np.square(stored - mean, dtype=np.float64).sum()
    variance = float(deviations + (entries - stored.size) * mean**2) / entries
    # Its gamma is 1 where nothing varies, which rounding in the mean must not hide.
    varies = variance > (4 * np.finfo(np.float64).eps * mean) ** 2
    sigma = math.sqrt(array.shape[1] * variance / 2) if varies else math.sqrt(0.5)
    if not math.isfinite(sigma):
        raise ValueError(f"sigma={SCALE!r} needs an X of finite variance, got {variance}")
    return sigma
