"""The studies of memories: every variant is built and timed, and fits the page's conditions."""

from pathlib import Path

import pytest

from training import study
from training.compare import model_files as measures
from training.compare.evaluations import EvaluationJob
from training.compare.jobs import DONE
from training.compare.model_files import CostJob, Measured
from training.compare.runs import all_runs, check_policies
from training.io.state_files import read_json

pytestmark = pytest.mark.records
FOLDER = Path(__file__).parents[2] / "configs" / "studies"
FILE = FOLDER / "remembered_terrain.yaml"
OTHERS = ("remembered_paths", "remembered_way_back", "another_camera")


@pytest.fixture(scope="module")
def first_seed(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    settings = study.load_config(FILE, ["seeds=[0]"])
    return settings, out, all_runs(settings, FILE, out)


def test_every_variant_is_built_and_its_cost_counted(first_seed, monkeypatch):
    """Settings of policies that observe their cameras' poses."""
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


def test_all_variants_meet_the_same_conditions(first_seed):
    """Variants cloned with random poses are evaluated at the pose that a curve names."""
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


@pytest.mark.parametrize("name", OTHERS)
def test_other_studies_of_memories_can_be_run(tmp_path, name):
    """Their variants are built, and evaluated in the same conditions."""
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
