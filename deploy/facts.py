"""Facts of a model card, measured here or read from the policy's run and evaluation."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from deploy.card import Facts
from deploy.parity import Parity, ties
from training.analysis.agents import Agent
from training.analysis.evaluator import Entry
from training.analysis.intervals import share_interval
from training.analysis.step_cost import count
from training.command.files import read_bytes, reason
from training.io import checkpoint
from training.io.config import UserError
from training.io.fingerprint import sha256_of
from training.io.run_log import provenance
from training.io.state_files import plain_json

_VERSIONS = ("foveate", "torch", "numpy")


def facts(
    agent: Agent,
    policy: Any,
    observation: Any,
    found: Parity,
    success: dict[str, str],
    size: int,
    licence: str | None = None,
) -> Facts:
    """Facts of a policy that was compared with its model, whose file has `size` bytes, with its
    known success rates and the licence of its weights, which is only known of shipped policies."""
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
        success=(success or {}) | _played(found),
        flops=flops,
        parameters=sum(one.numel() for one in policy.parameters()),
        model_bytes=size,
        policy_ms=policy_ms,
        model_ms=model_ms,
        processor=str(here["hardware"]["cpu"]),
        decisions=found.decisions,
        action_difference=found.action,
        state_difference=found.state,
        ties=ties(found),
        versions={name: here["versions"].get(name) for name in _VERSIONS},
        commit=commit,
        licence=licence or _licence(agent),
    )


def _licence(agent: Agent) -> str:
    shipped = {path.resolve() for path in checkpoint.shipped().values()}
    if agent.checkpoint is not None and agent.checkpoint.resolve() in shipped:
        return "Apache-2.0, as Foveate"
    return "not stated: it is for those to say who trained the policy (`--licence`)"


def _training(agent: Agent) -> dict[str, Any]:
    """Rows about training, read from the checkpoint."""
    assert agent.checkpoint is not None
    read = checkpoint.load(agent.checkpoint)
    config = read.config
    rows = {
        "checkpoint, SHA-256": f"`{sha256_of(agent.checkpoint)}`",
        "trainer": config.get("trainer", "not recorded"),
        "seed": config.get("seed", "not recorded"),
        "training data": config.get("data") or f"episodes of `{config['env_id']}`, as it was set:",
    }
    changed = config.get("env", {})
    rows["the environment in training"] = ", ".join(f"`{k} = {v}`" for k, v in changed.items())
    return rows


def _played(found: Parity) -> dict[str, str]:
    successes = [one for one in found.episodes if one is not None]
    if not successes:
        return {}
    return {
        f"the policy, the {len(successes)} whole episodes of the comparison below": _share(
            successes
        )
    }


def _share(successes: list[bool]) -> str:
    share = f"{np.mean(successes):.0%} of {len(successes)}"
    if len(successes) < 2:
        return share
    return f"{share}{_interval(share_interval(np.array([successes], float)))}"


def evaluated(agent: Agent, path: Path | None) -> dict[str, str]:
    """Success of this checkpoint according to an evaluation.json, in words; nothing without one.

    Raises:
        UserError: for an evaluation that cannot be read, or of other policies.
    """
    if path is None:
        return {}
    assert agent.checkpoint is not None
    own = sha256_of(agent.checkpoint)
    try:
        entries = TypeAdapter(list[Entry]).validate_python(plain_json(read_bytes(path)))
    except OSError as error:
        raise UserError(f"--evaluation {path} cannot be read: {reason(error)}") from None
    except ValueError:
        raise UserError(f"--evaluation {path} is no evaluation.json") from None
    seeing = [one for one in entries if not one.blind]
    entry = next((one for one in seeing if one.checkpoint_sha256 == own), None)
    if entry is None:
        names = ", ".join(one.name for one in entries) or "nothing"
        raise UserError(f"--evaluation {path} must hold this checkpoint, got {names}")
    interval = entry.success_interval_95
    words = _words(entry.success_rate, interval, entry.reward_mean, len(entry.seeds))
    return {f"the policy, `{path.name}`": words}


def shown(success: dict[str, Any]) -> dict[str, str]:
    """Results of the model's own episodes, in words."""
    rate, interval, reward, episodes = (
        success[key] for key in ("success_rate", "success_interval_95", "reward_mean", "episodes")
    )
    return {"the model, `success.json`": _words(rate, interval, reward, episodes)}


def _words(
    rate: float | None, interval: tuple[float, float] | None, reward: float, episodes: int
) -> str:
    words = f"reward {reward:.4g}, {episodes} episodes"
    if rate is None:
        return words
    return f"{rate:.0%}{'' if interval is None else _interval(interval)}, {words}"


def _interval(ends: tuple[float, float]) -> str:
    return f" (95 % interval {ends[0]:.0%} to {ends[1]:.0%})"
