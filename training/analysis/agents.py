"""Agents: a policy from a checkpoint, a scripted or a custom one, each with its environment."""

import argparse
import copy
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gymnasium
import torch

import envs
from policies import compile_act
from policies.common.sampling import Sampled
from policies.common.scripted import Constant
from policies.common.settings import Repair
from training.analysis.arguments import EVALUATION_SEED, SCRIPTED, admitted
from training.analysis.constant import action_of, best_constant
from training.collect import environments
from training.collect.callables import as_policy, import_object, is_import_path
from training.collect.checked import EnvironmentFault
from training.collect.env_settings import requested
from training.collect.environments import make_env
from training.collect.episode import Policy
from training.io import checkpoint, config
from training.io.config import UserError


@dataclass(frozen=True)
class Agent:
    """A policy by name and the environment it acts in; picklable."""

    name: str
    env_id: str
    env_settings: dict[str, Any]
    """Keywords of `gymnasium.make`, all of them where the environment's settings are known."""
    checkpoint: Path | None = None
    """The file of a learned policy; None for others."""
    device: str = "cpu"
    repair: Repair | None = None
    """Repair of depth images in place of a learned policy's own setting; None: its own."""
    source: str | None = None
    """"module:name" of a policy in Python, as the user typed it; with neither this nor a checkpoint
    the policy is a scripted one, whose name is in SCRIPTED."""
    own: tuple[str, ...] = ()
    """Custom components that a checkpoint may name, as "module:Class"."""
    force: bool = False
    """Whether it also runs with another robot or other cameras than in training."""
    action: Any = None
    """Plain numbers of the action that the policy `constant` repeats."""
    blind: bool = False
    """Whether it is shown the observations of another episode, see `training.analysis.floors`."""
    sample_actions: bool = False
    """Whether choices are drawn by their probabilities, with the episode's seed."""

    @property
    def task(self) -> envs.Task | None:
        """The description of the agent's environment, or None if it has none."""
        return envs.find_task(self.env_id)

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """The environment, open; the caller closes it."""
        mode = {} if render_mode is None else {"render_mode": render_mode}
        return make_env(self.env_id, self.env_settings, **mode)

    def make_policy(self, env: gymnasium.Env) -> Policy:
        """The policy for `env`, one made by `make_env`."""
        if self.source is not None:
            own = as_policy(import_object(self.source), env, self.source)
            return self._sampled(own) if self.sample_actions else own
        if self.action is not None:
            return Constant(action_of(env.action_space, self.action))
        if self.checkpoint is None:
            return scripted_policy(self.name, env, EVALUATION_SEED)
        for name in self.own:
            admitted(name)
        policy, _ = checkpoint.load_policy(self.checkpoint, env, self.repair, force=self.force)
        compiled = cast(Policy, compile_act(policy.to(self.device)))
        return self._sampled(compiled) if self.sample_actions else compiled

    def _sampled(self, policy: Policy) -> Policy:
        """The policy with sampled actions. Raises UserError where it has no probabilities."""
        try:
            return Sampled(policy)
        except ValueError as error:
            raise UserError(f"--sample-actions: {self.name} cannot: {error}") from None

    def for_episode(self, policy: Policy, env: gymnasium.Env, seed: int) -> Policy:
        """`policy`, or a fresh random one: an episode must not depend on those before it."""
        if isinstance(policy, Sampled):
            policy.seed(seed)
        random = self.checkpoint is None and self.name == "random"
        return scripted_policy("random", env, seed) if random else policy


def scripted_policy(name: str, env: gymnasium.Env, seed: int) -> Policy:
    """A scripted policy: the oracle, zero actions or random ones; raises UserError if `env` has no
    expert, no zero action, or no actions that can be drawn."""
    from policies.common import scripted

    identity, space = envs.name_of(env), env.action_space
    if name == "random":
        try:
            return scripted.Random(env, seed)
        except ValueError as error:
            what = "have no bounds" if isinstance(space, gymnasium.spaces.Box) else f"are {space}"
            raise UserError(
                f"--policy random: the actions of {identity} {what}, but {error}"
            ) from None
    if name == "blind":
        if not isinstance(space, gymnasium.spaces.Box):
            raise UserError(
                f"--policy blind: the actions of {identity} are not a Box of numbers, all 0"
            )
        return scripted.Blind(env)
    if not env.has_wrapper_attr("expert_action"):
        raise UserError(f"--policy {name}: environment {identity} has no scripted expert")
    return scripted.Oracle(env)


def trained_in(given: str, own_env: str, env_id: str | None) -> str:
    """The environment of a policy, as --env names it if it is given: only a name typed there may
    import a module. Raises UserError if --env names another than the run's."""
    if env_id is not None and not environments.same(env_id, own_env):
        raise UserError(f"--env {env_id}: {given} was trained in {own_env}")
    return env_id or own_env


def find_agent(arguments: argparse.Namespace, recorded: bool = False) -> Agent:
    """The one agent of a command line with the positional `run`, see `find_agents`. Raises
    UserError."""
    if len(arguments.policy) + (arguments.run is not None) != 1:
        raise UserError(f"give one RUN_OR_CHECKPOINT, or one --policy {'|'.join(SCRIPTED)}")
    (agent,) = agents_of(arguments, [] if arguments.run is None else [arguments.run], recorded)
    return agent


def agents_of(
    arguments: argparse.Namespace, files: Sequence[str], recorded: bool = False
) -> list[Agent]:
    """The agents of a command line with the arguments of `add_arguments`, see `find_agents`. Raises
    UserError."""
    return find_agents(
        files, arguments.policy, arguments.env, arguments.set, arguments.device, arguments.repair,
        own=arguments.custom, force=arguments.force, recorded=recorded,
        sample_actions=arguments.sample_actions,
    )  # fmt: skip


def find_agents(
    files: Sequence[str],
    scripted: Sequence[str],
    env_id: str | None,
    overrides: Sequence[str],
    device: str = "cpu",
    repair: Repair | None = None,
    own: Sequence[str] = (),
    force: bool = False,
    recorded: bool = False,
    sample_actions: bool = False,
) -> list[Agent]:
    """The agents by run or checkpoint and by scripted policy, each checked: its environment and
    policy are built, and an episode can begin.

    `overrides` are `key=value` settings of the environment, `repair` is for the learned policies,
    `scripted` policies run on the task of the first run, and `own` are custom components that files
    may name, as the user typed them; with `force` policies also run with other cameras. Settings of
    `recorded` episodes are finite. Raises UserError."""
    changes = settings_given(overrides)
    check_device(device)
    agents = []
    for file in files:
        if is_import_path(file):
            if env_id is None:
                raise UserError(f"{file} requires --env ID")
            settings = environments.resolved(env_id, changes)
            agents.append(Agent(file, env_id, settings, source=file, sample_actions=sample_actions))
            continue
        path = checkpoint.resolve(file)
        trained = checkpoint.load(path).config
        own_env = trained.get("env_id", environments.DEFAULT)
        named = trained_in(file, own_env, env_id)
        own_settings = requested(environments.embodiment(named, trained.get("env", {})), own)
        settings = _changed(named, own_settings, changes)
        name, custom = _name(file, path), tuple(own)
        if trained.get("sample_actions") is True and not sample_actions:
            print(
                f"note: {name} was trained with actions that are drawn, and acts by the most "
                "probable ones here; --sample-actions draws them",
                file=sys.stderr,
            )
        agents.append(
            Agent(
                name, named, settings, path, device, repair, own=custom, force=force,
                sample_actions=sample_actions,
            )
        )  # fmt: skip
    played = agents[0].env_id if agents else env_id or environments.DEFAULT
    if agents and environments.settings_class(played) is None:
        task = agents[0].env_settings  # all settings of an undescribed environment are the task's
    else:
        task = _changed(played, {}, changes) if scripted else {}
    agents += [Agent(name, played, task) for name in scripted]
    agents = _with_distinct_names(agents)
    for i, agent in enumerate(agents):
        if recorded:
            config.check_finite(agent.env_settings, f"the environment of {agent.name}")
        with agent.make_env() as env:
            if agent.name == "constant" and agent.checkpoint is None:
                agents[i] = agent = with_best_constant(agent, env)
            policy = agent.make_policy(env)
            _note_another_body(agent, policy, env)
            env.reset(seed=EVALUATION_SEED)
    return agents


def _changed(env_id: str, own: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """All settings of an environment, with changes. UserError for one that has no effect."""
    settings = copy.deepcopy(own)
    config.merge(settings, changes)
    settings = environments.resolved(env_id, settings)
    environments.check_effect(env_id, changes, own, settings)
    return settings


def with_best_constant(agent: Agent, env: gymnasium.Env, most: int | None = None) -> Agent:
    """The agent `constant` with the best action of at most `most` candidates. Raises UserError."""
    try:
        action = best_constant(env, most)
    except (FloatingPointError, EnvironmentFault) as error:
        raise UserError(f"--policy constant: {error}") from None
    if action is None:
        raise UserError(
            f"--policy constant: the actions of {envs.name_of(env)} are {env.action_space}, "
            f"from which no constant action can be listed"
        )
    print(f"note: the best constant action found is {action}", file=sys.stderr)
    return dataclasses.replace(agent, action=action)


def _note_another_body(agent: Agent, policy: Policy, env: gymnasium.Env) -> None:
    """Print a note if a policy runs on a robot other than the one it was trained with."""
    if agent.checkpoint is None or getattr(policy, "reads_geometry", False):
        return
    trained = checkpoint.load(agent.checkpoint).config
    other = environments.other_robot(env, trained["env_id"], trained["env"])
    if other:
        print(
            f"note: {agent.name} was trained with another {', '.join(other)} and does not adapt",
            file=sys.stderr,
        )


def settings_given(overrides: Sequence[str]) -> dict[str, Any]:
    """The environment's settings that `key=value` overrides give; `env.key=value` is the same.

    Raises UserError if one cannot be read or two give a setting different values.
    """
    changes = config.read_overrides(overrides)
    nested = changes.pop("env", {})
    if not isinstance(nested, dict):
        raise UserError(f"--set: env = {nested!r}, where `key: value` pairs are needed")
    config.merge_distinct(changes, nested, "--set", new_key="env.")
    return changes


def check_device(device: str) -> None:
    """Raise UserError when PyTorch cannot compute on `device` here."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"device {device} cannot be used here: {reason}") from None


def device_name(device: str) -> str:
    """The model name of a GPU, such as NVIDIA H100 80GB HBM3; the name of any other device."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device


def _name(given: str, path: Path) -> str:
    """runs/a -> a; runs/a/checkpoints/000100.safetensors -> a/000100; else the file's stem."""
    if Path(given).is_dir():
        return Path(given).resolve().name
    if path.parent.name == checkpoint.CHECKPOINTS:
        return f"{path.resolve().parents[1].name}/{path.stem}"
    return path.stem


def _with_distinct_names(agents: list[Agent]) -> list[Agent]:
    """Agents by name; the checkpoint is appended to equal names."""
    names = [agent.name for agent in agents]
    result: dict[str, Agent] = {}
    for agent in agents:
        name = agent.name
        if agent.checkpoint is not None and names.count(name) > 1:
            name = f"{name} ({agent.checkpoint})"
        if name in result:
            raise UserError(f"policy {name} is given twice; give it once")
        result[name] = dataclasses.replace(agent, name=name)
    return list(result.values())
