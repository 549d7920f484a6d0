"""Words that are not known: what was meant is said in every command."""

import pytest

from training import demos, es, plots, rollout, study
from training.command.errors import did_you_mean, like_files


@pytest.mark.parametrize(
    ("given", "known", "suggestion"),
    [
        ("gap_m", ["env.gap_m", "seed"], "; did you mean env.gap_m?"),
        ("env.seed", ["env.gap_m", "seed"], "; did you mean seed?"),
        ("sede", ["env.gap_m", "seed"], "; did you mean seed?"),
        ("env.gap", ["env.gap_m", "env.gaps", "seed"], "; did you mean env.gaps or env.gap_m?"),
        ("fov_deg", ["front.fov_deg", "belly.fov_deg"],
         "; did you mean front.fov_deg or belly.fov_deg?"),
        ("Softmax", ["softmax"], "; did you mean softmax?"),
        ("colour", ["seed", "env.gap_m"], ""),
        ("x", [], ""),
    ],
)  # fmt: skip
def test_what_is_meant(given, known, suggestion):
    assert did_you_mean(given, known) == suggestion


SWEEP = ["--env", "BimanualSweep-v0"]


@pytest.mark.parametrize(
    ("command", "arguments", "suggestion"),
    [
        (es, ["--set", "gap_m=[0.1,0.2]"], "unknown key gap_m; *env.gap_m"),
        (es, ["--set", "feature_map=angular_hybird"], "feature_map must be one of *angular_hybrid"),
        (es, ["--config", "configs/stepping_stone.yaml"], "*configs/stepping_stones.yaml"),
        (es, ["--resumee", "x"], "unrecognized arguments: --resumee x*--resume"),
        (rollout, ["stepping_stone"], "*stepping_stones"),
        (rollout, ["--policy", "oracle", "--set", "fov_deg=1"],
         "*front_camera.fov_deg or belly_camera.fov_deg"),
        (demos, [*SWEEP, "--out", "x", "--set", "ballz=3"], "*balls"),
        (study, ["--config", "STUDY", "--set", "baseline=FAVOR"], "one of the variants *FAVOR+"),
        (plots, ["x", "--out", "a.png", "--x", "wal"], "*wall"),
    ],
)  # fmt: skip
def test_every_command_says_what_was_probably_meant(
    command, arguments, suggestion, tmp_path, monkeypatch, capsys
):
    recipe, config = tmp_path / "recipe.yaml", tmp_path / "study.yaml"
    recipe.write_text("{}")
    config.write_text(
        "{title: a, stages: [{trainer: es, config: recipe.yaml}], baseline: FAVOR+,"
        " arms: [{name: FAVOR+}, {name: exact}]}"
    )
    shipped = es.__file__.replace("training/es.py", "configs")
    places = {"RECIPE": str(recipe), "STUDY": str(config)}
    words = [places.get(word, word).replace("CONFIGS", shipped) for word in arguments]
    if "configs/stepping_stone.yaml" not in words:
        monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    before, star, after = suggestion.partition("*")
    assert before in error
    assert f"did you mean {after}" in error.replace(f"{shipped}/", "") if after else star, error


def test_files_of_the_same_folder_come_before_others(tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder, name in ((own, "walk.yaml"), (other, "walk.yaml"), (other, "walks.yml")):
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    found = like_files(own / "walk1.yaml", other)
    assert str(own / "walk.yaml") in found
    assert str(other / "walks.yml") in found
    assert str(other / "walk.yaml") not in found
