"""Floors of an evaluation: what a policy earns that does not observe its environment.

Random actions, the best constant action (`training.analysis.constant`), and the evaluated policy
itself, blind: it is shown the images of another episode of its own, step by step, as by the
intervention `swap` of `training.sight`; without images, all of that episode's observations.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from policies.common.observation import parts_of
from training.analysis.agents import Agent, with_best_constant
from training.analysis.intervals import Interval, mean_interval
from training.analysis.replacements import Altered, Images, image_keys, recorder, substitute
from training.collect.episode import Policy, run_episode
from training.io.config import UserError

_SCENES_FROM, _SCENES, _SHARED_BY = 99_000, 1_000, 10
"""Scenes whose observations are shown, and how many scenes are shown those of one."""


def floors_of(agents: Sequence[Agent], episodes: int) -> list[Agent]:
    """The floors of the learned agents among these, in the first one's environment with its
    settings. The search for the constant action takes no more candidates than `episodes`. A note
    is printed for a floor that its actions do not have.
    """
    learned = [one for one in agents if _is_learned(one)]
    found: list[Agent] = []
    for name in ("random", "constant") if learned else ():
        agent = Agent(name, learned[0].env_id, learned[0].env_settings)
        try:
            with agent.make_env() as env:
                if name == "constant":
                    agent = with_best_constant(agent, env, episodes)
                agent.make_policy(env)
        except UserError as error:
            print(f"note: no floor {name}: {error}", file=sys.stderr)
        else:
            found.append(agent)
    blind = [dataclasses.replace(one, name=f"{one.name} (blind)", blind=True) for one in learned]
    names = {one.name for one in agents}
    return [one for one in (*found, *blind) if one.name not in names]


class OtherEpisode:
    """Shows a policy the observations of another episode of its own.

    Args:
        agent: the policy's agent.
        env: its environment, open.
    """

    def __init__(self, agent: Agent, env: gymnasium.Env[Any, Any]) -> None:
        space = env.observation_space
        self._keys = image_keys(space) or [key for key, _ in parts_of(space)]
        self._agent, self._env = agent, env
        self._seen: tuple[int, list[Images]] | None = None

    def for_scene(self, policy: Policy, seed: int) -> Callable[[Policy], Policy]:
        """Run the other episode of the scene `seed`, unless it was the last that was run; returns
        the function that blinds the policy in that scene."""
        other = _SCENES_FROM + seed // _SHARED_BY % _SCENES
        other += other == seed
        if self._seen is None or self._seen[0] != other:
            images: list[Images] = []
            own = self._agent.for_episode(policy, self._env, other)
            run_episode(self._env, own, other, on_step=recorder(self._keys, images))
            self._seen = other, images
        shown = substitute("swap", self._seen[1], seed)
        return lambda seeing: Altered(seeing, self._keys, shown)


def compared(agents: Sequence[Agent], entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence on each learned policy: whether its mean reward is above those of all floors, by
    95 % intervals over scenes. Nothing without floors, or of single episodes.

    Args:
        agents: those evaluated.
        entries: their entries of evaluation.json, in the same order.
    """
    pairs = [pair for pair in zip(agents, entries, strict=True) if pair[1]["episodes"] > 1]
    floors = [one for agent, one in pairs if agent.blind or not _is_learned(agent)]
    for agent, entry in pairs:
        blind_ones = {f"{other.name} (blind)" for other, _ in pairs if other is not agent}
        own = [
            one for one in floors
            if one["env"] == entry["env"] and one["name"] not in ("oracle", *blind_ones)
        ]  # fmt: skip
        if agent.blind or not _is_learned(agent) or not own:
            continue
        highest = max(own, key=lambda one: _interval(one)[1])
        (low, high), floor = _interval(entry), _interval(highest)
        above = "above every floor" if low > floor[1] else "not surely above the floors"
        yield (
            f"{entry['name']}: reward {entry['reward_mean']:.3f} ({low:.3f} to {high:.3f}) is "
            f"{above}, the highest {highest['name']}: {highest['reward_mean']:.3f} "
            f"({floor[0]:.3f} to {floor[1]:.3f})"
        )


def _is_learned(agent: Agent) -> bool:
    return agent.checkpoint is not None or agent.source is not None


def _interval(entry: Mapping[str, Any]) -> Interval:
    return mean_interval(np.array([[record["reward"] for record in entry["records"]]]))
