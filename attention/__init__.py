"""Random-feature attention: kernels, feature maps, linear attention and token scores.

An estimate of a kernel, and scores of tokens:

    import attention

    fm = attention.feature_map("angular_hybrid", dim=8, num_features=8, num_lambda_features=8)
    estimate = (fm.queries(x) * fm.keys(y)).sum(-1)     # of exp(x.y)
    scores = fm.token_scores(x, y)                       # column sums, O(L)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foveate_extras import require_python

require_python("attention")

from torch.serialization import add_safe_globals

from attention.components import component, current_component
from attention.decoding import DecodingState
from attention.denominators import KeyStatistics
from attention.memory.delta import DeltaState
from attention.sums import LinearAttentionState

add_safe_globals([DecodingState, DeltaState, KeyStatistics, LinearAttentionState])
"""`torch.load` reads recurrent states, which are NamedTuples of tensors, by default."""

if TYPE_CHECKING:
    from attention import compositional, kernels, recurrent, theory
    from attention.diagnosis import Diagnosis, diagnose
    from attention.estimators import RandomFeatures as RandomFeatures
    from attention.exact import ExactSoftmax
    from attention.features import FeatureMap, ScaledFeatures
    from attention.linear import linear_attention
    from attention.matrix import attention_matrix
    from attention.memory import LinearMemory
    from attention.module import RandomFeatureAttention
    from attention.projections import available_projections, projection
    from attention.registry import available, feature_map, find_map
    from attention.scores import softmax_token_scores, token_scores

_HOMES = {
    "diagnosis": ("Diagnosis", "diagnose"),
    "estimators": ("RandomFeatures",),
    "exact": ("ExactSoftmax",),
    "features": ("FeatureMap", "ScaledFeatures"),
    "linear": ("linear_attention",),
    "matrix": ("attention_matrix",),
    "memory": ("LinearMemory",),
    "module": ("RandomFeatureAttention",),
    "projections": ("available_projections", "projection"),
    "registry": ("available", "feature_map", "find_map"),
    "scores": ("softmax_token_scores", "token_scores"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("compositional", "kernels", "recurrent", "theory")

__all__ = [
    "Diagnosis",
    "ExactSoftmax",
    "FeatureMap",
    "LinearMemory",
    "RandomFeatureAttention",
    "ScaledFeatures",
    "attention_matrix",
    "available",
    "available_projections",
    "component",
    "compositional",
    "current_component",
    "diagnose",
    "feature_map",
    "find_map",
    "kernels",
    "linear_attention",
    "projection",
    "recurrent",
    "softmax_token_scores",
    "theory",
    "token_scores",
]


def __getattr__(name: str) -> Any:
    """Import on first use: all maps and their closed forms take longer than `import attention`.

    `RandomFeatures` needs scikit-learn. It is therefore not in `__all__`, whose names need only
    PyTorch.
    """
    if name in _MODULES:
        return import_module(f"attention.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'attention' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"attention.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
