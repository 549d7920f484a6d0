"""Train a policy by cloning a scripted expert: `python -m training.bc` (README, "Train").

An Implicit Attention Policy is cloned while the expert watches it (`training.dagger`), a
Vision-Performer from recorded demonstrations (`training.implicit_bc`); `policy.name` decides.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from training import bc_config, checkpoint, dagger, implicit_bc, implicit_bc_config, run_log
from training import config as configuration
from training.bc_config import BCConfig
from training.config import UserError
from training.devices import Group, open_group
from training.implicit_bc_config import ImplicitBCConfig
from training.job_config import describe_job
from training.starting import hold_and_train, make_parser, print_next, start_run

__all__ = ["main"]

PRESET = "stepping_stones_clone.yaml"
_FROM_DEMONSTRATIONS = "vision_performer"

Config = BCConfig | ImplicitBCConfig
Start = tuple[Config, Path, checkpoint.Checkpoint | None]


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.bc` and `foveate-bc`; returns the exit status."""
    return configuration.exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    torch.set_num_threads(1)
    description = "Train a policy by cloning a scripted expert."
    fields = (
        f"{describe_job(BCConfig)}\n\nwhere policy.name is {_FROM_DEMONSTRATIONS}:\n"
        f"{describe_job(ImplicitBCConfig)}"
    )
    parser = make_parser("training.bc", description, fields, PRESET)
    args = parser.parse_args(argv)
    with open_group() as group:
        config, run, start = _shared_start(args, group)

        def train(config: Config, run: Path, start: checkpoint.Checkpoint | None) -> None:
            if isinstance(config, ImplicitBCConfig):
                implicit_bc.train(config, run, start, group)
            else:
                dagger.train(config, run, start)

        if not group.is_first:
            train(config, run, start)
            return 0
        status = hold_and_train("training.bc", args, config, run, start, train)
    if status == 0:
        print_next(config.iterations, run, *_next_commands(config, run))
    return status


def _shared_start(args: argparse.Namespace, group: Group) -> Start:
    """What `start_run` gives, asked by the first process for all of them."""
    outcome: Start | UserError
    try:
        outcome = _start(args, group) if group.is_first else UserError()
    except UserError as error:
        outcome = error
    outcome = group.share(outcome)
    if isinstance(outcome, UserError):
        raise outcome
    return outcome


def _start(args: argparse.Namespace, group: Group) -> Start:
    if _clones_demonstrations(args):
        return start_run(
            args, PRESET, implicit_bc_config.load_config, implicit_bc_config.FREE_ON_RESUME,
            implicit_bc.prepare,
        )  # fmt: skip
    if group.size > 1:
        raise UserError(
            f"{group.size} processes were started, but only policy.name = {_FROM_DEMONSTRATIONS} "
            "trains on several; this policy takes workers instead"
        )
    return start_run(args, PRESET, bc_config.load_config, bc_config.FREE_ON_RESUME, dagger.prepare)


def _clones_demonstrations(args: argparse.Namespace) -> bool:
    """Whether the configuration that the arguments mean has a Vision-Performer."""
    path = args.config
    if path is None and args.resume is not None:
        path = Path(args.resume) / run_log.CONFIG
        if not path.is_file():
            return False  # start_run says so
    data: dict[str, Any] = configuration.read_yaml(
        path or Path(str(resources.files("configs") / PRESET))
    )
    configuration.merge(data, configuration.read_overrides(args.set))
    policy = data.get("policy")
    return isinstance(policy, dict) and policy.get("name") == _FROM_DEMONSTRATIONS


def _next_commands(config: Config, run: Path) -> list[tuple[str, str]]:
    if isinstance(config, ImplicitBCConfig):
        return []
    command = (
        "python -m training.es --config configs/stepping_stones_finetune.yaml "
        f"--set init_from={run}"
    )
    return [(command, "improve it by evolution strategies")]


if __name__ == "__main__":
    raise SystemExit(main())
