"""The studies of memories: every arm is built and timed, and meets the page's conditions."""

import math
from pathlib import Path

import pytest

from training import bc, study
from training.compare import model_files as measures
from training.compare.evaluations import EvaluationJob
from training.compare.jobs import DONE
from training.compare.model_files import CostJob, Measured
from training.compare.runs import all_runs, check_policies
from training.io.state_files import read_json

FOLDER = Path(__file__).parents[2] / "configs" / "studies"
FILE = FOLDER / "remembered_terrain.yaml"
OTHERS = ("remembered_paths", "remembered_way_back", "another_camera")
WRONGLY = ", told wrongly in training"


@pytest.fixture(scope="module")
def first_seed(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    settings = study.load_config(FILE, ["seeds=[0]"])
    return settings, out, all_runs(settings, FILE, out)


def test_every_arm_is_built_and_its_cost_counted(first_seed, monkeypatch):
    """As policies that are told their cameras' geometry."""
    settings, out, runs = first_seed
    for stages in runs:
        check_policies(stages, settings.curves)
    monkeypatch.setattr(measures, "TIMED_CALLS", 1)
    costs = CostJob(settings, out, tuple(stages[-1] for stages in runs))
    costs.execute()
    assert costs.status() == DONE
    found = read_json(Measured, costs.path).costs
    assert all(cost.p50_ms and cost.p99_ms for cost in found.values())
    assert found["no memory"].state == 0
    assert found["linear harmonic F = 53"].state == 2 * 53 + 5
    assert found["exact over 1 s"].attention > 10 * found["linear harmonic F = 53"].attention


def test_all_arms_meet_the_same_conditions(first_seed):
    """Those that were cloned with poses drawn anew are evaluated at the pose that a curve names."""
    settings, out, runs = first_seed
    for curve in (None, *settings.curves):
        met = []
        for stages in runs:
            (run,) = stages
            who, job = run.directory.name, run.job
            made = EvaluationJob(settings, out, who, job.env_id, job.env, run.directory, curve)
            met.append(list(made.settings().values()))
        assert all(env["front_camera_pitch_deg"] is None for env in met[0])
        assert all(of_arm == met[0] for of_arm in met)
    drawn = {stages[0].job.env["front_camera_pitch_deg"] is None for stages in runs}
    assert drawn == {True, False}


def test_arms_are_told_wrongly_in_training_alone(first_seed):
    """Each is another arm but for that, and evaluated with what the curve says."""
    settings, out, runs = first_seed
    jobs = {stages[0].variant.name: stages[0].job for stages in runs}
    wrong = [name for name in jobs if name.endswith("told wrongly in training")]
    assert len(wrong) == 5
    for name in wrong:
        rightly = name.removesuffix(WRONGLY).removesuffix(" and told wrongly in training")
        ours, theirs = jobs[name], jobs[rightly + " in training" * rightly.startswith("GRU")]
        assert ours.policy == theirs.policy
        assert ours.env == theirs.env | {"camera_pose_error_deg": [-8.0, 8.0]}
    (curve,) = (one for one in settings.curves if one.name == "wrongly told pitch")
    run = runs[list(jobs).index(wrong[0])][0]
    where = (run.directory.name, run.job.env_id, run.job.env, run.directory)
    found = EvaluationJob(settings, out, *where, curve).settings().values()
    assert [env["camera_pose_error_deg"][0] for env in found] == [-12, -8, -4, 4, 8, 12]
    task = EvaluationJob(settings, out, *where).settings().values()
    assert [env["camera_pose_error_deg"] for env in task] == [[0.0, 0.0]]


@pytest.mark.parametrize("name", OTHERS)
def test_other_studies_of_memories_can_be_run(tmp_path, name):
    """Their arms are built, and evaluated in the same conditions."""
    path = FOLDER / f"{name}.yaml"
    settings = study.load_config(path, ["seeds=[0]"])
    runs = all_runs(settings, path, tmp_path)
    for stages in runs:
        check_policies(stages, settings.curves)
    for curve in (None, *settings.curves):
        met = [
            list(EvaluationJob(settings, tmp_path, run.directory.name, run.job.env_id, run.job.env,
                            run.directory, curve).settings().values())
            for (run,) in runs
        ]  # fmt: skip
        assert met[0]
        assert all(of_arm == met[0] for of_arm in met)


def test_the_other_camera_is_another_one():
    path = FOLDER / "another_camera.yaml"
    settings = study.load_config(path, ["seeds=[0]"])
    runs = all_runs(settings, path, Path("out"))
    (learned,) = (stages[0].job for stages in runs if stages[0].variant.name == settings.headline)
    shipped = bc.load_config(path.parents[1] / "stepping_stones_memory_learned.yaml", [])
    assert learned.policy == shipped.policy
    camera, usual = learned.env["front_camera"], shipped.env["front_camera"]
    moved_m = math.dist(camera["position_m"], usual["position_m"])
    assert moved_m == pytest.approx(0.05)
    assert (camera["fov_deg"], camera["height_px"], camera["width_px"]) == (60, 48, 64)
    same = {"front_camera": usual}
    assert learned.env | same == shipped.env
