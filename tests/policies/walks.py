"""Walks of the scripted expert over stones, for policies that go through steps in their order."""

import numpy as np
import torch

import policies

FRONT = {"cameras": ("front",), "front_camera": {"pitch_deg": 45}}
"""Settings of stones that are seen ahead."""
ARMS = {
    "linear": {},
    "delta": {"rule": "delta", "pool_m": 0.02},
    "trig": {"feature_map": "trig", "num_features": 32},
    "exact": {"memory": "exact", "exact_s": 0.5},
    "grid": {"memory": "grid"},
    "fitted grid": {"memory": "grid", "fit_pitch": True},
    "none": {"memory": "none"},
    "learned keys": {"keys": "learned"},
    "learned keys, exact": {"keys": "learned", "memory": "exact", "exact_s": 0.3},
    "gru": {"memory": "gru"},
    "last action": {"last_action": True},
    "vote": {"controller": "vote"},
    "learned choice": {"write_tokens": 128},
    "random choice": {"write_tokens": 16, "write_choice": "random"},
}
"""Settings of policies that remember places, of every kind."""


def build(env, **settings):
    """The policy that remembers places, for that environment."""
    return policies.build_for({"name": "place_memory", **settings}, env)


def walked(env):
    """Observations of the expert's walks over two terrains, one by one and as parts (steps, ...),
    its actions, and where a walk begins."""
    seen, actions, starts = [], [], []
    for seed in (3, 4):
        observation, _ = env.reset(seed=seed)
        for step in range(9 - seed):
            seen.append(observation)
            actions.append(env.unwrapped.expert_action())
            starts.append(step == 0)
            observation = env.step(actions[-1])[0]
    parts = {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in seen[0]}
    return seen, parts, torch.from_numpy(np.stack(actions)), torch.tensor(starts)
