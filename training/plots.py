"""Training curves of runs, and FLOPs against reward of evaluated policies.

python -m training.plots RUN... --out curve.png
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.plots"))

from collections.abc import Sequence

from training.command.signals import exit_status
from training.io.config import ArgumentParser
from training.io.metrics import read_metrics
from training.reports.plots import AXES, picture_path, plot_training


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of `python -m training.plots`."""
    parser = ArgumentParser(prog="training.plots", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory or metrics.csv")
    parser.add_argument("--out", required=True, metavar="PICTURE", help=".png, .svg or .pdf")
    parser.add_argument("--x", choices=sorted(AXES), default="iteration", help="horizontal axis")
    parser.add_argument(
        "--smooth", type=int, default=1, metavar="N", help="draw trailing means of N iterations"
    )

    def draw() -> int:
        arguments = parser.parse_args(argv)
        picture_path(arguments.out)
        curves = [read_metrics(run) for run in arguments.runs]
        out = plot_training(curves, arguments.out, arguments.x, max(1, arguments.smooth))
        print(f"wrote {out}")
        return 0

    return exit_status(draw)
