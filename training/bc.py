"""Train a policy by cloning a scripted expert: `python -m training.bc` (docs/training.md).

A policy is cloned while the expert watches it (`training.trainers.dagger`), an implicit
Vision-Performer from recorded demonstrations (`training.trainers.implicit_cloning`); `policy.name`
and `policy.form` decide.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.bc"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
from pathlib import Path

import torch

from training.command.command_lines import command_line, preset
from training.command.signals import exit_status
from training.runs import checkpoint
from training.settings.config import UserError
from training.settings.overrides import assignment
from training.trainers import bc_config, dagger, implicit_bc_config
from training.trainers import implicit_cloning as implicit_bc
from training.trainers.bc_config import BCConfig
from training.trainers.devices import Group, open_group
from training.trainers.implicit_bc_config import ImplicitBCConfig
from training.trainers.job_config import describe_job, make_parser
from training.trainers.lifecycle import hold_and_train, own_names, print_next, start_run
from training.trainers.registry import load_any_config

__all__ = ["load_config", "main"]

PRESET = "stepping_stones_clone.yaml"

Config = BCConfig | ImplicitBCConfig
Start = tuple[Config, Path, checkpoint.Checkpoint | None]


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.bc` and `foveate-bc`; returns the exit status."""
    return exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    torch.set_num_threads(1)
    description = "Train a policy by cloning a scripted expert."
    fields = (
        f"{describe_job(BCConfig)}\n\nwhere policy.name is vision_performer, and policy.form not "
        "pooled:\n"
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
        commands, own = _next_commands(config, run), own_names(config).values()
        print_next(config.iterations, run, config.env_id, *commands, own=own)
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
    def load(path: str | Path, overrides: list[str]) -> Config:
        config = load_config(path, overrides)
        if group.size > 1 and isinstance(config, BCConfig):
            raise UserError(
                f"{group.size} processes were started, but only policy.name = vision_performer "
                "trains on several; this policy takes workers instead"
            )
        if config.batch_size % group.size:
            raise UserError(
                f"batch_size must be a multiple of the {group.size} processes, got "
                f"{config.batch_size}"
            )
        return config

    return start_run("training.bc", args, PRESET, load, _free_on_resume, _prepare)


def load_config(path: str | Path, overrides: list[str]) -> Config:
    """The configuration of either kind of cloning; UserError when something is wrong."""
    config = load_any_config(path, overrides, (BCConfig, ImplicitBCConfig))
    assert isinstance(config, Config)
    return config


def _free_on_resume(config: Config) -> tuple[str, ...]:
    kind = bc_config if isinstance(config, BCConfig) else implicit_bc_config
    return kind.FREE_ON_RESUME


def _prepare(config: Config) -> None:
    if isinstance(config, BCConfig):
        dagger.prepare(config)
    else:
        implicit_bc.prepare(config)


def _next_commands(config: Config, run: Path) -> list[tuple[str, str]]:
    if isinstance(config, ImplicitBCConfig):
        return []
    finetune = preset("stepping_stones_finetune.yaml")
    start = assignment("init_from", str(run))
    command = command_line("training.es", "--config", finetune, "--set", start)
    return [(command, "improve it by evolution strategies")]
