"""Every shipped experiment in miniature, on small data sets of our own."""

import math

import pytest

from experiments.__main__ import CONFIGS, main
from experiments.config import load_config, task
from tests.experiments.small_data import table_in

NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_experiment_runs_in_miniature(name, data_sets, tmp_path):
    out = tmp_path / "out"
    few = ("--set", "seeds=[0]")
    assert main([name, "--quick", "--data", str(data_sets), "--out", str(out), *few]) == 0
    experiment = load_config(CONFIGS / f"{name}.yaml")
    rows = table_in(out)
    assert [row["arm"] for row in rows] == [arm.name for arm in experiment.arms]
    measure = task(experiment.task).measures[0].name
    assert all(math.isfinite(float(row[measure])) for row in rows)
    assert (out / "report.html").stat().st_size > 1000
