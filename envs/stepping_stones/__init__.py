"""The stepping-stones task: a quadruped with two depth cameras on stones with gaps."""

from envs.stepping_stones.config import SteppingStonesConfig
from envs.stepping_stones.env import SteppingStonesEnv

__all__ = ["SteppingStonesConfig", "SteppingStonesEnv"]
