"""Settings of the Implicit Attention Policy."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

import attention

__all__ = ["EXACT", "FEATURE_MAPS", "PolicyConfig", "check_feature_map"]

EXACT = "softmax"
"""Name under which exact softmax attention is chosen in place of a feature map."""
FEATURE_MAPS = (
    EXACT,
    *(name for name in attention.available() if name not in ("geometric", "poisson")),
)
"""Names that a policy takes: its queries and keys can be negative, so no signed powers of them."""
HYBRIDS = ("angular_hybrid", "gaussian_hybrid")
"""Of these, those with a choice of bases."""
Projection = Literal[
    "fast_simplex", "hadamard", "halton", "iid", "orthogonal", "simplex", "simplex_plus"
]
"""Names of `attention.available_projections()`."""
_DISCRETE = ("geometric_plus", "poisson_plus")


def check_feature_map(name: str, hybrid_base: str, projection: str, dim: int) -> None:
    """ValueError for settings that no policy takes; `dim` is that of queries and keys."""
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map must be one of {', '.join(FEATURE_MAPS)}, got {name!r}")
    if hybrid_base != "hyperbolic" and name not in HYBRIDS:
        raise ValueError(
            f"hybrid_base must be hyperbolic with the feature map {name}, got {hybrid_base}; "
            f"{' and '.join(HYBRIDS)} take another"
        )
    if name in _DISCRETE and projection not in ("iid", "orthogonal"):
        raise ValueError(
            f"projection must be iid or orthogonal with the feature map {name}, whose vectors are "
            f"independent integers, got {projection}"
        )
    simplices = "simplex" in projection or (
        hybrid_base != "hyperbolic" and projection == "orthogonal"  # see `map_options`
    )
    if name != EXACT and simplices and dim < 2:
        raise ValueError(
            f"projection = {projection} makes simplices, which need queries and keys of at least "
            f"2 dimensions, got {dim}"
        )


@dataclass(
    frozen=True,
    config=ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False),
)
class PolicyConfig:
    """Tokens, attention and controller of an Implicit Attention Policy."""

    name: Literal["implicit_attention"] = "implicit_attention"
    """Kind of policy."""
    patch: tuple[int, int] = (4, 4)
    """Rows and columns of image pixels in a token; [1, 1] makes every pixel a token."""
    standardise: bool = False
    """Cloning with the dense controller: bring each pixel to mean 0 and variance 1 over the
    demonstrations; otherwise 0.5 m is 0 and 0.3 m more is 1, which suits cameras that look down."""
    variant: Literal["masking", "rank", "trans"] = "masking"
    """What attention hands to the controller: the image with the lesser tokens zeroed, the best
    tokens in order of score (to an image controller, vote, the same as masking), or values mixed by
    attention."""
    selection: Literal["learned", "random", "all"] = "learned"
    """Tokens to keep: by attention score, a fixed random set, or all (no attention)."""
    keep: float = Field(default=0.5, gt=0, le=1)
    """Share of tokens kept."""
    feature_map: str = "angular_hybrid"
    """Random features that make attention linear (`FEATURE_MAPS`), or "softmax": exact."""
    num_features: int = Field(default=8, ge=1)
    """Number m of random projections of the feature map."""
    num_lambda_features: int = Field(default=8, ge=1)
    """Number n of random projections of a hybrid's coefficient."""
    num_clusters: int = Field(default=2, ge=1)
    """Clusters of queries, and of keys, that a clustered hybrid tells apart."""
    hybrid_base: Literal["hyperbolic", "positive", "oprf"] = "hyperbolic"
    """First base of a hybrid, beside trig: hyperbolic shares trig's random vectors, another has its
    own."""
    projection: Projection = "orthogonal"
    """Coupling of the random projections."""
    feature_seed: int = Field(default=0, ge=0, lt=2**62)
    """Seed of the random projections."""
    qk_dim: int = Field(default=4, ge=2, le=256)
    """Dimension d of queries and keys."""
    controller: Literal["vote", "mlp"] = "vote"
    """Foothold votes over the depth profile of each leg's lane, or a small dense network."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the dense controller's hidden layers."""
    init_seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the initial parameters."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_feature_map(self.feature_map, self.hybrid_base, self.projection, self.qk_dim)
        rows, columns = self.patch
        if rows < 1 or columns < 1 or 24 % rows or 32 % columns:
            raise ValueError(
                f"patch must be [rows, columns] that divide the 24 x 32 image, "
                f"got [{rows}, {columns}]"
            )
        if self.standardise and self.controller != "mlp":
            raise ValueError(
                "standardise must be false with the controller vote, which compares pixels; mlp "
                "takes it"
            )
        if min(self.hidden, default=1) < 1:
            raise ValueError(f"hidden must be widths of at least 1, got {list(self.hidden)}")
        if self.variant != "masking" and self.selection != "learned":
            raise ValueError(
                f"variant {self.variant} needs attention scores: selection must be learned, "
                f"got {self.selection}"
            )
        return self
