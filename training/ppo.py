"""Train a policy by proximal policy optimisation: `python -m training.ppo` (docs/reinforcement.md).

The policy is one of this project, its updates are Stable-Baselines3's (extra `rl`; Schulman et al.
2017), and episodes run as those of `training.es`, to their end, on any number of processes.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.commands import open_command

    raise SystemExit(open_command("training.ppo"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import shlex

from training.command_lines import command_line
from training.commands import exit_status
from training.job_config import describe_job, make_parser
from training.ppo_config import FREE_ON_RESUME, PPOConfig, load_config

__all__ = ["PPOConfig", "load_config", "main"]

PRESET = "stepping_stones_ppo.yaml"


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.ppo` and `foveate-ppo`; returns the exit status."""
    return exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    description = "Train a policy by proximal policy optimisation."
    parser = make_parser("training.ppo", description, describe_job(PPOConfig), PRESET)
    args = parser.parse_args(argv)

    import torch  # late, as --help needs none of what takes seconds to load

    from training.ppo_learner import prepare, train
    from training.starting import hold_and_train, own_names, print_next, start_run, typed_again

    torch.set_num_threads(1)
    config, run, start = start_run(
        "training.ppo", args, PRESET, load_config, lambda _: FREE_ON_RESUME, prepare
    )
    status = hold_and_train("training.ppo", args, config, run, start, train)
    if status != 0:
        return status
    more = [f"iterations={2 * config.iterations}", *typed_again(config)]
    print_next(
        config.iterations,
        run,
        config.env_id,
        (shlex.join(["tensorboard", "--logdir", str(run)]), "the curves"),
        (command_line("training.ppo", "--resume", run, "--set", *more), "train on"),
        own=own_names(config).values(),
    )
    return 0
