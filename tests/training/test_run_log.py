"""The run directory: complete before training, exact after a resume, never overwritten."""

import csv
import errno
import fcntl
import json
from pathlib import Path

import pytest

from training.command.files import lock
from training.io import config as configuration
from training.io import run_log
from training.io.config import UserError
from training.io.run_log import RunLog

COLUMNS = ("iteration", "loss", "wall_s")
CONFIG = {"seed": 3, "env": {"gap_m": [0.1, 0.2]}}


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "runs" / "a"
    run_log.create(directory, CONFIG)
    return directory


def rows(run):
    with open(run / "metrics.csv", newline="") as file:
        return [[float(cell) for cell in row.values()] for row in csv.DictReader(file)]


def write(run, iterations, start=0):
    log = RunLog(run, COLUMNS, iteration=start, total=9)
    for i in iterations:
        log.row({"iteration": i, "loss": i / 3, "wall_s": 0.5 * i}, "fine")
    log.close()
    return log


def test_everything_exists_before_the_first_iteration(run):
    write(run, [])
    assert (run / "checkpoints").is_dir()
    assert configuration.read_yaml(run / "config.yaml") == CONFIG
    assert (run / "metrics.csv").read_text() == "iteration,loss,wall_s\n"
    assert list(run.glob("events.out.tfevents.*"))
    facts = json.loads((run / "provenance.json").read_text())
    assert facts["seed"] == 3
    assert facts["versions"]["torch"]
    assert facts["hardware"]["cores"] >= 1
    assert len(facts["config_sha256"]) == 64


def test_the_command_is_that_of_any_machine(monkeypatch, tmp_path):
    for program, words in (
        (Path(run_log.__file__).parents[1] / "study.py", ["python", "-m", "training.study"]),
        (tmp_path / "bin" / "foveate-study", ["foveate-study"]),
    ):
        monkeypatch.setattr("sys.argv", [str(program), "--config", "x.yaml"])
        assert run_log.provenance({})["command"] == [*words, "--config", "x.yaml"]


LOST = ["\0" * 20 + "\n", "\0\0\n3,1.0,1.5\n", "2,1.0\n", "x,1.0,1.5\n"]


@pytest.mark.parametrize("end", ["", "3,1.0,1.5\n", "3,1.", "3", "3,1.0,1.5\n4,1.3", *LOST])
def test_rows_after_the_checkpoint_are_dropped(run, end):
    write(run, [1, 2])
    whole = (run / "metrics.csv").read_bytes()
    with open(run / "metrics.csv", "a") as file:
        file.write(end)
    assert write(run, [], start=2).last == {"iteration": "2", "loss": repr(2 / 3), "wall_s": "1.0"}
    assert (run / "metrics.csv").read_bytes() == whole


def test_a_half_written_heading_is_mended_and_rows_are_exact(run):
    (run / "metrics.csv").write_text("iteration,lo")
    write(run, [1, 2])
    assert rows(run) == [[1, 1 / 3, 0.5], [2, 2 / 3, 1.0]]


@pytest.mark.parametrize("content", [b"iteration,other\n1,2\n", b"\xff\xfe\n1\n"])
def test_other_columns_are_not_overwritten(run, content):
    (run / "metrics.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"has columns .*, but this program writes"):
        write(run, [1])
    assert (run / "metrics.csv").read_bytes() == content


@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv", "checkpoints/000000.safetensors"])
def test_any_part_of_a_run_occupies_a_directory(tmp_path, name):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=rf"holds another run \({name.split('/')[0]}\)"):
        run_log.create(tmp_path, CONFIG)


def test_a_run_killed_before_its_configuration_was_written_occupies_nothing(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "provenance.json").write_text("{")
    run_log.create(tmp_path, CONFIG)
    assert configuration.read_yaml(tmp_path / "config.yaml") == CONFIG
    assert json.loads((tmp_path / "provenance.json").read_text())["seed"] == 3


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, capsys):
    def refused(error):
        def flock(descriptor, flags):
            raise OSError(error, "refused")

        return flock

    for error in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        monkeypatch.setattr(fcntl, "flock", refused(error))
        with lock(tmp_path):
            assert f"the file system of {tmp_path} has no locks" in capsys.readouterr().err
    monkeypatch.setattr(fcntl, "flock", refused(errno.EIO))
    with pytest.raises(UserError, match="cannot lock"), lock(tmp_path):
        pass


def test_runs_that_begin_in_one_second_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {run_log.new_directory("tests.envs:Toy-v0") for _ in range(5)}
    assert len(places) == 5
    assert all(place.name.startswith("toy-v0-20") for place in places)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the run directory .*Not a directory"):
        run_log.create(tmp_path / "file" / "run", CONFIG)
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UserError, match="cannot write the run directory"), lock(tmp_path):
        pass


def test_a_resume_is_recorded(run):
    (run / "checkpoints" / ".000001.safetensors.42").write_bytes(b"half a checkpoint")
    run_log.record_resume(run, 7, CONFIG | {"workers": 2})
    facts = json.loads((run / "provenance.json").read_text())
    assert [entry["iteration"] for entry in facts["resumed"]] == [7]
    assert configuration.read_yaml(run / "config.yaml")["workers"] == 2
    assert not list((run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "it is of type list, where keys"),
        ('{"resumed": 5}', "resumed = 5, but input should be a valid"),
        ('{"resumed": [{"git": 7}]}', "resumed.0.git = 7, but input should be"),
        ('{"git": NaN}', "git = nan, but input should be"),
        ("[" * 10**5 + "]" * 10**5, "no JSON: it is nested more than 100 deep"),
        ('{"a": ' + "[" * 900 + "]" * 900 + "}", "no JSON: it is nested more than 100 deep"),
    ],
)
def test_a_provenance_of_another_kind_is_one_sentence(run, text, reason):
    (run / "provenance.json").write_text(text)
    with pytest.raises(
        UserError, match=rf"cannot continue .*provenance.json is damaged, or .*{reason}"
    ):
        run_log.record_resume(run, 7, CONFIG)


def test_two_processes_never_train_in_one_directory(run):
    (run / "config.yaml").unlink()
    refused = pytest.raises(UserError, match=f"another process is writing in {run}")
    with lock(run), refused:  # of an open file, as of another process
        run_log.create(run, CONFIG)
    with lock(run):
        pass
