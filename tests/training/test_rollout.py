"""The episode loop, and the rollout command on a small environment."""

import math
import pickle

import gymnasium
import numpy as np
import pytest

from tests.clock import Clock
from tests.helpers import refused
from tests.training import walk_env
from training import rollout
from training.collect.episode import PolicyError, run_episode
from training.video import rollout as live
from training.video.rollout import LiveWindow

WALK = ["--env", "tests.training.walk_env:Walk-v0"]


class Always:
    """The same action every time; counts its resets."""

    def __init__(self, value):
        self.action = np.full(9, value, np.float32)
        self.resets = 0

    def reset(self):
        self.resets += 1

    def act(self, observation):
        return self.action


@pytest.fixture
def env():
    with gymnasium.make("Walk-v0") as env:
        yield env


def test_an_episode_adds_up_what_the_environment_says(env):
    policy = Always(1.0)
    episode = run_episode(env, policy, 7)
    assert (episode.seed, episode.steps, episode.success) == (7, 10, True)
    assert episode.reward == pytest.approx(1.0)
    assert episode.outcomes == {"distance_m": env.unwrapped.x, "fell": 0.0}
    assert episode.info["distance_m"] == env.unwrapped.x
    assert policy.resets == 1
    assert pickle.loads(pickle.dumps(episode)) == episode


def test_a_fall_ends_the_episode(env):
    episode = run_episode(env, Always(-1.0), 7)
    assert episode.outcomes["fell"] == 1.0
    assert not episode.success
    assert episode.steps < 4


def test_seed_and_options_reach_the_environment(env):
    run_episode(env, Always(1.0), 3, options={"gap_m": (0.1, 0.2)})
    assert env.unwrapped.resets == [(3, {"gap_m": (0.1, 0.2)})]


def test_on_step_sees_the_observation_that_the_action_answers(env):
    seen = []

    def keep(env, observation, action, reward, policy):
        seen.append((observation["proprio"][0], action[0], reward, policy))

    policy = Always(0.5)
    episode = run_episode(env, policy, 0, on_step=keep)
    assert [time for time, *_ in seen] == list(range(10))
    assert sum(reward for _, _, reward, _ in seen) == episode.reward
    assert all(action == 0.5 and who is policy for _, action, _, who in seen)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_action_that_is_not_finite_is_an_error_before_the_environment_sees_it(env, bad):
    with pytest.raises(PolicyError, match=r"policy output .*step 0 .*seed 5"):
        run_episode(env, Always(bad), 5)
    assert env.unwrapped.t == 0


def test_rewards_that_are_not_finite_are_an_error(env):
    broken = gymnasium.wrappers.TransformReward(env, lambda reward: math.nan)
    with pytest.raises(FloatingPointError, match="rewards of the episode with seed 5"):
        run_episode(broken, Always(1.0), 5)


def test_the_command_prints_every_episode_and_their_mean(capsys):
    arguments = ["--policy", "oracle", "--episodes", "2", "--seed", "100", *WALK]
    assert rollout.main(arguments) == 0
    first, second, mean = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("seed 100: 1.0")
    assert second.startswith("seed 101: ")
    assert "stayed up after 10 steps" in second
    assert mean.startswith("mean of 2: 1.0")
    assert "2 succeeded" in mean
    assert rollout.main(["--policy", "blind", "--set", "wind=0.1", *WALK]) == 0
    assert "1 of 1 fell" in capsys.readouterr().out


def test_the_live_window_is_drawn_in_real_time(monkeypatch):
    shown = []
    monkeypatch.setattr(walk_env.WalkEnv, "render", lambda self: shown.append(self.t))
    clock = Clock()
    monkeypatch.setattr(live, "time", clock)
    env = walk_env.WalkEnv()
    env.render_mode = "human"
    run_episode(env, Always(1.0), 0, on_step=LiveWindow(env, fps=100))
    assert clock.now_s - 100.0 == pytest.approx(0.1, abs=1e-3)  # ten steps
    assert shown == list(range(1, 11))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one RUN_OR_CHECKPOINT, or one --policy"),
        (["--policy", "oracle", "--policy", "blind"], "give one"),
        (["--policy", "oracle", "--env", "Pendulum-v1"], "has no scripted expert"),
        (["--policy", "blind", "--env", "CartPole-v1"], "not a Box"),
        (["--policy", "random", "--set", "bound=.inf", *WALK], "actions of Walk-v0 have no bounds"),
        (["--policy", "random", "--episodes", "0"], "at least 1"),
        (["--policy", "random", "--device", "meta"], "device meta cannot be used here: "),
        (["--policy", "random", "--set", "wind"], "key=value"),
        (["--policy", "oracle", "--set", "env=5"], "env = 5, where `key: value` pairs are needed"),
        (["--policy", "random", "--video", ""], "--video must name a file, got ''"),
        (["--policy", "random", "--video", "film.avi"], ".mp4, .webm, .webp, .gif, .png"),
        (["--policy", "random", "--video", "a.mp4", "--render"], "cannot be combined"),
        (
            ["--policy", "random", "--video", "a.png", "--still-s", "nan", *WALK],
            "--still-s must be",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(arguments, message, capsys):
    refused(capsys, rollout, arguments, message)


def test_a_live_window_needs_a_display(monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    refused(capsys, rollout, ["--policy", "random", "--render"], "--video FILE")


def test_an_image_that_needs_what_is_not_installed_is_one_sentence(monkeypatch, capsys, tmp_path):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(walk_env.WalkEnv, "render", render)
    film = tmp_path / "film.mp4"
    sentence = f"{WALK[1]} cannot be drawn here: pygame is not installed"
    refused(capsys, rollout, ["--policy", "oracle", "--video", str(film), *WALK], sentence)
    assert list(tmp_path.iterdir()) == []
