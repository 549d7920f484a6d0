"""The command that trains a policy on recorded demonstrations."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from training.algorithms.implicit_bc_config import load_config
from training.collect import environments
from training.command.errors import command_line, preset
from training.demonstrations.reader import DemoReader
from training.io.config import UserError
from training.io.overrides import assignment
from training.runner import build_policy


def cloning_command(reader: DemoReader) -> str | None:
    """The command that clones these demonstrations with a shipped configuration.

    Among those for the environment it is the one whose robot differs least (then the one that
    trains least), with `--set` for the differences. None if no configuration fits, or there are no
    demonstrations to train or to validate on.
    """
    if not reader.mask("train") or not reader.mask("valid"):
        return None
    recorded = reader.recording
    robot = environments.embodiment(
        recorded.env_id, environments.resolved(recorded.env_id, recorded.env)
    )
    found: list[tuple[tuple[int, int], Path, list[str]]] = []
    for file in sorted(Path(str(resources.files("configs"))).glob("*.yaml")):
        try:
            config = load_config(file, [])
        except UserError:
            continue  # another trainer's
        if config.env_id != recorded.env_id:
            continue
        changed = {f"env.{key}": value for key, value in robot.items() if config.env[key] != value}
        settings = {"demonstrations": str(reader.directory), **changed}
        words = [assignment(key, value) for key, value in settings.items()]
        found.append(((len(changed), config.iterations * config.updates), file, words))
    for _, file, words in sorted(found):
        try:
            job: Any = load_config(file, words)
            build_policy(job.env_id, job.env, job.policy)
        except UserError:
            continue  # for example, its patches do not divide these images
        return command_line("training.bc", "--config", preset(file.name), "--set", *words)
    return None
