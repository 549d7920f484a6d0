"""What type checkers know of `policies.build`: mypy reads this file (`make types`)."""

from typing import Any, assert_type

import gymnasium
import numpy as np
from gymnasium import spaces

import attention
import foveate
import policies
from foveate.attention import RandomFeatureAttention


class DotEnv(gymnasium.Env[Any, Any]):
    """Spaces alone."""

    observation_space: Any = spaces.Box(0, 255, (8, 8), np.uint8)
    action_space: Any = spaces.Box(-1.0, 1.0, (2,), np.float32)


def test_the_class_of_a_policy_follows_from_that_of_its_configuration() -> None:
    env = DotEnv()
    where = env.observation_space, env.action_space
    built = policies.build(policies.PolicyConfig(), *where)
    assert type(assert_type(built, policies.ImplicitAttentionPolicy)) is type(built)
    for_env = policies.build_for(policies.PooledPolicyConfig(), env)
    assert_type(for_env, policies.PooledVisionPerformer)
    assert isinstance(built, policies.ImplicitAttentionPolicy)
    assert isinstance(for_env, policies.PooledVisionPerformer)


def test_settings_in_a_mapping_may_build_any_policy() -> None:
    assert_type(policies.build_for({"name": "implicit_attention"}, DotEnv()), Any)


def test_the_names_under_foveate_have_the_same_types() -> None:
    assert_type(foveate.policies.PolicyConfig(), policies.PolicyConfig)
    assert_type(RandomFeatureAttention(8, 2), attention.RandomFeatureAttention)
