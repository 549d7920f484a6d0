"""Compositional random features as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from foveate_extras import needs

with needs("CompositionalFeatures", "sklearn"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

from attention.compositional.activations import ReLU
from attention.compositional.arrays import NDArray, np
from attention.compositional.characters import Gaussian
from attention.compositional.dedup import deduplicate
from attention.compositional.features import LAYOUTS, phase_offsets
from attention.compositional.sampling import draw, draw_distinct
from attention.compositional.skeleton import Internal, Skeleton
from attention.options import check_count

BUDGETS = ("draws", "distinct")
_BLOCK_COLUMNS = 8
_DTYPES = (np.float64, np.float32)


class CompositionalFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random features of a computation skeleton, whose products of rows estimate its kernel.

    Random Features for Compositional Kernels, Algorithm 1. A linear model on these features
    approximates the kernel machine.

    Parameters
    ----------
    skeleton : Skeleton, mapping or None, default None The skeleton, or plain data for
        `Skeleton.from_dict`. None uses `default_skeleton` of the training data: Gaussian kernels of
        blocks of columns under one ReLU node.
    n_components : int, default 100 q: the number of draws, or the largest number of distinct
        features; see `budget`.
    budget : {"draws", "distinct"}, default "draws" "draws" makes n_components draws, exactly
        unbiased, and merges equal ones if `deduplicate`. "distinct" draws until there are
        n_components distinct features or `max_draws` draws: a smaller error for the same width,
        with a small bias.
    deduplicate : bool, default True Merge equal features of `budget` "draws"; kernel estimates of
        layout "pairs" do not change.
    layout : {"pairs", "phase"}, default "pairs" "pairs": real and imaginary parts, two columns per
        feature (one if all features are real). "phase": one column per feature, with a larger
        error.
    max_draws : int, default 1000000 Largest number of draws with `budget` "distinct".
    random_state : int, RandomState or None, default None Seed of the random features.

    Attributes
    ----------
    skeleton_ : Skeleton
        The skeleton in use.
    features_ : Features The random features with their multiplicities.
    offsets_ : ndarray of shape (q,) or None Phases of layout "phase".
    n_features_in_ : int Number of columns of the data.
    """

    def __init__(
        self,
        skeleton: Skeleton | Mapping[str, Any] | None = None,
        *,
        n_components: int = 100,
        budget: str = "draws",
        deduplicate: bool = True,
        layout: str = "pairs",
        max_draws: int = 1_000_000,
        random_state: Any = None,
    ) -> None:
        self.skeleton = skeleton
        self.n_components = n_components
        self.budget = budget
        self.deduplicate = deduplicate
        self.layout = layout
        self.max_draws = max_draws
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the features; X (n, D) determines the number of columns and the default skeleton.

        Raises ValueError for invalid settings and for data outside the base spaces.
        """
        for name, allowed in (("budget", BUDGETS), ("layout", LAYOUTS)):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        check_count("n_components", self.n_components)
        X = validate_data(self, X, dtype=_DTYPES)
        skeleton = self.skeleton
        if skeleton is None:
            skeleton = default_skeleton(X)
        elif not isinstance(skeleton, Skeleton):
            skeleton = Skeleton.from_dict(skeleton)
        skeleton.check("X", X)
        seed = check_random_state(self.random_state).randint(2**32, dtype=np.uint32)
        rng = np.random.default_rng(seed)
        if self.budget == "distinct":
            features = draw_distinct(skeleton, self.n_components, rng, max_draws=self.max_draws)
        else:
            features = draw(skeleton, self.n_components, rng)
            if self.deduplicate:
                features, _ = deduplicate(features)
        self.skeleton_ = skeleton
        self.features_ = features
        self.offsets_ = phase_offsets(rng, len(features)) if self.layout == "phase" else None
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return features (n, columns) of X (n, D), float32 for float32 data, else float64."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_DTYPES, reset=False)
        layout = "pairs" if self.offsets_ is None else "phase"
        return self.features_.embed(X, layout=layout, offsets=self.offsets_, dtype=X.dtype.type)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, used by `get_feature_names_out`."""
        return self.features_.output_dim("pairs" if self.offsets_ is None else "phase")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def default_skeleton(X: NDArray[np.floating]) -> Skeleton:
    """Return a skeleton of Gaussian kernels of blocks of up to 8 neighbouring columns under one
    ReLU node.

    a^2 of each block is 1 over the total variance of its columns in X (n, D), so that the kernel of
    a typical pair of rows is about 1/e.
    """
    variances = np.asarray(X, np.float64).var(axis=0)
    inputs = {}
    for start in range(0, X.shape[1], _BLOCK_COLUMNS):
        columns = tuple(range(start, min(start + _BLOCK_COLUMNS, X.shape[1])))
        total = float(variances[list(columns)].sum())
        a = total**-0.5 if total > np.finfo(np.float64).tiny else 1.0
        inputs[f"columns_{columns[0]}_{columns[-1]}"] = Gaussian(columns, a)
    return Skeleton(inputs, {"output": Internal(tuple(inputs), ReLU())})
