"""Implicit attention inside Stable-Baselines3: what it is given, what learns, what is kept."""

import subprocess
import sys
from itertools import cycle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import policies
import tests.training.dot_env  # noqa: F401 - registers Dot-v0

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage

SETTINGS = {"features_dim": 8, "patch": (4, 4), "keep": 0.4}
COLOURS = spaces.Box(0, 255, (16, 20, 3), np.uint8)
SPACES = {
    "colours last": COLOURS,
    "colours first": spaces.Box(0, 255, (3, 16, 20), np.uint8),
    "grey": spaces.Box(0, 255, (16, 20), np.uint8),
    "frames": spaces.Box(0, 255, (4, 16, 20, 3), np.uint8),
    "floats": spaces.Box(0.0, 1.0, (16, 20, 3), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (16, 20), np.float32),
    "vector": spaces.Box(-2.0, 2.0, (5,), np.float64),
    "choice": spaces.Discrete(4),
    "one choice": spaces.Discrete(1),
    "choices": spaces.MultiDiscrete([3, 2, 4]),
    "switches": spaces.MultiBinary(6),
    "many": spaces.Dict(
        {
            "camera": COLOURS,
            "range": spaces.Box(0.0, 5.0, (12, 12), np.float32),
            "gear": spaces.Discrete(5),
            "speed": spaces.Box(-1.0, 1.0, (3,), np.float32),
        }
    ),
}


class AnySpaceEnv(gymnasium.Env):
    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def stacked(samples):
    if isinstance(samples[0], dict):
        return {key: stacked([one[key] for one in samples]) for key in samples[0]}
    return torch.as_tensor(np.stack(samples))


@pytest.mark.parametrize(("kind", "normalize_images"), list(zip(SPACES, cycle([True, False]))))
def test_features_are_the_same_as_the_environment_gives_observations_and_as_they_are_prepared(
    kind, normalize_images
):
    space = SPACES[kind]
    space.seed(3)
    samples = [space.sample() for _ in range(4)]
    plain = policies.ImplicitAttentionExtractor(space, **SETTINGS).eval()
    given = plain(stacked(samples))

    env = DummyVecEnv([lambda: AnySpaceEnv(space)])
    moved = VecTransposeImage(env) if kind in ("colours last", "many") else env
    prepared_space = moved.observation_space
    if moved is not env:
        assert prepared_space != space
        samples = [moved.transpose_observations(one) for one in samples]
    extractor = policies.ImplicitAttentionExtractor(prepared_space, **SETTINGS).eval()
    prepared = preprocess_obs(stacked(samples), prepared_space, normalize_images)
    features = extractor(prepared)
    assert features.shape == (4, 8)
    torch.testing.assert_close(features, given, rtol=1e-4, atol=1e-5)
    if kind != "one choice":
        assert not torch.equal(features[0], features[1])


@pytest.mark.parametrize("variant", ["masking", "rank", "trans"])
def test_gradients_of_features_reach_queries_and_keys(variant):
    extractor = policies.ImplicitAttentionExtractor(COLOURS, **SETTINGS, variant=variant)
    images = torch.randint(0, 256, (4, 16, 20, 3), dtype=torch.uint8)
    extractor(images).square().sum().backward()
    for parameter in extractor.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


def learner(algorithm, kind):
    policy = "MultiInputPolicy" if kind == "dict" else "CnnPolicy"
    options = {"n_steps": 48, "n_epochs": 2} if algorithm is PPO else {"learning_starts": 12}
    if algorithm is SAC:
        options["buffer_size"] = 100
    kwargs = {
        "features_extractor_class": policies.ImplicitAttentionExtractor,
        "features_extractor_kwargs": SETTINGS,
    }
    env = gymnasium.make("Dot-v0", kind=kind)
    model = algorithm(policy, env, policy_kwargs=kwargs, batch_size=16, seed=0, **options)
    model.set_logger(Logger(None, []))
    return model


@pytest.mark.parametrize(("algorithm", "kind"), [(PPO, "colours"), (SAC, "dict")])
def test_ppo_and_sac_train_queries_and_keys_and_load_what_they_saved(algorithm, kind, tmp_path):
    model = learner(algorithm, kind)
    network = model.policy if algorithm is PPO else model.critic
    selection = network.features_extractor.policy.selection
    before = {name: value.clone() for name, value in selection.named_parameters()}
    model.learn(96 if algorithm is PPO else 30)
    for name, value in selection.named_parameters():
        assert not torch.equal(value, before[name])

    model.save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model")
    observation = model.get_env().reset()
    expected, _ = model.predict(observation, deterministic=True)
    np.testing.assert_array_equal(again.predict(observation, deterministic=True)[0], expected)


def test_vectors_are_normalised_by_what_was_trained_on_once_training_mode_ends():
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    extractor = policies.ImplicitAttentionExtractor(space, features_dim=4)
    seen = 100 + 5 * torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    extractor.train()
    first = extractor(seen)
    torch.testing.assert_close(extractor(seen), first)
    assert extractor.running_statistics.count == 0
    extractor.eval()
    assert extractor.running_statistics.count == 128
    torch.testing.assert_close(
        extractor.running_statistics.mean, seen.double().mean(0), rtol=1e-6, atol=1e-6
    )
    assert not torch.equal(extractor(seen), first)
    assert extractor.running_statistics.count == 128


def test_target_networks_of_sac_have_the_statistics_of_the_critic():
    model = learner(SAC, "dict")
    model.learn(20)
    critic = model.critic.features_extractor.running_statistics
    target = model.critic_target.features_extractor.running_statistics
    assert critic.count > 0
    torch.testing.assert_close(target.mean, critic.mean)
    torch.testing.assert_close(target.m2, critic.m2)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"controller": "vote"}, "controller must be mlp in a features extractor, got 'vote'"),
        ({"controller": "lstm"}, "controller must be mlp in a features extractor, got 'lstm'"),
        ({"last_action": True}, "last_action must be false and repair none"),
        ({"repair": "full"}, "last_action must be false and repair none"),
        ({"features_dim": 0}, "features_dim must be at least 1, got 0"),
        ({"patches": (4, 4)}, "unknown key patches"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        policies.ImplicitAttentionExtractor(COLOURS, **settings)


def test_policies_load_without_stable_baselines_and_the_extractor_names_the_extra():
    program = (
        "import sys, policies\nprint('stable_baselines3' in sys.modules)\n"
        "sys.modules['stable_baselines3'] = None\n"
        "from policies import *\n"
        "try:\n    from policies import ImplicitAttentionExtractor\n"
        "except ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "False\n"
        'policies.ImplicitAttentionExtractor needs Stable-Baselines3: pip install "foveate[rl]"\n'
    )
