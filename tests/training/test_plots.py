"""Training curves and the plot of FLOPs against reward."""

import csv

import numpy as np
import pytest

from training.config import UserError
from training.es import COLUMNS
from training.plots import PANELS, main, plot_pareto, read_metrics


@pytest.fixture
def run(tmp_path):
    """A run directory with three iterations, the last one still being written."""
    directory = tmp_path / "walk"
    directory.mkdir()
    rows = [[i, 100 * i, 10 * i, *np.linspace(0, 1, len(COLUMNS) - 4), 60.0 * i] for i in (1, 2)]
    with (directory / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
        file.write("3,300")
    return directory


def test_the_panels_are_of_columns_that_training_writes():
    assert {name for lines in PANELS.values() for name, _, _ in lines} <= set(COLUMNS)


def test_metrics_are_read_up_to_a_row_that_is_cut_off(run):
    curve = read_metrics(run)
    assert curve.name == "walk"
    assert curve.columns["iteration"].tolist() == [1, 2]
    assert curve.columns["wall_s"].tolist() == [60, 120]


@pytest.mark.parametrize("x", ["iteration", "wall", "episodes", "steps"])
def test_the_command_draws_runs(run, tmp_path, x):
    out = tmp_path / f"{x}.png"
    assert main([str(run), str(run / "metrics.csv"), "--out", str(out), "--x", x]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("a,b\n1,2\n", "no column 'iteration'"),
        ("iteration,reward_mean\n", "measured iteration"),
    ],
)
def test_runs_that_cannot_be_drawn(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "metrics.csv").write_text(text)
    out = tmp_path / "curve.png"
    assert main([str(tmp_path), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def entry(name, flops, reward):
    return {"name": name, "flops_per_step": flops, "reward_mean": reward, "reward_sem": 0.1}


def test_pareto_draws_learned_and_scripted_policies(tmp_path):
    entries = [entry("a", 1e5, 3.0), entry("b", 1e6, 3.1), entry("oracle", None, 5.0)]
    for chosen, name in ((entries, "all.png"), (entries[2:], "scripted.png")):
        plot_pareto(chosen, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        plot_pareto([entry("a", 1e5, 3.0)], tmp_path / "nowhere" / "x.png")
    with pytest.raises(UserError, match="cannot be written"):
        plot_pareto([entry("a", 1e5, 3.0)], tmp_path / "x.docx")
