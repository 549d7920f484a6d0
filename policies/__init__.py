"""Robot policies that see through implicit attention."""

from typing import TYPE_CHECKING, Any

from policies.build import CONFIGS, build, build_for
from policies.config import PolicyConfig
from policies.iap import ImplicitAttentionPolicy
from policies.normaliser import RunningNormaliser, RunningStatistics
from policies.scripted import Blind, Oracle, Random
from policies.selection import LearnedSelection
from policies.tokens import PatchTokens
from policies.vision_config import VisionPolicyConfig
from policies.vision_performer import VisionPerformer
from policies.vision_policy import VisionPerformerPolicy

if TYPE_CHECKING:
    from policies.extractor import ImplicitAttentionExtractor as ImplicitAttentionExtractor

__all__ = [
    "CONFIGS",
    "Blind",
    "ImplicitAttentionPolicy",
    "LearnedSelection",
    "Oracle",
    "PatchTokens",
    "PolicyConfig",
    "Random",
    "RunningNormaliser",
    "RunningStatistics",
    "VisionPerformer",
    "VisionPerformerPolicy",
    "VisionPolicyConfig",
    "build",
    "build_for",
]


def __getattr__(name: str) -> Any:
    """What needs an extra is imported when it is asked for, and so is not in `__all__`."""
    if name != "ImplicitAttentionExtractor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from policies.extractor import ImplicitAttentionExtractor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stable_baselines3":
            raise
        raise ImportError(
            f"policies.{name} needs Stable-Baselines3: pip install 'foveate[rl]'"
        ) from None
    return ImplicitAttentionExtractor
