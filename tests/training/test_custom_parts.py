"""Policies, controllers and feature maps of a user's own: trained, resumed, evaluated, and never
imported by what stands in a file of somebody else."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from gymnasium import spaces

import policies
from policies.common import settings
from tests.helpers import refused
from training import bc, es, evaluate, flops, rollout
from training.io import checkpoint

DOT, PARTS = "tests.training.dot_env:Dot-v0", "tests.training.custom_parts"
PICTURE, NUMBER = spaces.Box(0, 255, (16, 20, 3), np.uint8), spaces.Box(-1.0, 1.0, (1,), np.float32)
SMALL = {
    "env_id": DOT, "popsize": 4, "terrains": 1, "center_terrains": 1, "iterations": 1, "workers": 1,
    "searcher": {"name": "pgpe"},
}  # fmt: skip


@pytest.fixture
def forgotten(monkeypatch):
    """The names that were typed are forgotten, and their module is not imported."""
    monkeypatch.setattr(settings, "ADMITTED", {})
    monkeypatch.setattr("policies.common.plugins.ADMITTED", {})
    monkeypatch.delitem(sys.modules, PARTS, raising=False)


@pytest.mark.parametrize("name", ["Normalised", "make_bare"])
def test_a_policy_of_one_s_own_is_trained_resumed_and_played(name, job, tmp_path, capsys):
    run, named = tmp_path / "run", f"{PARTS}:{name}"
    words = ["--set", f"policy.name={named}", *(["policy.gain=0.5"] if name != "make_bare" else [])]
    assert es.main(["--config", job(), "--out", str(run), *words]) == 0
    said = capsys.readouterr().out
    assert f"--custom {named}" in said
    assert f"--set iterations=2 policy.name={named}" in said
    more = ["--resume", str(run), "--set", "iterations=2", f"policy.name={named}"]
    assert es.main(more) == 0
    policy, config = checkpoint.load_policy(run)
    assert config["policy"]["name"] == named
    assert policy.gain == (2.0 if name == "make_bare" else 0.5)
    assert float(policy.normaliser.count) > 0
    played = [str(run), "--env", DOT, "--custom", named]
    assert rollout.main([*played, "--episodes", "2"]) == 0
    assert flops.main([*played, "--calls", "2"]) == 0
    capsys.readouterr()
    assert flops.main([str(run), "--env", DOT, "--own", named, "--calls", "2"]) == 0
    assert capsys.readouterr().err.count("note: --own is now --custom\n") == 1


@pytest.mark.records
def test_it_is_evaluated_by_several_processes(job, tmp_path):
    run, named = tmp_path / "run", f"{PARTS}:Cloned"
    assert es.main(["--config", job(policy={"name": named}), "--out", str(run)]) == 0
    words = [
        str(run),
        "--env",
        DOT,
        "--custom",
        named,
        "--workers",
        "2",
        "--episodes",
        "4",
        "--no-floors",
    ]
    assert evaluate.main([*words, "--out", str(tmp_path / "e")]) == 0
    (found,) = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert found["parameters"] == 21


def test_a_controller_and_a_map_of_one_s_own_are_trained_and_loaded(job, tmp_path):
    policy = {"controller": f"{PARTS}:Counting", "feature_map": f"{PARTS}:Squares", "patch": [8, 5]}
    path = job(expert_episodes=2, episodes=2, updates=2, batch_size=8, policy=policy)
    data = yaml.safe_load(Path(path).read_text())
    for key in ("popsize", "terrains", "center_terrains", "searcher"):
        data.pop(key)
    Path(path).write_text(yaml.safe_dump(data))
    assert bc.main(["--config", path, "--out", str(tmp_path / "run")]) == 0
    policy, _ = checkpoint.load_policy(tmp_path / "run")
    assert type(policy.controller).__name__ == "Counting"
    assert type(policy.selection.features).__name__ == "Squares"
    picture = PICTURE.sample()
    for step in range(3):
        policy.act(picture)
        assert float(policy._memory.state) == step + 1
    policy.reset()
    policy.act(picture)
    assert float(policy._memory.state) == 1


def test_other_settings_beside_a_name_in_a_configuration(job, tmp_path, forgotten):
    path = job(policy={"controller": f"{PARTS}:Line", "patch": [8, 5]})
    words = ["--set", "policy.init_seed=3", "num_features=4"]
    assert es.main(["--config", path, "--out", str(tmp_path / "run"), *words]) == 0


def test_objects_stand_for_their_names():
    from tests.training import custom_parts

    policy = policies.build({"name": custom_parts.Bare, "gain": 3.0}, PICTURE, NUMBER)
    assert policy.gain == 3.0
    config = policies.PolicyConfig(controller=custom_parts.Line, feature_map=custom_parts.Squares)
    policy = policies.build(config, PICTURE, NUMBER)
    assert isinstance(policy.controller, custom_parts.Line)
    assert config.controller == f"{PARTS}:Line"

    head, kernel = custom_parts.Line(960, 1), custom_parts.Squares(4, 8)
    config = policies.PolicyConfig(controller=head, feature_map=kernel)
    policy = policies.build(config, PICTURE, NUMBER)
    assert policy.controller.weight.equal(head.weight)
    assert policy.controller is not head
    assert isinstance(policy.selection.features, custom_parts.Squares)
    bare = custom_parts.Bare(PICTURE, NUMBER)
    assert policies.build({"name": bare}, PICTURE, NUMBER).line.weight.equal(bare.line.weight)
    with pytest.raises(ValueError, match="given as an object takes no options, got gain"):
        policies.build({"name": bare, "gain": 2.0}, PICTURE, NUMBER)

    class Here(custom_parts.Bare):
        pass

    again = [policies.build(policies.CustomPolicyConfig(Here), PICTURE, NUMBER) for _ in range(2)]
    assert again[0].line.weight.equal(again[1].line.weight)
    assert NUMBER.contains(again[0].act(PICTURE.sample()))


def test_an_installed_package_brings_its_names(tmp_path, monkeypatch):
    (tmp_path / "ours_1.dist-info").mkdir()
    (tmp_path / "ours_1.dist-info" / "METADATA").write_text("Name: ours\nVersion: 1\n")
    points = f"[foveate.policies]\nbare = {PARTS}:Bare\nline = {PARTS}:Line\n"
    (tmp_path / "ours_1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    assert policies.build({"name": "bare"}, PICTURE, NUMBER, trusted=False).gain == 1.0
    policy = policies.build({"controller": "line"}, PICTURE, NUMBER, trusted=False)
    assert type(policy.controller).__name__ == "Line"
    with pytest.raises(
        ValueError, match="vision_performer, cnn, bare, line, got 'bar'; module:Class"
    ):
        policies.build({"name": "bar"}, PICTURE, NUMBER)


@pytest.mark.parametrize(
    ("key", "name"), [("name", "Bare"), ("controller", "Line"), ("feature_map", "Squares")]
)
def test_a_file_imports_nothing(key, name, job, tmp_path, capsys, forgotten):
    run, named = tmp_path / "run", f"{PARTS}:{name}"
    assert es.main(["--config", job(policy={key: named}), "--out", str(run)]) == 0
    del sys.modules[PARTS]
    settings.ADMITTED.clear()
    policies.common.plugins.ADMITTED.clear()
    capsys.readouterr()
    for command, words in (
        (rollout, [str(run), "--env", DOT]),
        (es, ["--resume", str(run), "--set", "iterations=2"]),
        (es, ["--config", str(run / "config.yaml"), "--out", str(tmp_path / "other")]),
    ):
        comes = f"{named!r} comes from a file and would import {PARTS}"
        refused(capsys, command, words, comes, f"--custom {named}")
        assert PARTS not in sys.modules
    assert rollout.main([str(run), "--env", DOT, "--custom", named]) == 0


def test_a_file_takes_no_memory_by_a_known_policy(job, tmp_path):
    from tests.training import custom_parts  # noqa: F401

    named = f"{PARTS}:Wide"
    run = tmp_path / "run"
    assert es.main(["--config", job(policy={"name": named}), "--out", str(run)]) == 0
    whole = checkpoint.load(checkpoint.resolve(run))
    config = {**whole.config, "policy": {"name": named, "options": {"width": 10**11}}}
    checkpoint.save(tmp_path / "a.safetensors", whole.policy, {}, config, {})
    with pytest.raises(checkpoint.UserError, match="settings allocate 100000000023 numbers"):
        checkpoint.load_policy(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"name": f"{PARTS}:Absent"}, "cannot be imported: AttributeError"),
        (
            {"name": f"{PARTS}:NOT_A_POLICY"},
            "must be a subclass of Module or a function that makes",
        ),
        ({"name": f"{PARTS}:Bare", "gian": 1}, "got an unexpected keyword argument 'gian'"),
        ({"name": f"{PARTS}:Line"}, "policy .*:Line cannot be made: TypeError"),
        ({"name": f"{PARTS}:Deaf"}, "must have act, see docs/guide/custom_policy.md"),
        ({"controller": f"{PARTS}:Short"}, r"must give \(2, 1\) for a batch of 2, got \(2, 3\)"),
        ({"controller": f"{PARTS}:Bare"}, "controller .*:Bare cannot be made: AttributeError"),
    ],
)
def test_what_does_not_fit_is_one_sentence(policy, sentence, job, tmp_path, capsys):
    error = refused(capsys, es, ["--config", job(policy=policy), "--out", tmp_path / "run"])
    assert re.search(sentence, error), error
    assert not (tmp_path / "run").exists()


def test_cloning_needs_a_loss(job, tmp_path, capsys):
    path = tmp_path / "clone.yaml"
    path.write_text(yaml.safe_dump({"env_id": DOT, "policy": {"name": f"{PARTS}:Bare"}}))
    sentence = "has no loss(observations, actions, generator), which training.bc needs"
    refused(capsys, bc, ["--config", path, "--out", tmp_path / "run"], sentence)
