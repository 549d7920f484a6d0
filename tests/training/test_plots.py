"""Training curves and the plot of FLOPs against reward."""

import csv
import shutil

import numpy as np
import pytest

import envs
from tests.helpers import refused
from training.algorithms.dagger import DAgger
from training.algorithms.es import EvolutionStrategies
from training.algorithms.implicit_bc import ImplicitCloning
from training.io.config import UserError
from training.io.metrics import read_metrics
from training.plots import main
from training.reports import plots
from training.reports.plots import plot_pareto

COLUMNS = EvolutionStrategies.columns(envs.STEPPING_STONES)
SWEEP_COLUMNS = ImplicitCloning.columns(envs.BIMANUAL_SWEEP)


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


@pytest.fixture
def sweep(tmp_path):
    """A run directory of cloning, which is evaluated in every second iteration."""
    directory = tmp_path / "sweep"
    directory.mkdir()
    values = dict.fromkeys(SWEEP_COLUMNS, 1.0)
    with (directory / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, SWEEP_COLUMNS)
        writer.writeheader()
        for i in range(1, 21):
            measured = i / 20 if i % 2 == 0 else np.nan
            row = {"iteration": i, "loss": 3 / i, "success": measured, "in_bowls": measured}
            writer.writerow(values | row)
    return directory


@pytest.fixture
def drawn(monkeypatch):
    """The names of the columns in each panel that is drawn, by its title."""
    found = {}

    def keep(figure, out):
        for axis in figure.axes:
            lines = {line.get_label().split(": ")[1]: line for line in axis.get_lines()}
            found[axis.get_title()] = lines

    monkeypatch.setattr(plots, "_save", keep)
    return found


def test_the_panels_are_of_columns_that_training_writes():
    for task in envs.tasks():
        written = {
            name
            for trainer in (EvolutionStrategies, ImplicitCloning, DAgger)
            for name in trainer.columns(task.env_id)
        }
        drawn = plots.panels(task.outcomes)
        assert {name for panel in drawn for name in panel.lines} <= written


def test_a_run_is_drawn_by_the_columns_that_it_has(run, sweep, drawn):
    assert main([str(run), "--out", "x.png"]) == 0
    assert [list(lines) for lines in drawn.values()] == [
        ["reward_mean", "center_reward"],
        ["distance_m_mean", "center_distance_m"],
        ["success_rate", "center_success"],
        ["level"],
    ]
    drawn.clear()
    assert main([str(sweep), "--out", "x.png"]) == 0
    assert {title: list(lines) for title, lines in drawn.items()} == {
        "loss on held-out data": ["loss", "val_loss"],
        "success in training": ["success"],
        "balls in bowls, share": ["in_bowls"],
    }
    balls = drawn["balls in bowls, share"]["in_bowls"]
    assert balls.get_xdata().tolist() == list(range(2, 21, 2))
    assert balls.get_ydata() == pytest.approx(np.arange(2, 21, 2) / 20)
    assert balls.get_marker() == "o"


def test_metrics_are_read_up_to_a_row_that_is_cut_off(run):
    curve = read_metrics(run)
    assert curve.name == "walk"
    assert curve.columns["iteration"].tolist() == [1, 2]
    assert curve.columns["wall_s"].tolist() == [60, 120]


@pytest.mark.parametrize(("x", "column"), plots.AXES.items())
def test_a_run_is_drawn_over_a_column(run, drawn, x, column):
    assert main([str(run), "--out", "x.png", "--x", x]) == 0
    line = drawn["reward per episode, search centre"]["center_reward"]
    values = read_metrics(run).columns[column]
    assert line.get_xdata() == pytest.approx(values / 60 if x == "wall" else values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("a,b\n1,2\n", "no column 'iteration'"),
        ("iteration,reward_mean\n", "value yet in a column that can be drawn, reward_mean, cen"),
        ("iteration,colour\n1,2\n", "tiles, level; their columns are iteration, colour"),
    ],
)
def test_runs_that_cannot_be_drawn(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "metrics.csv").write_text(text)
    out = tmp_path / "curve.png"
    refused(capsys, main, [str(tmp_path), "--out", str(out)], message)
    assert not out.exists()


def entry(name, flops, reward):
    return {"name": name, "flops_per_step": flops, "reward_mean": reward, "reward_sem": 0.1}


def test_pareto_draws_learned_and_scripted_policies(tmp_path):
    entries = [entry("a", 1e5, 3.0), entry("b", 1e6, 3.1), entry("oracle", None, 5.0)]
    for chosen, name in ((entries, "all.png"), (entries[2:], "scripted.png")):
        plot_pareto(chosen, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    for name in ("nowhere/x.png", "x.docx"):
        with pytest.raises(UserError, match="cannot be written"):
            plot_pareto(entries, tmp_path / name)


def test_any_name_stands_in_a_legend(tmp_path, monkeypatch, run):
    names = ["$x_{ $ 1", "_hidden", "_a$b$", "^_\\frac"]
    written = []
    save = plots._save

    def keep(figure, out):
        save(figure, out)
        (axis, *_) = figure.axes
        written.extend(text.get_text() for text in axis.get_legend().get_texts())

    monkeypatch.setattr(plots, "_save", keep)
    plot_pareto([entry(name, 1e5, 3.0) for name in names], tmp_path / "pareto.png")
    runs = [str(shutil.copytree(run, tmp_path / name)) for name in names]
    assert main([*runs, "--out", str(tmp_path / "curve.png")]) == 0
    shown = [text.replace("\\$", "$").removeprefix("\u200b") for text in written]
    lines = [f"{name}: {line}" for name in names for line in ("reward_mean", "center_reward")]
    assert sorted(shown) == sorted(names + lines)


def test_what_was_written_is_printed_and_a_name_without_suffix_is_a_png(run, tmp_path, capsys):
    assert main([str(run), str(run / "metrics.csv"), "--out", str(tmp_path / "curve")]) == 0
    out = tmp_path / "curve.png"
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("out", ["", "."])
def test_out_must_name_a_file(run, tmp_path, monkeypatch, capsys, out):
    monkeypatch.chdir(tmp_path)
    assert main([str(run), "--out", out]) == 2
    error = capsys.readouterr().err
    assert "--out must name an image (.png, .svg or .pdf), got " in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.parametrize("smooth", ["2", "9" * 30])
def test_a_trailing_mean_may_be_wider_than_the_run(run, drawn, smooth):
    assert main([str(run), "--out", "x.png", "--smooth", smooth]) == 0
    values = read_metrics(run).columns["center_reward"]
    line = drawn["reward per episode, search centre"]["center_reward"]
    assert line.get_ydata() == pytest.approx([values[0], values.mean()])
