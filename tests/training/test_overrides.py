"""`--set`: one value for each setting, however it is spelled, in every command."""

from pathlib import Path

import pytest

import configs
from tests.helpers import refused
from training import evaluate, flops, ppo, rollout
from training.algorithms.es_config import load_config
from training.analysis.agents import settings_given
from training.command.errors import UserError
from training.compare.runs import _in_turn
from training.io.overrides import assignment, fill_shorthands, merge, read_overrides

SHORT = {"episode_s": "env.episode_s", "feature_map": "policy.feature_map"}


@pytest.mark.parametrize(
    ("words", "nested"),
    [
        (["env.a.b=60", "env.a.c=40"], {"env": {"a": {"b": 60, "c": 40}}}),
        (["env={a: {b: 1}}", "env.a.c=2"], {"env": {"a": {"b": 1, "c": 2}}}),
        (["env.a.c=2", "env={a: {b: 1}}"], {"env": {"a": {"b": 1, "c": 2}}}),
        (["seed=1", "seed=1"], {"seed": 1}),
        (["env={}", "env.a=1"], {"env": {"a": 1}}),
        (["env={<<: {episode_s: 3.0}, episode_s: 4.0}"], {"env": {"episode_s": 4.0}}),
    ],
)
def test_settings_come_together(words, nested):
    assert read_overrides(words) == nested


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["seed=1", "seed=2"], "--set: seed = 1 and seed = 2 are the same setting; give one of"),
        (["a.b=1", "a={b: 2}"], "--set: a.b = 1 and a.b = 2 are the same setting"),
        (["a=[1]", "a=[1, 2]"], "a = [1] and a = [1, 2] are the same"),
        (["a=true", "a=1"], "a = True and a = 1 are the same"),
        (["env=3", "env.gap_m=1"], "--set: env = 3, where `key: value` pairs are needed"),
        (["env.a.b=1", "env.a=[2]"], "--set: env.a = [2], where `key: value` pairs are needed"),
        (["seed=010"], "--set seed: 010 is ambiguous; write 10 or 8"),
        (["env={a: [1:30]}"], "--set env: a.0: 1:30 is ambiguous; write 90"),
        (["a=" + "x" * 999, "a=1"], f"a = '{'x' * 99}... and a = 1"),
    ],
)
def test_one_setting_has_one_value(words, sentence):
    with pytest.raises(UserError) as caught:
        read_overrides(words)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["env.front_camera.fov_deg=60", "front_camera.pitch_deg=40"],
         {"front_camera": {"fov_deg": 60, "pitch_deg": 40}}),
        (["front_camera.pitch_deg=40", "env={front_camera: {fov_deg: 60}}"],
         {"front_camera": {"fov_deg": 60, "pitch_deg": 40}}),
        (["gap_m=[1, 2]", "env.gap_m=[1, 2]"], {"gap_m": [1, 2]}),
    ],
)  # fmt: skip
def test_an_environments_settings_come_together_however_they_are_spelled(words, settings):
    assert settings_given(words) == settings
    assert settings_given(words[::-1]) == settings


@pytest.mark.parametrize("command", [rollout, evaluate])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["episode_s=0.1", "--set", "episode_s=0.2"], "episode_s = 0.1 and episode_s = 0.2"),
        (["front_camera.fov_deg=60", "env={front_camera: {fov_deg: 50}}"],
         "front_camera.fov_deg = 60 and env.front_camera.fov_deg = 50 are the same setting"),
        (["front_camera.fov_deg=50", "env.front_camera=4"], "--set: env.front_camera = 4, where"),
    ],
)  # fmt: skip
def test_a_setting_given_twice_is_one_sentence(command, words, sentence, capsys):
    refused(capsys, command, ["--policy", "blind", "--set", *words], sentence)


@pytest.mark.parametrize(
    "data",
    [{"episode_s": 3}, {"env": {"episode_s": 3}}, {"episode_s": None, "env": {"episode_s": 3}},
     {"episode_s": 3, "env": None}],
)  # fmt: skip
def test_shorthands_and_what_they_stand_for_are_equal(data):
    fill_shorthands(data, SHORT, "f")
    assert data == {"episode_s": 3, "env": {"episode_s": 3}}


@pytest.mark.parametrize("nested", [2, None, True])
def test_a_shorthand_that_differs_is_one_sentence(nested):
    with pytest.raises(UserError, match=r"f: episode_s = 1 and env.episode_s = .* are the same"):
        fill_shorthands({"episode_s": 1, "env": {"episode_s": nested}}, SHORT, "f")


def test_merging_leaves_what_is_merged_alone():
    new = {"a": {"b": [1]}}
    one, other = {}, {}
    merge(one, new)
    merge(other, new)
    one["a"]["b"].append(2)
    assert (new, other) == ({"a": {"b": [1]}}, {"a": {"b": [1]}})


@pytest.mark.parametrize(
    "value",
    ["runs/a", "010", "yes", "a: b", "[", "", "it's \U0001f600", 3, 1e-5, [1, "x"], None, {}],
)
def test_an_assignment_is_read_back(value):
    assert read_overrides([assignment("key", value)]) == {"key": value}


def test_what_varies_is_set_once(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{}")
    vary = [str(recipe), "--calls", "1", "--vary", "feature_map=positive:4,softmax"]
    assert flops.main([*vary, "--set", "policy.feature_map=trig"]) == 2
    sentence = "--vary feature_map and --set policy.feature_map=trig are the same setting"
    assert sentence in capsys.readouterr().err
    assert flops.main([*vary, "--set", "num_features=2", "policy.patch=[8,8]"]) == 0
    assert "positive:4" in capsys.readouterr().out


@pytest.mark.parametrize("text", [".inf", "-.inf", ".nan"])
def test_a_number_that_is_not_finite_is_reported_as_it_was_written(text, tmp_path, capsys):
    path = tmp_path / "job.yaml"
    path.write_text(f"env: {{sensor_noise: {text}}}")
    value = float(text.replace(".", ""))
    sentence = f"sensor_noise = {value}, but input should be a finite number, not {text}"
    with pytest.raises(UserError, match=rf"job.yaml: env.{sentence}"):
        load_config(path)
    path.write_text("{}")
    with pytest.raises(UserError, match=rf"--set env.sensor_noise={text}: env.{sentence}"):
        load_config(path, [f"env.sensor_noise={text}"])
    refused(capsys, rollout, ["--policy", "blind", "--set", f"sensor_noise={text}"], sentence)


def test_an_environment_of_ones_own_is_evaluated_with_finite_settings(capsys):
    own = ["--policy", "blind", "--env", "tests.training.walk_env:Walk-v0", "--episodes", "1"]
    assert evaluate.main([*own, "--set", "wind=-.inf"]) == 2
    assert "wind = -inf, but input should be a finite number, not -.inf" in capsys.readouterr().err


def test_a_variant_of_a_study_goes_before_its_stages_however_settings_are_spelled():
    stage, arm = {"policy": {"keep": 0.5, "patch": [8, 8]}, "popsize": 4}, {"policy.keep": 0.25}
    found = _in_turn(stage, arm, {"seed": 1})
    assert found == {"policy": {"keep": 0.25, "patch": [8, 8]}, "popsize": 4, "seed": 1}
    with pytest.raises(UserError, match=r"policy.keep = 0.5 and policy.keep = 0.25 are the same"):
        _in_turn({**stage, **arm})


def test_a_preset_holds_for_its_suite_and_for_a_cnn_only_its_environment_does():
    folder = Path(configs.__file__).parent
    mini = folder / "minigrid.yaml"
    same = ppo.load_config(mini, ["env_id=MiniGrid-DoorKey-8x8-v0"])
    assert (same.policy.name, same.env["env_register"]) == ("cnn", ["minigrid"])
    other = ppo.load_config(mini, ["env_id=CartPole-v1"])
    assert (other.policy.name, other.env) == ("implicit_attention", {})
    stones = folder / "stepping_stones_ppo.yaml"
    for words in ([], ["env_id=CartPole-v1"]):
        own = ppo.load_config(stones, words)
        cnn = ppo.load_config(stones, [*words, "policy.name=cnn"])
        assert (own.learning_rate, own.temperature) == (0.003, 0.1)
        assert (cnn.learning_rate, cnn.temperature, cnn.workers) == (3e-4, 1.0, 2)
        assert cnn.env == own.env
