"""rollout, evaluate and flops on the bi-manual sweep, scripted and with a Vision-Performer."""

import numpy as np
import pytest

import policies
from tests.helpers import refused
from tests.training.video import frames_of, picture_of
from training import evaluate, flops, rollout
from training.collect.environments import make_env
from training.io import checkpoint, config
from training.video import rollout as roll

SWEEP = ["--env", "BimanualSweep-v0"]
RECIPE = """
env_id: BimanualSweep-v0
env: {image_px: 100, episode_s: 9.0, balls: 5, step_m: 0.03}
policy: {name: vision_performer, patch: [20, 20], embed_dim: 16, heads: 2, samples: 8}
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """A YAML configuration of cloning."""
    path = tmp_path_factory.mktemp("recipe") / "sweep.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="session")
def learner(tmp_path_factory, recipe):
    """A checkpoint of an untrained policy that saw small images in an easier task."""
    path = tmp_path_factory.mktemp("runs") / "learner.safetensors"
    run = config.read_yaml(recipe)
    settings = policies.VisionPolicyConfig(
        **{k: v for k, v in run["policy"].items() if k != "patch"}, patch=(20, 20)
    )
    with make_env(run["env_id"], run["env"]) as env:
        policy = policies.build(settings, env.observation_space, env.action_space)
    saved = {**run, "policy": config.dump(settings)}
    checkpoint.save(path, policy.state_dict(), {}, saved, {})
    return path


@pytest.mark.records
def test_rollout_writes_a_video_and_what_lies_in_the_bowls(tmp_path, capsys):
    video = tmp_path / "sweep.gif"
    settings = ["--set", "episode_s=0.4", "balls=4"]
    assert rollout.main(["--policy", "oracle", *SWEEP, *settings, "--video", str(video)]) == 0
    first, mean, _ = capsys.readouterr().out.splitlines()
    assert first == "seed 100000: 0.0% in bowls after 4 steps, reward 0.000"
    assert mean == "mean of 1: 0.0% in bowls, 0 succeeded, reward 0.000"
    frames = frames_of(video)
    assert [frame.shape[:2] for frame in frames] == [(544, 512)] * 2
    assert (frames[0] != frames[1]).any()


def test_a_still_shows_the_image_beside_its_attention(learner, tmp_path):
    still = tmp_path / "still.png"
    seen, drawn = [], roll.run_episode
    arguments = [str(learner), "--set", "episode_s=0.3", "--video", str(still)]

    def watched(env, policy, seed, *, on_step):
        def keep(env, observation, *rest):
            seen.append((observation["rgb"], policy.attention_map(observation)))
            on_step(env, observation, *rest)

        return drawn(env, policy, seed, on_step=keep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roll, "run_episode", watched)
        assert rollout.main([*arguments, "--still-s", "0.2"]) == 0
    picture = picture_of(still)
    rgb, attention = seen[1]
    gap = (picture.shape[1] - 2 * 400) // 3
    left = picture[6:406, gap : gap + 400]
    np.testing.assert_array_equal(left, rgb.repeat(4, 0).repeat(4, 1))
    right = picture[6:406, 2 * gap + 400 : 2 * gap + 800]
    assert left.shape == right.shape
    # White background only, so that brightness is attention's alone.
    white = (rgb.min(-1) == 255) & (attention > 0)
    light = right[::4, ::4].astype(float).sum(-1)[white]
    assert np.corrcoef(light, np.log(attention[white]))[0, 1] > 0.9


def test_feature_maps_are_compared_for_encoding_an_image(recipe, capsys):
    maps = "feature_map=positive:64,softmax,angular_hybrid:2:2"
    assert flops.main([str(recipe), "--vary", maps, "--calls", "2"]) == 0
    header, *rows = capsys.readouterr().out.split("\n\n")[1].splitlines()
    for title in ("attention FLOPs", "encoding FLOPs", "attention ms", "encoding ms", "step ms"):
        assert title in header
    assert [row.split()[0] for row in rows] == ["positive:64", "softmax", "angular_hybrid:2:2"]
    assert all(len(row.split()) == 13 for row in rows)
    assert float(rows[2].split()[2]) < 1 / 3


def test_flops_of_a_task_that_cannot_begin_are_one_sentence(recipe, capsys):
    given = [str(recipe), "--set", "env.arm_distance_m=2"]
    refused(capsys, flops, given, "arm_distance_m = 2.0: an arm there")


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (rollout, ["--policy", "oracle", *SWEEP, "--set", "arm_distance_m=2.0"], "arm_distance_m"),
        (evaluate, ["LEARNER", "--set", "image_px=110"], "patch must be [rows, columns] that divi"),
        (rollout, ["LEARNER", "--set", "image_px=120"], "holds another policy: tensor"),
        (evaluate, ["LEARNER", "--env", "SteppingStones-v0"], "was trained in BimanualSweep-v0"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(command, arguments, message, learner, capsys):
    given = [str(learner) if word == "LEARNER" else word for word in arguments]
    refused(capsys, command, given, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": {"name": "clairvoyant"}}, "policy.name is 'clairvoyant', where one of"),
        ({"env": [1]}, r"env is \[1\], where `key: value` pairs are needed"),
        ({"policy": {"name": "vision_performer", "qk_dim": 4}}, "unknown key policy.qk_dim"),
        ({"policy": {}}, "holds another policy: tensor action_high is "),
        ({"policy": {"controller": "vote"}}, "its policy does not fit here: controller vote needs"),
    ],
)
def test_a_checkpoint_whose_configuration_is_odd(learner, tmp_path, change, message):
    saved = checkpoint.load(learner)
    odd = tmp_path / "odd.safetensors"
    checkpoint.save(odd, saved.policy, {}, {**saved.config, **change}, {})
    with pytest.raises(config.UserError, match=message):
        checkpoint.load_policy(odd)
