"""Run a policy: results of each episode, a video, or a live window.

python -m training.rollout RUN_OR_CHECKPOINT --episodes 3 --video walk.mp4
python -m training.rollout --policy oracle --render
python -m training.rollout --policy oracle --env BimanualSweep-v0 --video sweep.mp4
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.rollout"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from pathlib import Path

from envs.display import has_display
from training.analysis.arguments import add_arguments
from training.collect.episode import Episode, PolicyError, run_episode
from training.collect.outcomes import means_described
from training.command.signals import exit_status
from training.io.config import ArgumentParser, UserError
from training.video.video import check_video_path

__all__ = ["Episode", "PolicyError", "main", "run_episode"]


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.rollout", description=(__doc__ or "").split("\n")[0])
    text = "run directory (its latest checkpoint), checkpoint file, or a shipped policy's name"
    parser.add_argument("run", nargs="?", metavar="RUN_OR_CHECKPOINT", help=text)
    add_arguments(parser, episodes=1)
    text = (
        ".mp4, .webm, .webp or .gif of all episodes, or .png: one frame, at --still-s of the first"
    )
    parser.add_argument("--video", metavar="FILE", help=text)
    text = "time of a .png frame, seconds (default 4)"
    parser.add_argument("--still-s", type=float, default=4.0, help=text)
    parser.add_argument("--render", action="store_true", help="live windows, in real time")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    import torch  # and what loads it: --help is quick without

    from training.analysis.agents import find_agent
    from training.video.rollout import roll

    torch.set_num_threads(1)
    if arguments.render and arguments.video:
        raise UserError("--render and --video cannot be combined: the window is not recorded")
    if arguments.render and not has_display():
        raise UserError(
            "--render needs a display, but DISPLAY is not set; use --video FILE instead"
        )
    if arguments.video:
        check_video_path(Path(arguments.video))
    agent = find_agent(arguments)
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    episodes = roll(agent, seeds, arguments.video, arguments.still_s, arguments.render)
    print(means_described(episodes, agent.task))
    if arguments.video:
        print(f"wrote {arguments.video}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
