"""Whether a sweeping policy uses its images: it runs with its own and with one of another scene.

    python -m experiments.robots.sweep_sight [RUN ...] [--out DIR] [--seed S] [--quick]

RUN is a run's directory, a checkpoint or a policy that ships; without any, the hybrid that ships.
In the second column every image is the first one of a scene with other balls, and only the pose is
the policy's own: the balls that it still brings in do not depend on vision. Validation scenes, from
seed 90000."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import envs
from experiments import figure
from experiments.figure import Arguments, Lines
from training.analysis.agents import Agent, find_agents
from training.analysis.evaluator import standard_error
from training.collect.episode import Policy, run_episode
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.io.config import UserError

SHIPPED = ("bimanual_sweep_angular_8x2",)
OTHER_SCENE = VALIDATION_SEEDS_FROM + 9_000
COLUMNS = ("own pictures", "one of another scene")


class OneImage:
    """Wraps a policy so that it always observes the same image.

    Args:
        policy: what acts.
        rgb: (height, width, 3) uint8.
    """

    def __init__(self, policy: Policy, rgb: NDArray[np.uint8]) -> None:
        self._policy, self._rgb = policy, rgb

    def reset(self) -> None:
        """Begin an episode."""
        self._policy.reset()

    def act(self, observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The policy's action for the pose in the observation and the one image."""
        action: NDArray[np.float32] = self._policy.act({**observation, "rgb": self._rgb})
        return action


def in_bowls(agent: Agent, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Fraction of the balls in bowls at the end of each scene, by column."""
    with agent.make_env() as env:
        policy = agent.make_policy(env)
        seeing = [run_episode(env, policy, seed).outcomes["in_bowls"] for seed in seeds]
        rgb = env.reset(seed=OTHER_SCENE)[0]["rgb"].copy()
    undrawn = replace(agent, env_settings={**agent.env_settings, "images": False})
    with undrawn.make_env() as env:
        blind = OneImage(policy, rgb)
        unseeing = [run_episode(env, blind, seed).outcomes["in_bowls"] for seed in seeds]
    return dict(zip(COLUMNS, (seeing, unseeing), strict=True))


def show(results: dict[str, dict[str, list[float]]]) -> Lines:
    """Means, with standard errors over scenes."""
    rows = [
        (name, *(f"{mean:.3f} +- {error:.3f}" for mean, error in map(_mean, columns.values())))
        for name, columns in results.items()
    ]
    yield from figure.lines(("fraction in bowls", *COLUMNS), rows, 36, 22)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    error = standard_error(np.array(values))
    assert error is not None, "of one scene"
    return float(np.mean(values)), error


def draw(results: dict[str, dict[str, list[float]]]) -> Any:
    """Bars of the fraction of balls in bowls at the end, one pair per policy."""
    rows = [
        {"policy": name, **{column: _mean(values)[0] for column, values in columns.items()}}
        for name, columns in results.items()
    ]
    return figure.bars(rows, "policy", COLUMNS)


def measure(arguments: Arguments) -> dict[str, dict[str, list[float]]]:
    """Fractions by policy and column. Raises UserError."""
    shorter = ["episode_s=1"] if arguments.quick else []
    agents = find_agents(arguments.runs, [], None, shorter)
    for given, agent in zip(arguments.runs, agents, strict=True):
        if agent.env_id != envs.BIMANUAL_SWEEP:
            raise UserError(f"{given} was trained in {agent.env_id}, not in {envs.BIMANUAL_SWEEP}")
    first = VALIDATION_SEEDS_FROM + arguments.seed
    seeds = range(first, first + (2 if arguments.quick else 10))
    return {agent.name: in_bowls(agent, seeds) for agent in agents}


main = figure.command(
    measure, show, draw, figure.option("runs", nargs="*", metavar="RUN", default=list(SHIPPED))
)
