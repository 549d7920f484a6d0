"""Searches: what may be chosen; that a stopped one comes to the same; what is refused."""

import csv
import sqlite3
import sys
from contextlib import closing
from importlib.util import find_spec

import pytest

from tests.helpers import refused
from tests.training import random_search, test_trainers
from tests.training.test_trainers import written
from training import search
from training.command.errors import NotFiniteError
from training.compare import search as searches
from training.compare.search import Choice, Interval, read_space
from training.io.config import UserError
from training.io.run_log import RunLog

needs_optuna = pytest.mark.skipif(find_spec("optuna") is None, reason="needs Optuna")


def words(folder, *more, trials=2):
    job = written(folder, {**test_trainers.SEARCH, "iterations": 3})
    return [
        "--config", str(job), "--trials", str(trials), "--metric", "reward_max", "--over", "2",
        "--search", "sigma=log:0.01:1", "candidates=2|4", *more,
    ]  # fmt: skip


def rows(out):
    with open(out / "trials.csv", newline="") as file:
        return [*csv.DictReader(file)]


def rewards(run):
    with open(run / "metrics.csv", newline="") as file:
        return [float(row["reward_max"]) for row in csv.DictReader(file)]


@needs_optuna
def test_the_best_trial_comes_first_and_can_be_run_again(tmp_path, capsys):
    out = tmp_path / "out"
    assert search.main([*words(tmp_path), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    best, worst = rows(out)
    assert float(best["reward_max"]) >= float(worst["reward_max"])
    run = out / "trials" / best["trial"]
    assert float(best["reward_max"]) == sum(rewards(run)[-2:]) / 2
    assert f"--config {run / 'config.yaml'} --set seed=1" in told
    assert f"candidates: {best['candidates']}\n" in (run / "config.yaml").read_text()


@needs_optuna
def test_a_row_lost_to_a_kill_comes_back(tmp_path):
    """The table is written after Optuna's record: a kill may come between the two."""
    out = tmp_path / "out"
    arguments = [*words(tmp_path), "--out", str(out)]
    assert search.main(arguments) == 0
    table = (out / "trials.csv").read_text()
    (out / "trials.csv").write_text(table.rpartition("\n")[0].rpartition("\n")[0] + "\n")
    assert search.main(arguments) == 0
    assert (out / "trials.csv").read_text() == table


@needs_optuna
def test_a_trial_that_cannot_be_is_noted_and_the_rest_go_on(tmp_path, monkeypatch):
    def fail(log, values, summary, row=RunLog.row):
        row(log, values, summary)
        if log._path.parent.name == "0000":
            raise NotFiniteError("the loss is nan")

    monkeypatch.setattr(RunLog, "row", fail)
    out = tmp_path / "out"
    assert search.main([*words(tmp_path), "--out", str(out)]) == 0
    good, bad = rows(out)
    assert (good["trial"], bad["trial"]) == ("0001", "0000")
    assert (bad["reward_max"], bad["reason"]) == ("", "the loss is nan")


@needs_optuna
def test_a_search_killed_while_a_trial_is_chosen_is_the_same_search(tmp_path, monkeypatch):
    """Between two settings, of the first trial and of the second."""
    from optuna.trial import Trial

    assert search.main([*words(tmp_path), "--out", str(tmp_path / "whole")]) == 0
    suggest, out = Trial._suggest, tmp_path / "out"
    for at in (1, 3):
        calls = iter(range(99))

        def killed(*given, calls=calls, at=at):
            if next(calls) == at:
                raise KeyboardInterrupt
            return suggest(*given)

        with monkeypatch.context() as patch:
            patch.setattr(Trial, "_suggest", killed)
            assert search.main([*words(tmp_path), "--out", str(out)]) != 0
    assert search.main([*words(tmp_path), "--out", str(out)]) == 0
    assert rows(out) == rows(tmp_path / "whole")


@needs_optuna
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("update trial_params set param_value = 0.5 where param_name = 'sigma'", "has sigma = 0.5"),
        ("update trial_values set value = 7", "has reward_max = 7"),
        ("update trial_params set param_value = 9 where param_name = 'candidates'", "cannot be"),
    ],
)
def test_a_changed_database_is_not_believed(tmp_path, capsys, change, said):
    assert search.main([*words(tmp_path, trials=1), "--out", str(tmp_path / "out")]) == 0
    with closing(sqlite3.connect(tmp_path / "out" / "search.db")) as database, database:
        database.execute(change)
    refused(capsys, search, [*words(tmp_path, trials=2), "--out", str(tmp_path / "out")], said)


@needs_optuna
def test_a_damaged_database_is_one_sentence(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.db").write_bytes(b"no database" * 100)
    refused(capsys, search, [*words(tmp_path, trials=2), *out], "search.db cannot be used: ")


def test_a_space_is_read():
    assert read_space(["a=1:8", "b.c=log:1e-4:0.1", "d=x|[1,2]", "e=0:1.0"]) == {
        "a": Interval(1, 8, False, True),
        "b.c": Interval(1e-4, 0.1, True, False),
        "d": Choice(("x", "[1,2]")),
        "e": Interval(0, 1, False, False),
    }
    assert read_space(["b=log:1e-5:1e-3"])["b"].setting("b", 1e-05) == "b=1e-05"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("sigma", "--search takes KEY=LOW:HIGH or KEY=A|B|C, got 'sigma'"),
        ("sigma=3:1", "--search sigma=3:1: the first number must be below the second"),
        ("sigma=log:0:1", "--search sigma=log:0:1: the first .*, and above 0"),
        ("sigma=0.1", "--search takes KEY=LOW:HIGH, KEY=log:LOW:HIGH or KEY=A|B|C of different"),
        ("sigma=a|a", "of different values, got 'sigma=a|a'"),
    ],
)
def test_another_space_is_one_sentence(word, sentence):
    with pytest.raises(UserError, match=sentence.replace("|", r"\|")):
        read_space([word])
    with pytest.raises(UserError, match="--search has a twice"):
        read_space(["a=1:2", "a=3:4"])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--search", "sigmma=1:2"], "unknown key sigmma; "),
        (["--search", "workers=0:2"], "workers = 0, but input should be greater than or equal"),
        (["--metric", "loss"], "--metric must be one of reward_max, wall_s, got loss"),
        (["--set", "sigma=0.5"], "are the same setting"),
    ],
)
def test_what_cannot_be_is_reported_before_anything_is_trained(
    tmp_path, monkeypatch, capsys, more, sentence
):
    monkeypatch.setattr("foveate_extras.require", lambda *given: None)
    monkeypatch.setattr(searches.Search, "run", None)
    refused(capsys, search, [*words(tmp_path, *more), "--out", str(tmp_path / "out")], sentence)
    assert random_search.NAME in (tmp_path / "job.yaml").read_text()


def test_an_absent_optuna_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert search.main([*words(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = 'error: training.search needs Optuna: pip install "foveate[optuna]"\n'
    assert capsys.readouterr().err == said
