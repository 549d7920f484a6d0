"""Tiny exported policies and their folders for the tests."""

import hashlib
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from deploy import formats
from deploy.contract import contract
from deploy.contract_file import CONTRACT, MODELS
from deploy.steps import NOISE, Step, step_of
from policies import build
from policies.vision_performer.action_search import Noted
from tests.policies import vision_cases

SPACE = spaces.Dict(
    {
        "depth": spaces.Box(0.0, 1.5, (6, 8), np.float32),
        "proprio": spaces.Box(-9.0, 9.0, (3,), np.float32),
    }
)
ACTIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)
REMEMBERS = {
    "controller": "gru", "hidden": (5,), "last_action": True, "patch": (2, 2), "variant": "rank",
    "keep_tokens": 3,
}  # fmt: skip
"""Settings of an Implicit Attention Policy with two recurrent states."""


class Still(gymnasium.Env):
    """Random observations of a space, for policies without a simulator."""

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        self._steps += 1
        return self.observation_space.sample(), 0.0, False, self._steps >= 4, {"success": True}


def remembering() -> tuple[Any, gymnasium.Env]:
    """A policy with two recurrent states and random parameters, and its environment."""
    policy = build(REMEMBERS, SPACE, ACTIONS)
    generator = torch.Generator().manual_seed(3)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=generator)
    policy.normaliser.count.fill_(4)
    policy.normaliser.m2.fill_(2)
    return policy.requires_grad_(False), Still(SPACE, ACTIONS)


def searching() -> tuple[Any, gymnasium.Env]:
    """A policy that searches for an action, and its environment."""
    policy = vision_cases.make(temperature=0.25, image_scale=1)
    env = Still(vision_cases.OBSERVATION_SPACE, vision_cases.ACTION_SPACE)
    return policy.requires_grad_(False), env


def write(folder: Path, policy: Any, env: gymnasium.Env, kind: str = "onnx") -> Step:
    """A folder without a card."""
    step = step_of(policy, env.observation_space, env.action_space)
    path = folder / MODELS[kind]
    observation, _ = env.reset(seed=0)
    formats.write(kind, step, step.example(observation), path)
    written = contract(step, env, 20.0)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    written["model"] = {"kind": kind, "file": path.name, "sha256": digest}
    (folder / CONTRACT).write_text(json.dumps(written))
    return step


def program_of(step: Step, observation: Any) -> formats.Run:
    """The graph as `torch.export` has it, not written anywhere."""
    example = step.example(observation)
    with torch.no_grad():
        module = torch.export.export(step, tuple(example.values())).module()

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            return dict(zip(step.outputs, module(*inputs.values()), strict=True))

    return run


def noise_of(policy: Any, step: Step, observation: Any) -> Tensor:
    """The noise that the policy's generator draws for its first decision."""
    noted = Noted(torch.Generator().manual_seed(step.seed))
    given = step.tensors(observation)
    with torch.no_grad():
        policy.decided(given["rgb"][None], given["pose"][None], noted)
    assert noted.plan == step.plan
    assert NOISE in step.inputs
    return torch.cat(noted.numbers)
