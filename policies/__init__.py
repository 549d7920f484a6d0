"""Robot policies that see through implicit attention.

Each name is imported when it is first asked for: settings can be read without PyTorch, which takes
a second to load, and the extractor needs Stable-Baselines3, which nothing else here does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foveate_extras import needs, require

if TYPE_CHECKING:
    from policies.building import build, build_for
    from policies.config import PolicyConfig
    from policies.extractor import ImplicitAttentionExtractor as ImplicitAttentionExtractor
    from policies.iap import ImplicitAttentionPolicy
    from policies.kinds import CONFIGS, AnyPolicyConfig, OwnPolicyConfig, PolicySettings
    from policies.normaliser import RunningNormaliser, RunningStatistics
    from policies.place_config import PlaceMemoryConfig
    from policies.place_memory import PlaceMemoryPolicy
    from policies.pooled import PooledEncoder, PooledVisionPerformer
    from policies.remembered import RememberedGround
    from policies.scripted import Blind, Oracle, Random
    from policies.selection import LearnedSelection
    from policies.tokens import PatchTokens
    from policies.vision_config import PooledPolicyConfig, VisionPolicyConfig
    from policies.vision_performer import VisionPerformer
    from policies.vision_policy import VisionPerformerPolicy

__all__ = [
    "CONFIGS",
    "AnyPolicyConfig",
    "Blind",
    "ImplicitAttentionPolicy",
    "LearnedSelection",
    "Oracle",
    "OwnPolicyConfig",
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
]

require("policies", "train", "gymnasium", "numpy", "pydantic")

_MODULES = {
    "building": ("build", "build_for"),
    "config": ("PolicyConfig",),
    "extractor": ("ImplicitAttentionExtractor",),
    "iap": ("ImplicitAttentionPolicy",),
    "kinds": ("CONFIGS", "AnyPolicyConfig", "OwnPolicyConfig", "PolicySettings"),
    "normaliser": ("RunningNormaliser", "RunningStatistics"),
    "place_config": ("PlaceMemoryConfig",),
    "place_memory": ("PlaceMemoryPolicy",),
    "pooled": ("PooledEncoder", "PooledVisionPerformer"),
    "remembered": ("RememberedGround",),
    "scripted": ("Blind", "Oracle", "Random"),
    "selection": ("LearnedSelection",),
    "tokens": ("PatchTokens",),
    "vision_config": ("PooledPolicyConfig", "VisionPolicyConfig"),
    "vision_performer": ("VisionPerformer",),
    "vision_policy": ("VisionPerformerPolicy",),
}
"""Where each name is; the extractor, which needs an extra, is not in `__all__`."""


def __getattr__(name: str) -> Any:
    """What the package gives by this name, imported now."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(f"policies.{name}", "rl"):
        found = getattr(import_module(f"policies.{module}"), name)
    globals()[name] = found
    return found
