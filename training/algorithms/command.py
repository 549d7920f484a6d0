"""The command of a training algorithm; `--help` works before PyTorch is loaded."""

import argparse
import shlex
from collections.abc import Iterable, Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import envs
from training.algorithms.registry import find_trainers, load_any_config, trainer_of
from training.algorithms.trainer import JobConfig, Trainer, describe_job
from training.collect import env_settings
from training.command.errors import command_line
from training.command.signals import exit_status, interrupted_status
from training.io.config import ArgumentParser, UserError


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run the command of the named trainer; returns the exit status."""
    return exit_status(lambda: _main(name, argv))


def _main(name: str, argv: Sequence[str] | None) -> int:
    trainers = find_trainers(name)
    first = trainers[0]
    described = [
        (f"{one.where}:\n" if one is not first else "") + describe_job(one.config)
        for one in trainers
    ]
    parser = make_parser(first.command, first.summary, "\n\n".join(described), first.preset)
    args = parser.parse_args(argv)

    import torch

    from training.algorithms.devices import open_group

    torch.set_num_threads(1)
    with open_group() as group:
        return _run(first, args, group)


def make_parser(command: str, description: str, fields: str, preset: str) -> ArgumentParser:
    """The parser of a trainer's command; `fields` describes the configuration."""
    parser = ArgumentParser(
        prog=f"python -m {command}",
        description=description,
        epilog=f"fields of the configuration, for --set and --config, with defaults:\n{fields}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help=f"YAML (default: {preset or 'none'})")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/<env>-<time>)")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="resume a stopped run from its newest checkpoint, or from the checkpoint given",
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the configuration, dotted where nested",
    )  # fmt: skip
    return parser


def _run(trainer: Trainer, args: argparse.Namespace, group: Any) -> int:
    """Train in one process of a group; the first process parses the command line for all."""
    from training.runner import begin, in_directory

    job: Any = None
    resumed = args.resume is not None
    outcome: Any = None
    try:
        if group.is_first:
            outcome = config, run, start = _requested(trainer, args, group)
            job = begin(config, run, start, resumed)
    except UserError as error:
        outcome = error
    outcome = group.share(outcome)
    if isinstance(outcome, UserError):
        raise outcome
    config, run, start = outcome
    trainer = trainer_of(config)
    with closing(job or trainer.prepare(config, start)) as job:
        if not group.is_first:
            trainer.train(job, run)
            return 0
        try:
            in_directory(job, run, resumed)
        except KeyboardInterrupt as error:
            _print_interrupted(trainer, config, run)
            return interrupted_status(error)
    _print_done(trainer, config, run)
    return 0


def _requested(trainer: Trainer, args: argparse.Namespace, group: Any) -> tuple[Any, Path, Any]:
    """The configuration, run directory and checkpoint that the command line selects."""
    from training.algorithms.resuming import resume
    from training.io import run_log

    def load(path: str | Path, overrides: Any) -> Any:
        config = load_any_config(path, overrides, trainer.name)
        _check_group(config, group)
        return config

    if args.resume is not None:
        return resume(args, load)
    if not (args.config or trainer.preset):
        raise UserError("--config must name a file; this trainer has no preset")
    config = load(args.config or Path(str(resources.files("configs") / trainer.preset)), args.set)
    return config, Path(args.out) if args.out else run_log.new_directory(config.env_id), None


def _check_group(config: Any, group: Any) -> None:
    """UserError if these processes cannot train together."""
    if group.size == 1:
        return
    if not trainer_of(config).in_processes:
        raise UserError(
            f"{group.size} processes were started, but only policy.name = vision_performer "
            "trains on several; this policy takes workers instead"
        )
    if config.batch_size % group.size:
        raise UserError(
            f"batch_size must be a multiple of the {group.size} processes, got {config.batch_size}"
        )


def _print_interrupted(trainer: Trainer, config: JobConfig, run: Path) -> None:
    from training.io import checkpoint

    latest = checkpoint.in_run(run)
    at = f"; iteration {latest[-1].stem} is saved" if latest else " before the first checkpoint"
    again = _overrides_again(config)
    resume = command_line(trainer.command, "--resume", run, *(["--set", *again] if again else []))
    print(f"\ninterrupted{at}; resume with: {resume}")


def _print_done(trainer: Trainer, config: JobConfig, run: Path) -> None:
    if trainer.following is not None:
        commands = trainer.following(config, run)
    else:
        more = [f"iterations={2 * config.iterations}", *_overrides_again(config)]
        commands = [
            (shlex.join(["tensorboard", "--logdir", str(run)]), "the curves"),
            (command_line(trainer.command, "--resume", run, "--set", *more), "train longer"),
        ]
    custom = [*custom_names(config).values(), *env_settings.custom(config.env)]
    print_next(
        config.iterations, run, config.env_id, *commands,
        custom=custom, sample_actions=getattr(config, "sample_actions", False),
    )  # fmt: skip


def custom_names(config: Any) -> dict[str, str]:
    """The custom parts ("module:Class") in a configuration's policy, by key: they are imported only
    when the command line names them."""
    found = {key: getattr(config.policy, key, "") for key in ("name", "controller", "feature_map")}
    return {key: name for key, name in found.items() if ":" in name}


def _overrides_again(config: Any) -> list[str]:
    """The overrides that name a run's custom parts when it is resumed."""
    again = [f"policy.{key}={name}" for key, name in custom_names(config).items()]
    return again + ([f"tracker={config.tracker}"] if ":" in config.tracker else [])


def print_next(
    iterations: int, run: Path, env_id: str, *commands: tuple[str, str],
    custom: Iterable[str] = (), sample_actions: bool = False,
) -> None:  # fmt: skip
    """Print that a run is done and the commands to view and evaluate it, then further `commands`;
    `custom` are the values of `custom_names`."""
    # A custom environment is imported only when the command line names it.
    words = [str(run), *(["--env", env_id] if ":" in env_id else [])]
    for name in custom:
        words += ["--custom", name]
    acts = ["--sample-actions"] if sample_actions else []
    found = [
        (command_line("training.rollout", *words, *acts, "--video", "episode.mp4"), "see it"),
        (command_line("training.evaluate", *words, *acts), "measure it on unseen seeds"),
    ]
    if env_id == envs.RECORDED_SPACES:  # has no simulator
        found = [(command_line("deploy.export", *words), "write it for a robot")]
    print(f"done: {iterations} iterations in {run}; next:")
    for command, purpose in (*found, *commands):
        print(f"  {command}  # {purpose}")
