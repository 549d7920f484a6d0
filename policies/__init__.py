"""Robot policies that see through implicit attention."""

from policies.build import CONFIGS, build, build_for
from policies.config import PolicyConfig
from policies.iap import ImplicitAttentionPolicy
from policies.normaliser import RunningNormaliser, RunningStatistics
from policies.scripted import Blind, Oracle, Random
from policies.vision_config import VisionPolicyConfig
from policies.vision_policy import VisionPerformerPolicy

__all__ = [
    "CONFIGS",
    "Blind",
    "ImplicitAttentionPolicy",
    "Oracle",
    "PolicyConfig",
    "Random",
    "RunningNormaliser",
    "RunningStatistics",
    "VisionPerformerPolicy",
    "VisionPolicyConfig",
    "build",
    "build_for",
]
