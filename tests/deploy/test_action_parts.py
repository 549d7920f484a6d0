"""Exported policies of an arm and a gripper: one vector, whose contract names the parts."""

import numpy as np
import pytest
import torch

import policies
from deploy import export
from deploy.contract import contract
from deploy.runtime import Policy
from deploy.steps import step_of
from tests import helpers
from training import es
from training.collect.environments import make_env

ARM = "tests.training.arm_env:Arm-v0"


def test_the_contract_says_which_numbers_are_which_part():
    with make_env(ARM, {}) as env:
        policy = policies.build_for({}, env)
        step = step_of(policy, env.observation_space, env.action_space)
        (output,) = contract(step, env, None)["outputs"]
        observation, _ = env.reset(seed=0)
        found = step(*step.tensors(observation).values())[0]
        policy.reset()
        assert torch.equal(found, torch.from_numpy(policy.act(observation)))
    assert output["high"] == [1, 1, 2, 1, 1, 6]
    assert [(one["what"], one.get("first"), one["numbers"]) for one in output["signals"]] == [
        ("arm", 0, 2),
        ("gripper, one of 3 choices", 2, 1),
        ("tools.0, one of 2 x 2 choices", 3, 2),
        ("tools.1, one of 2 choices", 5, 1),
    ]


@pytest.mark.slow
def test_an_exported_policy_acts_in_whole_numbers_of_choices(tmp_path):
    job = {"env_id": ARM, "iterations": 1, "workers": 1, "popsize": 4, "terrains": 1}
    run = helpers.train(es, job, tmp_path / "run")
    out = ["--out", str(tmp_path / "exported"), "--observations", "20"]
    assert export.main([str(run), "--env", ARM, *out]) == 0
    policy = Policy(tmp_path / "exported")
    with make_env(ARM, {}) as env:
        observation, _ = env.reset(seed=1)
        action = policy.act(observation)
        env.step(action)
    assert np.array_equal(action[2:], action[2:].round())
