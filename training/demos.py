"""Record demonstrations: episodes of an environment's scripted expert, as files to learn from.

python -m training.demos --env BimanualSweep-v0 --episodes 1000 --out demos/sweep
python -m training.demos --verify demos/sweep

The same command resumes a stopped recording. Episode i depends on `seed + i` and the settings
alone, so the files are the same bytes however many processes record them.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.demos"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from pathlib import Path

from training.command.errors import command_line
from training.command.signals import exit_status, interrupted_status
from training.demonstrations.arguments import parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = parser().parse_args(argv)
    # Late, as these load PyTorch: --help is quick without.
    from training.algorithms.implicit_bc import cloning_command
    from training.demonstrations.recorder import record_all, verify
    from training.demonstrations.request import plan
    from training.demonstrations.summary import PICTURE

    if arguments.verify is not None:
        verify(Path(arguments.verify), arguments.workers)
        return 0
    job = plan(arguments)
    try:
        reader = record_all(job, arguments.episodes, arguments.workers, arguments.valid_share)
    except KeyboardInterrupt as error:
        return interrupted_status(error)
    print(f"see {job.directory / PICTURE}; next:")
    check = command_line("training.demos", "--verify", job.directory)
    print(f"  {check}  # read every frame once, and check")
    clone = cloning_command(reader)
    if clone is not None:
        print(f"  {clone}  # train a policy on them")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
