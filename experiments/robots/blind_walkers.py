"""Policies for SteppingStones-v0 that steer like the expert but do not choose footholds.

    python -m training.evaluate experiments.robots.blind_walkers:Steered \\
        --env SteppingStones-v0 --episodes 40 --set path_turn=random "path_radius_m=[3,3]"
    python -m training.evaluate experiments.robots.blind_walkers:BlindBackward \\
        --env SteppingStones-v0 --episodes 40 --set walk_back=true episode_s=18

The scripted blind policy corrects nothing at all, and so leaves a path that turns even without
gaps. These are fairer floors: they lack only the choice of footholds.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

__all__ = ["BlindBackward", "Steered"]


class Steered:
    """The expert's lateral speed and yaw rate; no foothold is corrected.

    Args:
        env: an environment whose `expert_action()` has eight foothold offsets first.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """The expert's action with zero offsets while the policy is blind."""
        action: NDArray[np.float32] = self._env.get_wrapper_attr("expert_action")()
        if self._is_blind(observation):
            action[:8] = 0.0
        return action

    def _is_blind(self, observation: dict[str, NDArray[np.float32]]) -> bool:
        return True


class BlindBackward(Steered):
    """Sees ahead, and is blind while it is commanded to walk backward."""

    def _is_blind(self, observation: dict[str, NDArray[np.float32]]) -> bool:
        return bool(observation["proprio"][-1] < 0)
