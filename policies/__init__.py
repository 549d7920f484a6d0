"""Robot policies that see through implicit attention."""

from policies.build import build
from policies.config import PolicyConfig
from policies.iap import ImplicitAttentionPolicy
from policies.normaliser import RunningNormaliser, RunningStatistics
from policies.scripted import Blind, Oracle, Random

__all__ = [
    "Blind",
    "ImplicitAttentionPolicy",
    "Oracle",
    "PolicyConfig",
    "Random",
    "RunningNormaliser",
    "RunningStatistics",
    "build",
]
