"""Robot policies that see through implicit attention.

From an observation to an action, in this order:

| file | step |
|---|---|
| `common.observation` | any observation space as images, preprocessed, and one vector |
| `common.policy_inputs` | what the settings make of both: images, tokens, inputs |
| `implicit_attention.tokens` | images as tokens of pixels, with their places |
| `vision_performer.encoder` | tokens of the implicit Vision-Performer |
| `cnn.policy` | convolutions, without tokens and attention |
| `implicit_attention.selection` | attention scores of tokens, and which are kept |
| `common.controllers` | attention output and vector to numbers |
| `common.heads`, `footholds.head` | numbers to an action of any space |
| `common.base_policy` | `act`, `reset`, losses and the recurrent state around all of these |

Each name is imported on first access: settings can be read without PyTorch, which takes a second to
load, and only the extractor needs Stable-Baselines3.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foveate_extras import needs, require, require_python

require_python("policies")

if TYPE_CHECKING:
    from policies.cnn.config import CNNPolicyConfig
    from policies.cnn.policy import CNNPolicy
    from policies.common.building import build, build_for
    from policies.common.compiled import compile_act
    from policies.common.kinds import CONFIGS, AnyPolicyConfig, CustomPolicyConfig, PolicySettings
    from policies.common.normaliser import RunningNormaliser, RunningStatistics
    from policies.common.scripted import Blind, Oracle, Random
    from policies.felt_ground.config import FeltGroundPolicyConfig
    from policies.felt_ground.policy import FeltGroundPolicy
    from policies.implicit_attention.config import PolicyConfig
    from policies.implicit_attention.extractor import (
        ImplicitAttentionExtractor as ImplicitAttentionExtractor,
    )
    from policies.implicit_attention.policy import ImplicitAttentionPolicy
    from policies.implicit_attention.selection import LearnedSelection
    from policies.implicit_attention.tokens import PatchTokens
    from policies.place_memory.config import PlaceMemoryConfig
    from policies.place_memory.policy import PlaceMemoryPolicy
    from policies.place_memory.remembered import RememberedGround
    from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig
    from policies.vision_performer.encoder import VisionPerformer
    from policies.vision_performer.policy import VisionPerformerPolicy
    from policies.vision_performer.pooled import PooledEncoder, PooledVisionPerformer

__all__ = [
    "CONFIGS",
    "AnyPolicyConfig",
    "Blind",
    "CNNPolicy",
    "CNNPolicyConfig",
    "CustomPolicyConfig",
    "FeltGroundPolicy",
    "FeltGroundPolicyConfig",
    "ImplicitAttentionPolicy",
    "LearnedSelection",
    "Oracle",
    "PatchTokens",
    "PlaceMemoryConfig",
    "PlaceMemoryPolicy",
    "PolicyConfig",
    "PolicySettings",
    "PooledEncoder",
    "PooledPolicyConfig",
    "PooledVisionPerformer",
    "Random",
    "RememberedGround",
    "RunningNormaliser",
    "RunningStatistics",
    "VisionPerformer",
    "VisionPerformerPolicy",
    "VisionPolicyConfig",
    "build",
    "build_for",
    "compile_act",
]

require("policies", "train", "gymnasium", "numpy", "pydantic")

_MODULES = {
    "cnn.config": ("CNNPolicyConfig",),
    "cnn.policy": ("CNNPolicy",),
    "common.building": ("build", "build_for"),
    "common.compiled": ("compile_act",),
    "implicit_attention.config": ("PolicyConfig",),
    "implicit_attention.extractor": ("ImplicitAttentionExtractor",),
    "implicit_attention.policy": ("ImplicitAttentionPolicy",),
    "common.kinds": (
        *("CONFIGS", "AnyPolicyConfig", "CustomPolicyConfig", "OwnPolicyConfig", "PolicySettings"),
    ),
    "common.normaliser": ("RunningNormaliser", "RunningStatistics"),
    "felt_ground.config": ("FeltGroundPolicyConfig",),
    "felt_ground.policy": ("FeltGroundPolicy",),
    "place_memory.config": ("PlaceMemoryConfig",),
    "place_memory.policy": ("PlaceMemoryPolicy",),
    "vision_performer.pooled": ("PooledEncoder", "PooledVisionPerformer"),
    "place_memory.remembered": ("RememberedGround",),
    "common.scripted": ("Blind", "Oracle", "Random"),
    "implicit_attention.selection": ("LearnedSelection",),
    "implicit_attention.tokens": ("PatchTokens",),
    "vision_performer.config": ("PooledPolicyConfig", "VisionPolicyConfig"),
    "vision_performer.encoder": ("VisionPerformer",),
    "vision_performer.policy": ("VisionPerformerPolicy",),
}
"""Modules by their names; the extractor, which needs an extra, is not in `__all__`."""


def __getattr__(name: str) -> Any:
    """Import an attribute of the package on first access."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(f"policies.{name}", "rl"):
        found = getattr(import_module(f"policies.{module}"), name)
    globals()[name] = found
    return found
