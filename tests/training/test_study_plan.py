"""What a study makes in which order, and what it does where checkpoints were removed."""

import copy
import shutil

import pytest

from tests.training.published import ROOT, needs_studies, unpacked
from tests.training.study_jobs import CURVE, STUDY, conduct, figures, files, write_study
from training import study
from training.algorithms import es_config
from training.compare.config import load_config
from training.compare.evaluations import settings_of
from training.compare.jobs import DONE
from training.compare.model_files import CostJob
from training.compare.runs import all_runs
from training.compare.study import plan
from training.io import checkpoint


@pytest.fixture(scope="module")
def light(plain, tmp_path_factory):
    """A finished study whose checkpoints were removed: its file, its directory, its page before."""
    folder = tmp_path_factory.mktemp("light")
    path, out = write_study(folder), folder / "out"
    shutil.copytree(plain[1], out)
    page = (out / "report.html").read_text()
    for directory in (out / "runs").glob("*/checkpoints"):
        shutil.rmtree(directory)
    shutil.rmtree(out / "policies")
    return path, out, page


def test_leading_variants_have_all_seeds_and_curves_first(tmp_path):
    arms = [{"name": name} for name in ("a", "b", "c")]
    changes = {"arms": arms, "baseline": "a", "curves": [CURVE], "leading_arms": 2}
    path = write_study(tmp_path, **changes)
    config, out = load_config(path), tmp_path / "out"
    labels = [unit.label for unit in plan(config, out, all_runs(config, path, out))]
    made = [label.split()[1] + (" curve" if "along" in label else "") for label in labels
            if label.startswith(("train", "evaluate")) and "oracle" not in label]  # fmt: skip
    order = list(dict.fromkeys(made))
    assert order == [
        "a-s0", "b-s0", "a-s1", "b-s1", "a-s0 curve", "b-s0 curve", "a-s1 curve", "b-s1 curve",
        "c-s0", "c-s1", "c-s0 curve", "c-s1 curve",
    ]  # fmt: skip
    assert labels.count("evaluate oracle along head wind") == 1


def test_floors_are_rows_of_the_table(tmp_path):
    arm = {"arms": STUDY["arms"][:1], "seeds": [0], "references": ["constant", "random"]}
    path = write_study(tmp_path, {"iterations": 1}, **arm, blind=True, episodes=3)
    out = tmp_path / "out"
    assert conduct(path, out) == 0
    found = figures(out)
    assert {*found} == {
        "constant.json",
        "random.json",
        "favor-m-16-s0.json",
        "favor-m-16-s0-blind.json",
    }
    assert {name for name, entry in found.items() if entry.get("blind")} == {
        "favor-m-16-s0-blind.json"
    }
    assert "action" in found["constant.json"]
    page = (out / "report.html").read_text()
    for row in ("FAVOR+ m = 16 (blind)", "constant (scripted)", "random (scripted)"):
        assert f">{row}<" in page
    assert (
        study.main(["--config", str(path), "--out", str(out), "--record", str(tmp_path / "record")])
        == 0
    )
    assert ">FAVOR+ m = 16 (blind)<" in (tmp_path / "record" / "report.html").read_text()


def test_choices_can_be_drawn_in_evaluations(tmp_path):
    job = {"env_id": "CartPole-v1", "iterations": 1}
    arm = {"arms": STUDY["arms"][:1], "seeds": [0], "references": [], "episodes": 3}
    path, out = write_study(tmp_path, job, **arm, sample_actions=True), tmp_path / "out"
    assert conduct(path, out) == 0
    entry = figures(out)["favor-m-16-s0.json"]
    assert entry["sample_actions"]
    written = (out / "study.yaml").read_text()
    assert "sample_actions: true" in written
    path.write_text(path.read_text().replace("sample_actions: true", "sample_actions: false"))
    assert conduct(path, out) == 2  # other episodes


def test_a_curve_with_repair_is_measured_with_it_everywhere(tmp_path, capsys):
    curves = [CURVE, CURVE | {"name": "wind, repaired", "repair": "holes"}]
    arm = {"arms": STUDY["arms"][:1], "seeds": [0], "curves": curves}
    path, out = write_study(tmp_path, {"iterations": 1}, **arm), tmp_path / "out"
    assert conduct(path, out) == 0
    found = {name: entry.get("repair") for name, entry in figures(out).items()}
    repaired = {f"favor-m-16-s0--wind-repaired-{x}.json" for x in ("0", "0.05")}
    assert {name for name, repair in found.items() if repair} == repaired
    assert {found[name] for name in repaired} == {"holes"}
    assert "favor-m-16-s0--head-wind-0.json" not in found  # the task's own, with nothing changed
    page = (out / "report.html").read_text()
    assert page.count("Depth images as with policy.repair = holes") == 1
    assert (out / "study.yaml").read_text().count("repair:") == 1
    capsys.readouterr()
    assert conduct(path, out) == 0
    assert "nothing to do" in capsys.readouterr().out
    curves[1]["repair"] = "full"
    assert conduct(write_study(tmp_path, {"iterations": 1}, **arm), out) == 2
    assert (
        "was measured with repair = 'holes', but the study now has 'full'"
        in capsys.readouterr().err
    )


@needs_studies
@pytest.mark.records
@pytest.mark.parametrize("name", ["stepping_stones", "bimanual_sweep", "stepping_stones_stages"])
def test_costs_of_published_studies_are_not_measured_again(name):
    """Settings that policies have been given since have the value that acts as before."""
    path, out = ROOT / "configs" / "studies" / f"{name}.yaml", unpacked(name)
    config = load_config(path)
    runs = all_runs(config, path, out)
    costs = CostJob(config, out, tuple(stages[-1] for stages in runs[: len(config.arms)]))
    assert costs.status() == DONE


def test_without_checkpoints_a_finished_study_stays_finished(light, capsys):
    path, out, page = light
    before = {name for name in files(out) if name.name != "report.html"}
    assert conduct(path, out) == 0
    assert "train" not in capsys.readouterr().out
    assert {name for name in files(out) if name.name != "report.html"} == before
    now = (out / "report.html").read_text()
    assert "not finished" not in now
    assert "policies/" not in now  # no link to what is gone
    assert now.count("<svg") == page.count("<svg")
    assert conduct(path, out) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_without_checkpoints_it_can_be_widened_and_unfinished_runs_are_trained(light, tmp_path):
    """Jobs that need a removed policy report it."""
    _, whole, _ = light
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    metrics = out / "runs" / "exact-s1" / "metrics.csv"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    (out / "evaluations" / "exact-s1.json").unlink()
    assert conduct(write_study(tmp_path, seeds=[0, 1, 2]), out) == 0
    runs = {path.name for path in (out / "runs").iterdir() if checkpoint.in_run(path)}
    assert runs == {"favor-m-16-s2", "exact-s2", "exact-s1"}
    (out / "evaluations" / "exact-s0.json").unlink()
    assert conduct(write_study(tmp_path, curves=[CURVE]), out) == 2
    page = (out / "report.html").read_text()
    assert "evaluate exact-s0: " in page
    assert "evaluate exact-s0 along head wind" in page
    assert "holds no checkpoint" in page


def test_a_condition_leaves_the_runs_settings_alone():
    """Nested settings too: a camera that a curve turns is as before in the next condition."""
    job = es_config.load_config(ROOT / "configs" / "stepping_stones.yaml", [])
    before = copy.deepcopy(job.env)
    turned = {"front_camera": {"pitch_deg": 60.0}}
    changed = settings_of(job.env_id, job.env, turned, {"front_camera": {"fov_deg": 60.0}})
    assert changed["front_camera"]["fov_deg"] == 60.0
    assert job.env == before
    assert turned == {"front_camera": {"pitch_deg": 60.0}}
