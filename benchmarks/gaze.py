"""Where a policy looks: the share of what it keeps on gap edges and past the stones, and chance.

    python -m benchmarks.gaze RUN_OR_CHECKPOINT... [--episodes 4]

The oracle walks training terrains (`training.gaze`).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Sequence

from training import checkpoint
from training.config import ArgumentParser, exit_status
from training.gaze import gaze, oracle_views


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
    views = oracle_views({}, range(args.episodes))
    for name in args.policies:
        policy, _ = checkpoint.load_policy(name)
        found = gaze(policy, views)
        print(
            f"{name}: {found.edges_kept:.1%} of the tokens kept lie on a gap's edge, "
            f"{found.edges:.1%} of all do; {found.past_kept:.1%} of the pixels kept see past the "
            f"stones, {found.past:.1%} of all do"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
