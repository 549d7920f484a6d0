"""Where a policy attends: the share of kept pixels on gap edges and past the stones, and chance.

    python -m experiments.robots.gaze RUN_OR_CHECKPOINT... [--episodes 4] [--distract KEY=VALUE]

The oracle acts on training terrains (`training.analysis.gaze`). With a distraction, the share of
the pixels kept that it changed instead: the oracle, which needs no camera, makes the same rollouts
    without it.
"""

from experiments import figure
from experiments.figure import Arguments
from training.analysis.agents import settings_given
from training.analysis.arguments import positive
from training.analysis.gaze import axes_ahead, distracted, gaze, oracle_views
from training.io import checkpoint
from training.io.config import UserError

DISTRACTIONS = ("depth_false_returns", "depth_dropped_blocks", "clutter_per_m")


def run(args: Arguments) -> None:
    """Print the shares that each policy keeps. Raises UserError."""
    distraction = settings_given(args.distract)
    unknown = sorted(distraction.keys() - set(DISTRACTIONS))
    if unknown:
        raise UserError(f"--distract {unknown[0]}: allowed are {', '.join(DISTRACTIONS)}")
    policies = [(name, checkpoint.load_policy(name)[0]) for name in args.policies]
    views = oracle_views({}, range(args.episodes))
    if distraction:
        lies = oracle_views(distraction, range(args.episodes))
        for name, policy in policies:
            kept, chance = distracted(policy, lies, views)
            print(
                f"{name}: {' '.join(args.distract)} changed {kept:.1%} of the pixels kept and "
                f"{chance:.1%} of all"
            )
        return
    ahead = axes_ahead({})
    for name, policy in policies:
        found = gaze(policy, views, ahead=ahead)
        print(
            f"{name}: {found.edges_kept:.1%} of the tokens kept lie on a gap's edge, "
            f"{found.edges:.1%} of all do; {found.past_kept:.1%} of the pixels kept see past the "
            f"stones, {found.past:.1%} of all do"
        )


main = figure.file_command(
    run,
    figure.option("policies", nargs="+", metavar="RUN_OR_CHECKPOINT"),
    figure.option("--episodes", type=positive, default=4, help="terrains of the oracle's rollouts"),
    figure.option(
        "--distract", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help=f"distraction in the cameras' images: {', '.join(DISTRACTIONS)}",
    ),
)  # fmt: skip
