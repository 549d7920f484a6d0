"""Every command that is printed can be pasted into a shell."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.training.study_jobs import write_study
from training import bc, demos, es, evaluate
from training.command.errors import command_line, option, preset
from training.command.signals import exit_status

ROOT = Path(__file__).resolve().parents[2]
ODD = "it's a run; $HOME"


def test_words_are_quoted_where_a_shell_needs_it():
    line = command_line("training.es", "--resume", Path("runs") / ODD, "--set", "seed=1")
    assert shlex.split(line) == [
        "python", "-m", "training.es", "--resume", f"runs/{ODD}", "--set", "seed=1",
    ]  # fmt: skip
    assert shlex.split(option("--resume", ODD)) == ["--resume", ODD]
    assert option("--resume", "runs/a") == "--resume runs/a"


def test_a_preset_is_named_so_that_it_is_found(tmp_path, monkeypatch):
    name = "stepping_stones_finetune.yaml"
    monkeypatch.chdir(ROOT)
    assert preset(name) == Path("configs") / name
    monkeypatch.chdir(tmp_path)
    assert preset(name).is_file()


def printed(capsys):
    """The commands that were printed, as words."""
    lines = capsys.readouterr().out.splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("  ")]


def test_what_a_run_prints_can_be_pasted_and_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, {"iterations": 1})
    begin = ["--config", "es.yaml", "--out", ODD]
    assert es.main(begin) == 0
    commands = {words[2]: words[3:] for words in printed(capsys) if words[0] == "python"}
    assert list(commands) == ["training.rollout", "training.evaluate", "training.es"]
    shown = [*commands["training.evaluate"], "--episodes", "2"]
    assert evaluate.main(shown) == evaluate.main(shown) == 0
    for folder in ("evaluation", "evaluation-2"):
        assert (tmp_path / ODD / folder / "evaluation.json").is_file()
        assert (tmp_path / ODD / folder / "pareto.png").is_file()
    assert es.main(commands["training.es"]) == 0
    assert es.main(begin) == 2
    sentence = f"continue it with {option('--resume', ODD)}, or give another directory"
    assert sentence in capsys.readouterr().err


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Demonstrations of a sweep with an image of another size than any preset's."""
    out = tmp_path_factory.mktemp("demos") / "a sweep"
    words = ["--env", "BimanualSweep-v0", "--out", str(out), "--episodes", "2", "--workers", "1"]
    return out, [*words, "--set", "episode_s=0.3", "image_px=100", "balls=3"]


@pytest.mark.records
def test_demonstrations_name_the_command_that_learns_from_them(recorded, capsys):
    out, words = recorded
    assert demos.main(words) == 0
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if "training.bc" in line)
    assert "success" not in text  # of a sweep: that of all balls, beside the share of them
    assert re.search(
        r"expert, mean at the end of an episode: in_bowls 0\.\d{3}, .*reward 0\.", text
    )
    command = shlex.split(line, comments=True)
    assert command[:4] == ["python", "-m", "training.bc", "--config"]
    assert command[4].endswith("bimanual_sweep_small.yaml")
    assert command[6:] == [f"demonstrations={out}", "env.image_px=100"]
    assert bc.load_config(command[4], command[6:]).env["image_px"] == 100


def test_none_is_named_where_no_configuration_suits(tmp_path, capsys):
    words = ["--env", "tests.training.picture_env:Picture-v0", "--out", str(tmp_path / "x")]
    assert demos.main([*words, "--episodes", "2", "--workers", "1"]) == 0
    assert [words[2] for words in printed(capsys)] == ["training.demos"]


def test_an_evaluation_without_a_run_directory_is_written_where_out_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = ["--env", "tests.training.walk_env:Walk-v0", "--episodes", "1"]
    assert evaluate.main(["--policy", "blind", *task]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_closed_standard_error_ends_no_command(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert exit_status(lambda: int(sys.stderr.isatty())) == 0
    sys.stderr.close()
