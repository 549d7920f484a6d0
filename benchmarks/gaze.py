"""Where a policy looks: the share of the pixels it keeps that see past the stones, against chance.

    python -m benchmarks.gaze RUN_OR_CHECKPOINT... [--episodes 4]

The oracle walks training terrains, so that every policy is shown the same views. A pixel sees past
the stones where its depth is over 0.6 m: stone tops are 0.35 to 0.45 m below the cameras, the floor
0.85 m. Chance is the share of such pixels among all.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import envs
from policies import Oracle
from training import checkpoint
from training.config import ArgumentParser, exit_status
from training.episode import run_episode

_PAST_STONES_M = 0.6
_EVERY = 7  # decisions; not a divisor of the gait's ten


def gaze(policy: Any, episodes: int) -> tuple[float, float]:
    """Mean share of pixels past the stones among those kept, and among all."""
    views: list[Any] = []

    def collect(env: Any, observation: Any, action: Any, reward: float, player: Any) -> None:
        views.append(observation)

    with checkpoint.make_env(envs.STEPPING_STONES, {}) as env:
        for seed in range(episodes):
            run_episode(env, Oracle(env), seed, on_step=collect)
    shares = []
    for view in views[::_EVERY]:
        past = view["depth"] > _PAST_STONES_M
        shares.append((past[policy.attention_mask(view)].mean(), past.mean()))
    kept, chance = np.mean(shares, axis=0)
    return float(kept), float(chance)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    return exit_status(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(
        prog="python -m benchmarks.gaze", description=str(__doc__).split("\n", 1)[0]
    )
    parser.add_argument("policies", nargs="+", metavar="RUN_OR_CHECKPOINT")
    parser.add_argument("--episodes", type=int, default=4, help="terrains walked by the oracle")
    args = parser.parse_args(argv)
    for name in args.policies:
        policy, _ = checkpoint.load_policy(name)
        kept, chance = gaze(policy, args.episodes)
        print(f"{name}: {kept:.1%} of the pixels kept see past the stones, {chance:.1%} of all do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
