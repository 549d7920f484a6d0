"""What a model card says of a policy: measured here, or read of its run and its evaluation."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from deploy.card import Facts
from deploy.parity import Parity
from training.command.files import read_bytes, reason
from training.evaluation.agents import Agent
from training.evaluation.evaluation_file import Entry
from training.evaluation.intervals import share_interval
from training.evaluation.step_cost import count
from training.runs import checkpoint
from training.runs.fingerprint import sha256_of
from training.runs.run_log import provenance
from training.settings.config import UserError

__all__ = ["facts"]

_VERSIONS = ("foveate", "torch", "numpy")


def facts(
    agent: Agent, policy: Any, observation: Any, found: Parity, evaluation: Path | None
) -> Facts:
    """Of a policy that was compared with its model.

    Raises:
        UserError: for an evaluation that cannot be read, or that is of others.
    """
    task, here = agent.task, provenance({})
    policy.reset()
    flops = count(lambda: policy.act(observation)).total
    policy_ms, model_ms = found.median_ms
    git = here["git"] or {}
    commit = str(git.get("commit", "unknown")) + (", modified" if git.get("modified") else "")
    return Facts(
        name=agent.name,
        env_id=agent.env_id,
        task="" if task is None else task.what,
        settings=dataclasses.asdict(policy.config),
        training=_training(agent),
        success=_success(agent, found, evaluation),
        flops=flops,
        parameters=sum(one.numel() for one in policy.parameters()),
        policy_ms=policy_ms,
        model_ms=model_ms,
        processor=str(here["hardware"]["cpu"]),
        decisions=found.decisions,
        action_difference=found.action,
        state_difference=found.state,
        versions={name: here["versions"].get(name) for name in _VERSIONS},
        commit=commit,
    )


def _training(agent: Agent) -> dict[str, Any]:
    """What the checkpoint says of its training."""
    assert agent.checkpoint is not None
    read = checkpoint.load(agent.checkpoint)
    config = read.config
    rows = {
        "checkpoint, SHA-256": f"`{sha256_of(agent.checkpoint)}`",
        "trainer": config.get("trainer", "not told"),
        "seed": config.get("seed", "not told"),
        "training data": config.get("data") or f"episodes of `{config['env_id']}`, as it was set:",
    }
    changed = config.get("env", {})
    rows["the environment in training"] = ", ".join(f"`{k} = {v}`" for k, v in changed.items())
    return rows


def _success(agent: Agent, found: Parity, evaluation: Path | None) -> dict[str, str]:
    rows = {}
    if evaluation is not None:
        rows[f"`{evaluation.name}`"] = _evaluated(agent, evaluation)
    told = [one for one in found.episodes if one is not None]
    if told:
        rows[f"the {len(told)} whole episodes of the comparison below"] = _share(told)
    return rows or {"nothing": "not measured"}


def _share(told: list[bool]) -> str:
    share = f"{np.mean(told):.0%} of {len(told)}"
    if len(told) < 2:
        return share
    low, high = share_interval(np.array([told], float))
    return f"{share} (95 % interval {low:.0%} to {high:.0%})"


def _evaluated(agent: Agent, path: Path) -> str:
    """The entry of this checkpoint, in words."""
    assert agent.checkpoint is not None
    own = sha256_of(agent.checkpoint)
    try:
        entries = TypeAdapter(list[Entry]).validate_python(json.loads(read_bytes(path)))
    except OSError as error:
        raise UserError(f"--evaluation {path} cannot be read: {reason(error)}") from None
    except (ValueError, RecursionError, ValidationError):
        raise UserError(f"--evaluation {path} is no evaluation.json") from None
    entry = next((one for one in entries if one.checkpoint_sha256 == own), None)
    if entry is None:
        names = ", ".join(one.name for one in entries) or "nothing"
        raise UserError(f"--evaluation {path} must hold this checkpoint, got {names}")
    words = f"reward {entry.reward_mean:.4g}, {len(entry.seeds)} episodes"
    if entry.success_rate is None:
        return words
    shown = f"{entry.success_rate:.0%}"
    if entry.success_interval_95 is not None:
        low, high = entry.success_interval_95
        shown += f" (95 % interval {low:.0%} to {high:.0%})"
    return f"{shown}, {words}"
