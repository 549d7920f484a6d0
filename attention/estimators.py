"""Feature maps as scikit-learn transformers. This module needs scikit-learn; `attention` does not.

from attention.estimators import RandomFeatures

RandomFeatures(n_components=256, sigma="scale").fit_transform(X)   # (n, F) array
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch

from foveate_extras import needs

with needs("RandomFeatures", "sklearn"):
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

from attention.features import FeatureMap, TrigFeatures
from attention.options import check_count, check_positive
from attention.registry import Maker, check_map_options
from attention.registry import feature_map as build_map

SIDES = ("queries", "keys")
RESERVED = ("dim", "num_features", "kernel", "projection", "seed", "heads", "dtype", "device")
POSITIONS = ("key_centers", "query_centers", "shift")
"""Options that are positions in the space of X / sigma."""
SCALE = "scale"
_BLOCK_ENTRIES = 1 << 17
"""Number of entries of X, or of its features, that are processed at once: what fits a cache, and
all of a sparse X that is ever dense."""
_DTYPES = (np.float64, np.float32)


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of the Gaussian or softmax kernel as a scikit-learn transformer.

    `transform_queries(X) @ transform_keys(Y).T` estimates exp(-|x-y|^2 / (2 sigma^2)), or exp(x.y /
    sigma^2) for the softmax kernel. Most maps are symmetric: both methods are the same function,
    and `transform` can feed any linear model. Hybrids and complex exponentials are not symmetric;
    for them `side` selects the side that `transform` returns.

    `fit` draws the random vectors and sets data-dependent parameters, with X as both queries and
    keys. Features are computed in the dtype of the X passed to `fit` and returned in the dtype of
    the X passed to `transform`, float64 or float32.

    The Gaussian kernel is invariant to translations, but the errors of the features grow with the
    distance of the rows from zero. The mean of the X passed to `fit` is therefore subtracted from
    all rows, unless `options` contain positions in the data (`shift`, `query_centers`,
    `key_centers`), the map has a custom kernel (elu, relu), or the kernel is softmax, which is not
    invariant. Centre such data yourself if you want a kernel of centred data.

    A sparse X is converted to dense blocks of rows, except by `fit` of a map with data-dependent
    parameters, which needs all rows at once.

    Args:
        feature_map: one of `attention.available()`, or a custom map as a class or as
            "module:Class". The default has the smallest error for the Gaussian kernel.
        n_components: number of output columns, as in scikit-learn. The map has the largest number
            of random vectors whose features fit, at least one: "trig" has two columns per vector,
            and one column fewer than an odd number. Maps without random vectors ignore it.
        kernel: "gaussian" or "softmax".
        sigma: bandwidth, > 0: inputs are divided by it. "scale" corresponds to gamma="scale", 1 /
            (d Var X) over all entries of the X passed to `fit`, so that sigma^2 = d Var X / 2, or 1
            / 2 if all entries are equal.
        gamma: 1 / (2 sigma^2), > 0, or "scale", as in scikit-learn; in place of sigma.
        projection: one of `attention.available_projections()`, or an array (m, d).
        side: "queries" or "keys".
        random_state: int, numpy RandomState or None; one draw from it seeds the map.
        options: further options of the map, for example {"num_lambda_features": 8} for a hybrid.
        num_features: m, the number of random vectors, in place of n_components.

    A change of parameters takes effect at the next `fit`.

    Attributes:
        feature_map_: the fitted `attention.FeatureMap`, of tokens (X - offset_) / sigma_.
        offset_: (d,), the offset subtracted from all rows; zeros if none is.
        sigma_: the bandwidth.
        side_: the side that `transform` returns.
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
        gamma: float | str | None = None,
        num_features: int | None = None,
    ) -> None:
        self.feature_map = feature_map
        self.n_components = n_components
        self.kernel = kernel
        self.sigma = sigma
        self.projection = projection
        self.side = side
        self.random_state = random_state
        self.options = options
        self.gamma = gamma
        self.num_features = num_features

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit the map to X (n, d), dense or sparse. y is ignored.

        Raises ValueError for an invalid parameter or an X that is not finite.
        """
        options = self._checked_options()
        array = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        sigma = self._bandwidth(array)
        dtype = torch.float32 if array.dtype == np.float32 else torch.float64
        made = self._map(seed, dtype, options)
        invariant = self.kernel == "gaussian" and not made.own_kernel
        moved = invariant and not any(options.get(name) is not None for name in POSITIONS)
        offset = _mean(array) if moved else np.zeros(self.n_features_in_)
        if type(made).fit is not FeatureMap.fit:
            tokens = torch.from_numpy(np.concatenate(list(_tokens(array, offset, sigma, made))))
            try:
                with torch.no_grad():
                    made.fit(tokens, tokens)
            except ValueError as error:
                raise ValueError(f"{error} (X has n_samples={len(tokens)})") from error
        # Assigned together, so that a failing fit keeps the previous state.
        self.feature_map_, self.offset_, self.sigma_, self.side_ = made, offset, sigma, self.side
        return self

    def _bandwidth(self, array: Any) -> float:
        given = self.sigma if self.gamma is None else self.gamma
        if isinstance(given, str):
            return _scale(array)
        return float(given) if self.gamma is None else math.sqrt(0.5 / float(given))

    def _map(self, seed: int, dtype: torch.dtype, options: dict[str, Any]) -> FeatureMap:
        """Create the map with the largest number of random vectors that n_components allows."""

        def build(num_features: int, device: str = "cpu") -> FeatureMap:
            projection: Any = self.projection
            return build_map(
                self.feature_map,
                self.n_features_in_,
                num_features,
                kernel=self.kernel,
                projection=projection,
                seed=seed,
                dtype=dtype,
                device=device,
                **options,
            )

        if self.num_features is not None:
            return build(self.num_features)
        if np.ndim(self.projection) == 2:  # the number of given vectors
            return build(np.shape(self.projection)[0])
        # The number of columns is a linear function of the number of vectors.
        count = self.n_components
        first, second = (build(m, "meta").output_dim for m in (count, 2 * count))
        if first == second:
            return build(count)
        return build(max(1, count - math.ceil((first - count) * count / (second - first))))

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return features (n, F) of X (n, d) on the side that `side` selected at `fit`."""
        return self._features(X, None)

    def transform_queries(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return query features (n, F) of X (n, d)."""
        return self._features(X, "queries")

    def transform_keys(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return key features (n, F) of X (n, d); equal to `transform_queries` for symmetric
        maps."""
        return self._features(X, "keys")

    @property
    def _n_features_out(self) -> int:
        """F, the attribute that scikit-learn's column-name mixin reads."""
        return self.feature_map_.output_dim

    def _features(self, X: ArrayLike, side: str | None) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        array = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False)
        fitted, start = self.feature_map_, 0
        features = np.empty((array.shape[0], fitted.output_dim), array.dtype)
        for tokens in _tokens(array, self.offset_, self.sigma_, fitted):
            block = features[start : start + len(tokens)]
            if type(fitted) is TrigFeatures and fitted.kernel == "gaussian":
                _write_waves(fitted, tokens, block)
            else:
                with torch.no_grad():
                    compute = getattr(fitted, side or self.side_)
                    block[...] = compute(torch.from_numpy(tokens)).numpy()
            start += len(tokens)
        return features

    def _checked_options(self) -> dict[str, Any]:
        if not isinstance(self.side, str) or self.side not in SIDES:
            raise ValueError(f"side must be one of {', '.join(SIDES)}, got {self.side!r}")
        if self.gamma is not None and self.sigma != 1.0:
            raise ValueError(
                f"sigma and gamma set the same bandwidth, got sigma={self.sigma!r} and "
                f"gamma={self.gamma!r}"
            )
        name = "sigma" if self.gamma is None else "gamma"
        bandwidth: Any = getattr(self, name)
        if not (isinstance(bandwidth, str) and bandwidth == SCALE):
            try:
                check_positive(**{name: bandwidth})
            except ValueError as error:
                raise ValueError(f"{error}; {SCALE!r} takes it from the data") from None
        check_count("n_components", self.n_components)
        if self.num_features is not None:
            check_count("num_features", self.num_features)
        if not isinstance(self.options, Mapping | None):
            raise ValueError(f"options must be a mapping or None, got {self.options!r}")
        options = dict(self.options or {})
        for name in RESERVED:
            if name in options:
                raise ValueError(
                    f"options must be those of the feature map, got {name!r}, set by RandomFeatures"
                )
        if isinstance(self.feature_map, FeatureMap):
            raise ValueError(
                "feature_map must be a name or a class, since fit creates the map for X, "
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
) -> Iterator[NDArray[np.floating[Any]]]:
    """Yield (X - offset) / sigma in the map's dtype, in blocks of rows."""
    rows = array.shape[0]
    step = max(1, _BLOCK_ENTRIES // max(array.shape[1], made.output_dim))
    floating = (buffer.dtype for buffer in made.buffers() if buffer.is_floating_point())
    dtype = np.float32 if next(floating, None) == torch.float32 else np.float64
    # The whole offset, since float32 loses digits of the difference far from zero.
    near = offset.astype(np.float32)
    rest = (offset - near).astype(np.float32)
    for start in range(0, rows, step):
        part = array[start : start + step]
        dense = part if isinstance(part, np.ndarray) else part.toarray()
        if dense.dtype == dtype == np.float32:
            tokens = dense - near
            tokens -= rest
            tokens /= np.float32(sigma)
            yield tokens
            continue
        tokens = dense.astype(np.float64)
        tokens -= offset
        tokens /= sigma
        yield tokens.astype(dtype, copy=False)


def _write_waves(
    made: TrigFeatures, tokens: NDArray[np.floating[Any]], features: NDArray[np.floating[Any]]
) -> None:
    """Write the features of the Gaussian kernel (n, 2 m), in fewer passes than `made.queries`.

    Sines of NumPy are faster in float32, those of PyTorch in float64.
    """
    omega = made.omega
    assert omega is not None
    sines, cosines = features[:, : made.num_features], features[:, made.num_features :]
    if tokens.dtype == np.float32:
        projections = tokens @ omega.numpy().T
        np.sin(projections, out=sines, casting="same_kind")
        np.cos(projections, out=cosines, casting="same_kind")
    else:
        same = torch.from_numpy(tokens) @ omega.mT
        sines[...] = same.sin().numpy()
        cosines[...] = same.cos_().numpy()
    features *= math.exp(-0.5 * math.log(made.num_features))


def _mean(array: Any) -> NDArray[np.float64]:
    """Return the mean of the rows, (n, d) dense or sparse -> (d,)."""
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
    # scikit-learn's gamma is 1 for constant data, which rounding in the mean must not hide.
    varies = variance > (4 * np.finfo(np.float64).eps * mean) ** 2
    sigma = math.sqrt(array.shape[1] * variance / 2) if varies else math.sqrt(0.5)
    if not math.isfinite(sigma):
        raise ValueError(f"sigma={SCALE!r} needs an X of finite variance, got {variance}")
    return sigma
