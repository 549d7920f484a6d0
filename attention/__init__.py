"""Random-feature attention: kernels, feature maps, linear attention and token scores.

import attention

fm = attention.feature_map("angular_hybrid", dim=8, num_features=8, num_lambda_features=8)
estimate = (fm.queries(x) * fm.keys(y)).sum(-1)     # of exp(x.y)
scores = fm.token_scores(x, y)                       # column sums, O(L)
"""

from attention import kernels, theory
from attention.components import component, current_component
from attention.exact import ExactSoftmax
from attention.features import FeatureMap, ScaledFeatures
from attention.linear import linear_attention
from attention.projections import available_projections, projection
from attention.registry import available, feature_map
from attention.scores import softmax_token_scores, token_scores

__all__ = [
    "ExactSoftmax",
    "FeatureMap",
    "ScaledFeatures",
    "available",
    "available_projections",
    "component",
    "current_component",
    "feature_map",
    "kernels",
    "linear_attention",
    "projection",
    "softmax_token_scores",
    "theory",
    "token_scores",
]
