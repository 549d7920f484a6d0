"""The directory of an evaluation: its lock, and results of an interrupted evaluation."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from training.analysis.agents import Agent
from training.collect.environments import completed
from training.collect.outcomes import outcomes_of
from training.command.files import made_and_locked, read_bytes, reason, write_json
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.state_files import Count, Finite, State, check

RESULTS, PARETO = "evaluation.json", "pareto.png"


@dataclass(frozen=True, config=State)
class Entry:
    """The fields that are read from an entry of evaluation.json."""

    name: str
    env: str
    env_settings: dict[str, Any]
    seeds: tuple[Count, ...]
    success_rate: Finite | None
    success_interval_95: tuple[Finite, Finite] | None
    reward_mean: Finite
    reward_sem: Finite | None
    flops_per_step: Count | None
    latency_ms_per_step: Finite
    parameters: Count
    checkpoint_sha256: str | None = None
    repair: str | None = None


@contextmanager
def claim(
    out: Path | None, agents: Sequence[Agent], seeds: Sequence[int]
) -> Iterator[tuple[Path | None, list[dict[str, Any]]]]:
    """Create the output directory, check that it is writable and lock it. Return the results that
    an interrupted run of the same evaluation left there, or None if there are none.

    Raises UserError if it holds a finished or a different evaluation.
    """
    if out is None:
        yield None, []
        return
    with made_and_locked(out) as directory:
        kept = _kept(directory, agents, seeds)
        try:
            write_entries(directory, kept)
            if not kept:
                (directory / RESULTS).unlink()
        except OSError as error:
            raise UserError(f"--out {out} cannot be written: {reason(error)}") from None
        yield directory, kept


def is_free(directory: Path, agents: Sequence[Agent], seeds: Sequence[int]) -> bool:
    """Whether its only results are those of an interrupted run of the same evaluation."""
    try:
        _kept(directory, agents, seeds)
    except UserError:
        return False
    return True


def _kept(directory: Path, agents: Sequence[Agent], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The entries of the agents that were finished when this evaluation was interrupted; [] if
    there are no results.

    Raises UserError if there are other or damaged results.
    """
    there = [name for name in (RESULTS, PARETO) if (directory / name).exists()]
    if not there:
        return []
    another, path = f"--out {directory} holds another evaluation ({there[0]})", directory / RESULTS
    try:
        entries = json.loads(read_bytes(path)) if there == [RESULTS] else []
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as results: {error}") from None
    if not isinstance(entries, list) or not 0 < len(entries) <= len(agents):
        raise UserError(f"{another}: give another directory")
    for entry, agent in zip(entries, agents, strict=False):
        known = dataclasses.asdict(check(Entry, entry, path))
        known["env_settings"] = completed(agent.env_id, known["env_settings"])
        now = fingerprint(
            {
                "name": agent.name, "env": agent.env_id, "env_settings": agent.env_settings,
                "seeds": seeds, "checkpoint_sha256": agent.checkpoint, "repair": agent.repair,
            }
        )  # fmt: skip
        for change in differences(fingerprint({key: known[key] for key in now}), now):
            of_one = f"{known['name']} with {change.describe()}"
            raise UserError(f"{another}, of {of_one}: give another directory")
        check(dict[str, Finite], _outcome_figures(entry, agent), path)
    return entries


def _outcome_figures(entry: dict[str, Any], agent: Agent) -> dict[str, Any]:
    """The task's outcomes in an entry, without null values."""
    names = [(one.mean_name, f"{one.name}_sem") for one in outcomes_of(agent.task)]
    keys = itertools.chain.from_iterable(names)
    return {key: entry[key] for key in keys if entry.get(key) is not None}


def write_entries(directory: Path, entries: list[dict[str, Any]]) -> None:
    """Write all entries so far. Raises OSError."""
    write_json(directory / RESULTS, entries, allow_nan=False)
