"""rollout, evaluate and flops on checkpoints of real policies in the real environment."""

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import envs
import policies
from tests.helpers import refused
from tests.training.video import picture_of
from training import evaluate, flops, rollout
from training.algorithms.command import print_next
from training.analysis.step_cost import ATTENTION, COMPONENTS, count
from training.collect.environments import make_env
from training.es import ESConfig, load_config
from training.io import checkpoint, config

SETTINGS = """
env_id: SteppingStones-v0
env: {episode_s: 0.6, margin_reward: 2.0, gap_m: [0.02, 0.06], foothold_forward_m: 0.1}
seed: 3
"""
SHORT = ["--set", "episode_s=0.3"]


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """A YAML configuration."""
    path = tmp_path_factory.mktemp("recipe") / "short.yaml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="session")
def run(tmp_path_factory, recipe):
    """A run directory with one checkpoint of an untrained policy."""
    directory = tmp_path_factory.mktemp("runs") / "first"
    (directory / "checkpoints").mkdir(parents=True)
    settings: ESConfig = load_config(recipe, ["policy.keep=0.25"])
    with make_env(settings.env_id, settings.env) as env:
        policy = policies.build(settings.policy, env.observation_space, env.action_space)
    path = directory / "checkpoints" / "000007.safetensors"
    checkpoint.save(path, policy.state_dict(), {}, config.dump(settings), {})
    return directory


def test_an_image_shows_a_quarter_kept_and_the_rest_red(run, tmp_path, capsys):
    out = tmp_path / "still.png"
    assert rollout.main([str(run), "--video", str(out), "--still-s", "0.2", *SHORT]) == 0
    assert "after 6 steps" in capsys.readouterr().out
    picture = picture_of(out).astype(int)
    insets = np.stack([picture[8:104, left : left + 128] for left in (8, 144)])
    red = (insets[..., 0] > 130) & (insets[..., 0] > 1.5 * insets[..., 1])
    assert red.mean() == pytest.approx(0.75, abs=0.02)


def test_a_run_is_evaluated_in_the_task_and_not_in_its_training(
    run, tmp_path, capsys, few_timed_calls
):
    arguments = [str(run), "--policy", "blind", "--episodes", "2", *SHORT]
    assert evaluate.main([*arguments, "--out", str(tmp_path / "e")]) == 0
    learned, blind = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert learned["name"] == "first"
    settings, task = learned["env_settings"], blind["env_settings"]
    assert {key for key in task if settings[key] != task[key]} == {"foothold_forward_m"}
    assert task["gap_m"] == [0.1, 0.2]
    assert "environments differ in foothold_forward_m" in capsys.readouterr().err
    assert learned["flops_per_step"] == sum(learned["flops_by_component"].values()) > 1e4
    assert learned["parameters"] > 0
    assert len(learned["checkpoint_sha256"]) == 64
    assert [record["steps"] for record in learned["records"]] == [6, 6]


@pytest.mark.parametrize("env_id", [envs.STEPPING_STONES, envs.BIMANUAL_SWEEP])
def test_every_setting_that_comes_with_a_policy_exists(env_id):
    known = envs.find_task(env_id)
    assert set(known.embodiment) < {field.name for field in dataclasses.fields(known.settings)}


def test_a_run_knows_its_environment(run, capsys):
    refused(capsys, rollout, [str(run), "--env", "Pendulum-v1"], "was trained in SteppingStones-v0")


def test_flops_of_a_run_and_of_its_configuration_agree(run, recipe, tmp_path, capsys):
    files = tmp_path / "run.json", tmp_path / "recipe.json"
    quick = ["--calls", "3", "--json"]
    assert flops.main([str(run), *quick, str(files[0])]) == 0
    assert flops.main([str(recipe), *quick, str(files[1]), "--set", "policy.keep=0.25"]) == 0
    one, other = (next(iter(json.loads(f.read_text())["policies"].values())) for f in files)
    assert one["flops"] == other["flops"]
    assert one["total"] == sum(one["flops"].values()) == sum(one["operators"].values())
    assert one["flops"]["other"] == 0
    assert all(one["flops"][component] > 0 for component in COMPONENTS)
    assert "controller" in capsys.readouterr().out


def test_a_configured_policy_that_fits_in_no_memory_is_one_sentence(recipe, capsys):
    sentence = "short.yaml num_features=100000000000: its policy does not fit here: "
    refused(capsys, flops, [str(recipe), "--set", "num_features=100000000000"], sentence)


def test_flops_take_a_configuration_of_either_trainer(tmp_path, capsys):
    clone = tmp_path / "clone.yaml"
    clone.write_text("updates: 9\npolicy: {controller: mlp, hidden: [8]}\n")
    assert flops.main([str(clone), "--calls", "1", "--set", "num_features=4"]) == 0
    assert "clone.yaml num_features=4" in capsys.readouterr().out
    clone.write_text("updates: 9\nbatchsize: 8\n")
    refused(capsys, flops, [clone], "unknown key batchsize; the keys known there are batch_size")


def test_feature_maps_are_compared_in_one_command(recipe, tmp_path, capsys):
    maps = "feature_map=positive:16,softmax,angular_hybrid:8:4"
    figures = tmp_path / "figures.json"
    arguments = [str(recipe), "--vary", maps, "--calls", "3", "--json", str(figures)]
    assert flops.main([*arguments, "--set", "policy.keep=0.25"]) == 0
    _, beside = capsys.readouterr().out.split("\n\n")
    header, *rows = beside.splitlines()
    assert header.split()[:4] == ["variant", "attention", "FLOPs", "ratio"]
    assert "encoding" not in header
    assert [row.split()[0] for row in rows] == ["positive:16", "softmax", "angular_hybrid:8:4"]
    first, exact, hybrid = json.loads(figures.read_text())["policies"].values()
    assert float(rows[0].split()[2]) == 1.0
    assert float(rows[1].split()[2]) == pytest.approx(
        exact["attention"] / first["attention"], abs=5e-4
    )
    # The same as when each is asked for alone.
    alone = ["feature_map=angular_hybrid", "num_features=8", "num_lambda_features=4"]
    arguments = [str(recipe), "--calls", "1", "--json", str(figures)]
    assert flops.main([*arguments, "--set", "policy.keep=0.25", *alone]) == 0
    (asked,) = json.loads(figures.read_text())["policies"].values()
    assert asked["flops"] == hybrid["flops"]
    assert hybrid["attention"] == sum(hybrid["flops"][part] for part in ATTENTION)


def test_flops_of_a_place_memory_are_counted_part_by_part(capsys):
    assert flops.main(["configs/stepping_stones_memory.yaml", "--calls", "2"]) == 0
    title, costs = capsys.readouterr().out.splitlines()
    found = dict(zip(title.split()[1:], costs.split()[-len(title.split()) + 1 :], strict=True))
    for part in ("tokenising", "projection", "exponentials", "score", "controller"):
        assert int(found[part].replace(",", "")) > 1000, part
    assert int(found["state"]) == 106 + 3 + 2  # sums, their units, odometry


def test_any_field_can_be_varied(recipe, capsys):
    assert flops.main([str(recipe), "--vary", "policy.patch=[4,4],[8,8]", "--calls", "1"]) == 0
    table, _ = capsys.readouterr().out.split("\n\n")
    assert [row[:6] for row in table.splitlines()[1:]] == ["[4, 4]", "[8, 8]"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("feature_map", "--vary takes KEY=VALUE,VALUE,..., got 'feature_map'"),
        ("feature_map=trig:1:2:3", "a feature map is NAME, NAME:m or NAME:m:n, got 'trig:1:2:3'"),
        ("feature_map=trig,trig", "--vary feature_map: trig is given twice"),
        ("feature_map=trig:many", "num_features = 'many'"),
        ("policy.patch=[4,4],[0,5]", "patch must be [rows, columns] of at least 1"),
    ],
)
def test_mistakes_in_what_varies_are_one_sentence(recipe, given, message, capsys):
    refused(capsys, flops, [str(recipe), "--calls", "1", "--vary", given], message)


def test_a_trained_policy_cannot_be_varied(run, capsys):
    given = [str(run), "--vary", "feature_map=trig,softmax"]
    refused(capsys, flops, given, f"--vary changes YAML configurations; {run} is")


def test_flops_of_policies_of_one_name_are_distinguished(run, tmp_path, capsys):
    same = tmp_path / run.name
    same.symlink_to(run)
    assert flops.main([str(run), str(same), "--calls", "1"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [str(run), str(same)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{recipe}", "--set", "feature_map=softmaxx"], "softmaxx"),
        (["{run}", "--set", "num_features=8"], "--set changes YAML"),
        (["{recipe}", "--device", "quantum"], "device quantum"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["{recipe}", "--json", ""], "--json must name a file, got ''"),
        (["{recipe}", "--calls", "1", "--json", "/proc/nowhere/x.json"], "--json /proc/nowhere"),
    ],
)
def test_flops_mistakes_are_one_sentence(arguments, message, run, recipe, capsys):
    refused(capsys, flops, [a.format(run=run, recipe=recipe) for a in arguments], message)


@pytest.mark.parametrize(
    ("variant", "feature_map", "controller"),
    [("rank", "angular_hybrid", "mlp"), ("trans", "positive", "vote")],
)
def test_every_kind_of_policy_can_be_counted(variant, feature_map, controller):
    settings = policies.PolicyConfig(
        variant=variant, feature_map=feature_map, controller=controller
    )
    with make_env("SteppingStones-v0", {}) as env:
        observation, _ = env.reset(seed=100_000)
        policy = policies.build(settings, env.observation_space, env.action_space)
        counter = count(lambda: policy.act(observation))
    assert np.isfinite(counter.total)
    assert counter.by_component["controller"] > 0


def test_what_to_do_next_can_be_pasted(capsys):
    """Paths with spaces are one word, and a custom environment is named."""
    print_next(3, Path("runs/with space"), "mine:Walk-v0")
    print_next(3, Path("runs/plain"), "SteppingStones-v0")
    rollout, evaluate, plain, _ = (
        shlex.split(line) for line in capsys.readouterr().out.splitlines() if "python" in line
    )
    for words in (rollout, evaluate):
        assert words[3:6] == ["runs/with space", "--env", "mine:Walk-v0"]
    assert plain[3:5] == ["runs/plain", "--video"]
