"""The loss of linear attention relative to exact attention over the same keys of a policy.

    python -m experiments.place_memory.same_keys

RUN is a run's directory, a checkpoint or a policy that ships, whose memory of places is linear: one
a training seed. Each runs twice on the same terrains: unchanged, and with softmax attention over
all of the episode in place of the memory. Every parameter is kept, of keys and of the controller;
nothing is trained again. Intervals of 95 % are over seeds and terrains."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import figure
from experiments.figure import Arguments, Lines
from policies import build_for
from policies.place_memory.config import PlaceMemoryConfig
from training.analysis.agents import Agent, find_agents
from training.analysis.arguments import EVALUATION_SEED, positive
from training.analysis.intervals import mean_interval, ratio_interval, share_interval
from training.collect.episode import run_episode
from training.io.config import UserError

MEMORIES = ("linear", "exact")


def read_exactly(policy: Any, env: Any, name: str) -> Any:
    """The policy with exact attention over all of an episode in place of linear memory."""
    config = policy.config
    if not isinstance(config, PlaceMemoryConfig) or config.memory != "linear":
        raise UserError(f"{name} must be a policy place_memory with memory linear")
    if config.rule != "sum" or config.pool_m or config.write_tokens:
        raise UserError(f"{name} must have write_tokens null and rule sum")
    settings = dataclasses.replace(config, memory="exact", exact_s=None)
    exact = build_for(settings, env)
    exact.load_state_dict(policy.state_dict())
    return exact.requires_grad_(False)


def walk(agent: Agent, seeds: Sequence[int]) -> dict[str, list[list[float]]]:
    """Reward and success of each terrain, (terrains, 2), by memory."""
    found = {}
    with agent.make_env() as env:
        linear: Any = agent.make_policy(env)
        policies = {"linear": linear, "exact": read_exactly(linear, env, agent.name)}
        for memory, policy in policies.items():
            episodes = [run_episode(env, policy, seed) for seed in seeds]
            found[memory] = [[one.reward, float(bool(one.success))] for one in episodes]
    return found


def compared(runs: Sequence[dict[str, list[list[float]]]]) -> dict[str, Any]:
    """Success and reward by memory, and the ratio of rewards, linear to exact, with intervals."""
    facts: dict[str, Any] = {}
    rewards = []
    for name in MEMORIES:
        values = np.array([run[name] for run in runs])
        reward, success = values[..., 0], values[..., 1]
        facts[name] = {"success": float(success.mean())}
        facts[name]["success_interval_95"] = share_interval(success)
        facts[name]["reward"] = float(reward.mean())
        facts[name]["reward_interval_95"] = mean_interval(reward)
        rewards.append(reward)
    facts["reward_ratio"] = float(rewards[0].mean() / rewards[1].mean())
    facts["reward_ratio_interval_95"] = ratio_interval(*rewards)
    return facts


def draw(results: dict[str, Any]) -> Any:
    """Reward with linear memory against reward with exact memory, one point per terrain."""
    plot, axes = figure.new_figure(1)
    axis = axes[0, 0]
    for name, run in results["runs"].items():
        rewards = [np.array(run[memory])[:, 0] for memory in MEMORIES]
        axis.plot(rewards[1], rewards[0], "o", markersize=3, label=name)
    axis.axline((0, 0), slope=1, color="grey", linewidth=0.8)
    axis.set(xlabel="reward, exact attention", ylabel="reward, linear attention")
    axis.legend(fontsize=7)
    return plot


def measure(arguments: Arguments) -> dict[str, Any]:
    """Every run with both memories, and the comparison. Raises UserError."""
    terrains = min(arguments.terrains, 2) if arguments.quick else arguments.terrains
    if terrains < 2:
        raise UserError("--terrains must be at least 2 for an interval, got 1")
    seeds = range(EVALUATION_SEED + arguments.seed, EVALUATION_SEED + arguments.seed + terrains)
    agents = find_agents(arguments.runs, [], None, arguments.set)
    runs = {agent.name: walk(agent, seeds) for agent in agents}
    facts = {"seeds": list(seeds), "settings": arguments.set, "runs": runs}
    return {**facts, **compared(list(runs.values()))}


def show(results: dict[str, Any]) -> Lines:
    """Success by run, then by memory with intervals, and the ratio of rewards."""
    for run, found in results["runs"].items():
        shares = {name: np.mean(values, 0)[1] for name, values in found.items()}
        yield f"{run}: " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in shares.items())
    for name in MEMORIES:
        one = results[name]
        low, high = one["success_interval_95"]
        yield (
            f"{name:<8}success {100 * one['success']:.1f} % ({100 * low:.1f} to {100 * high:.1f}), "
            f"reward {one['reward']:.3f}"
        )
    between = results["reward_ratio_interval_95"]
    if between is not None:
        low, high = between
        yield f"reward, linear to exact: {results['reward_ratio']:.3f} ({low:.3f} to {high:.3f})"


main = figure.command(
    measure, show, draw,
    figure.option("runs", nargs="+", metavar="RUN"),
    figure.option("--terrains", type=positive, default=50, help="default %(default)s"),
    figure.SET,
)  # fmt: skip
