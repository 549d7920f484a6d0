"""Recording demonstrations: the same files for any number of workers, and none lost on errors."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest

from tests.helpers import refused
from tests.training.background import wait_for
from tests.training.limits import files_of_at_most
from tests.training.video import picture_of
from training import demos
from training.collect import pool
from training.demonstrations.reader import DemoReader, verify_demo

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "tests.training.picture_env:Picture-v0"


def arguments(out, *more, env=PICTURE, episodes=3, workers=1):
    """A command line."""
    numbers = ["--episodes", str(episodes), "--workers", str(workers)]
    return ["--env", env, "--out", str(out), *numbers, *more]


def command(*words):
    return [sys.executable, "-W", "error", "-m", "training.demos", *words]


def files(directory):
    """Bytes of all episodes and of the master file, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.rglob("*.hdf5"))}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Six episodes, recorded by one process in one go."""
    directory = tmp_path_factory.mktemp("demos") / "six"
    assert demos.main(arguments(directory, episodes=6)) == 0
    return directory


def test_it_holds_what_the_expert_saw_did_and_got(recorded):
    reader = DemoReader(recorded, env_id=PICTURE)
    assert [demo.seed for demo in reader.demos] == list(range(6))
    with gymnasium.make(PICTURE) as env:
        for demo in reader.demos:
            observation, _ = env.reset(seed=demo.seed)
            for step in range(12):
                for key, values in demo.observation(step).items():
                    np.testing.assert_array_equal(values, observation[key])
                np.testing.assert_array_equal(demo.actions[step], env.unwrapped.expert_action())
                observation, reward, *_, info = env.step(demo.actions[step])
                assert demo.rewards[step] == reward
            assert demo.final_info == {"in_bowls": info["in_bowls"], "success": 0.0}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.records)])
def test_workers_and_a_second_go_write_the_same_bytes(recorded, tmp_path, capsys, workers):
    out = tmp_path / "demos"
    assert demos.main(arguments(out, episodes=3, workers=workers)) == 0
    assert [name for name in files(out) if name != "demos.hdf5"] == [
        "000000.hdf5", "000001.hdf5", "000002.hdf5",
    ]  # fmt: skip
    (out / "episodes/000001.hdf5").unlink()
    (out / "episodes/.000004.hdf5.123").write_bytes(b"what a killed process left")
    kept = (out / "episodes/000000.hdf5").stat().st_mtime_ns
    capsys.readouterr()
    assert demos.main(arguments(out, episodes=6)) == 0
    assert "6 episodes (4 new)" in capsys.readouterr().out
    assert (out / "episodes/000000.hdf5").stat().st_mtime_ns == kept
    assert files(out) == files(recorded)
    assert not list((out / "episodes").glob(".*"))
    assert demos.main(arguments(out, episodes=6)) == 0
    assert "6 episodes (0 new)" in capsys.readouterr().out


def test_the_summary_says_and_shows_what_there_is(recorded):
    facts = json.loads((recorded / "summary.json").read_text())
    assert (facts["episodes"], facts["steps"], facts["train"] + facts["valid"]) == (6, 72, 6)
    assert facts["final_info_mean"] == {"in_bowls": 1.0, "success": 0.0}
    assert facts["recording"]["env_id"] == PICTURE
    assert facts["bytes"] == sum(p.stat().st_size for p in (recorded / "episodes").iterdir())
    assert [record["seed"] for record in facts["records"]] == list(range(6))
    reader = DemoReader(recorded)
    lowest = np.min([demo.actions.min(axis=0) for demo in reader.demos], axis=0)
    assert facts["action_min"] == lowest.tolist()
    picture = picture_of(recorded / "summary.png")
    red = (picture[..., 1] == 30) & (picture[..., 2] == 30)  # the squares in the frames
    assert red.sum() > 1000


@pytest.mark.parametrize(
    ("steps", "more", "lengths"),
    [
        ("2", ["--set", "success_at=5"], [7, 12, 7]),
        ("0", ["--set", "success_at=5"], [5, 12, 5]),
        ("-1", ["--set", "success_at=5"], [12, 12, 12]),
        ("3", ["--env", "tests.training.picture_env:Tiring-v0"], [7, 7, 7]),
    ],
)
def test_an_episode_ends_some_steps_after_success_or_the_expert_is_done(
    tmp_path, steps, more, lengths
):
    assert demos.main(arguments(tmp_path, "--after-success-steps", steps, *more)) == 0
    assert DemoReader(tmp_path).lengths.tolist() == lengths


def test_noise_moves_the_arm_and_not_the_recorded_action(tmp_path):
    """The pose adds up what was executed: in some segments the expert's, in others not."""
    more = ["--set", "steps=100", "bound=5", "--noise", "0.02"]
    assert demos.main(arguments(tmp_path, *more)) == 0
    undisturbed = []
    for demo in DemoReader(tmp_path).demos:
        poses = demo.arrays["pose"]
        np.testing.assert_array_equal(demo.actions, np.clip(-0.2 * poses, -0.4, 0.4))
        noise = (np.diff(poses, axis=0) - demo.actions[:-1])[:90].reshape(9, 10, 3)
        quiet = np.abs(noise).max(axis=(1, 2)) < 1e-5
        undisturbed += quiet.tolist()
        assert noise[~quiet].std() == pytest.approx(0.1, rel=0.2)  # 0.02 of 5
    assert 5 < sum(undisturbed) < 22  # of 27, each with probability 1/2: fails 1 time in 600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --env ID and --out DIR to record, or --verify DIR to check"),
        (["--env", "tests.training.toy_env:Toy-v0", "--out", "x"], "--env tests.training.toy_env:"),
        (
            ["--env", PICTURE, "--out", "x", "--set", "bound=.inf", "--noise", "0.1"],
            "--noise 0.1 is a share of the action's range, but the actions of",
        ),
        (["--env", PICTURE, "--out", "x", "--set", "bound=.inf"], "--set bound: a recording's"),
        (
            ["--env", PICTURE, "--out", "x", "--seed", "89998", "--episodes", "3"],
            "uses the seeds 89998 to 90000, where only 0 to 89999 may be used",
        ),
        (["--env", PICTURE, "--out", "x", "--valid-share", "1"], "from 0 to 0.9, got '1'"),
        (["--verify", "x"], "there is no x, where demonstrations should be"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    refused(capsys, demos, words, message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "7"], "was recorded with seed = 0, but here it is 7: give the same again"),
        (["--set", "steps=9"], "was recorded with env.steps = None, but here it is 9"),
    ],
)
def test_a_directory_with_other_demonstrations_is_left_alone(recorded, capsys, more, message):
    before = files(recorded)
    refused(capsys, demos, arguments(recorded, *more), message)
    assert files(recorded) == before


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints"])
def test_the_directory_of_a_training_run_is_left_alone(tmp_path, capsys, name):
    (tmp_path / name).mkdir()
    sentence = f"--out {tmp_path} holds a training run ({name}): give another directory"
    refused(capsys, demos, arguments(tmp_path), sentence)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["demos.hdf5", "episodes/000001.hdf5"])
def test_files_of_another_version_are_left_alone(recorded, tmp_path, capsys, name):
    copy = shutil.copytree(recorded, tmp_path / "copy")
    with h5py.File(copy / name, "r+") as file:
        file.attrs["version"] = 0
    before = files(copy)
    refused(capsys, demos, arguments(copy, episodes=7), f"{name} is of version 0 of foveate-demo")
    assert files(copy) == before


@pytest.mark.records
def test_verify_confirms_what_is_whole(recorded, capsys):
    assert demos.main(["--verify", str(recorded), "--workers", "1"]) == 0
    assert "6 episodes" in capsys.readouterr().out


def test_verify_reads_everything(recorded, tmp_path, capsys):
    damaged = shutil.copytree(recorded, tmp_path / "damaged")
    demo = DemoReader(damaged).demos[1]
    data = bytearray(demo.path.read_bytes())
    data[int(demo.frames["rgb"].places[3, 0]) + 9] ^= 255
    demo.path.write_bytes(data)
    words = ["--verify", damaged, "--workers", 1]
    refused(capsys, demos, words, "000001.hdf5 is not a whole file of")


def test_an_expert_that_does_not_know_stops_the_recording(tmp_path, capsys):
    sentence = ", at the reset with seed 2: the expert's action has "
    said = "recording stopped: ", sentence, "2 finished episodes are in"
    refused(capsys, demos, arguments(tmp_path, "--set", "nan_at=2"), *said)
    assert len(DemoReader(tmp_path)) == 2


def test_a_file_that_cannot_be_written_costs_no_other(tmp_path, capsys):
    """The system refuses files above a size, which only the loud episodes reach."""
    words = arguments(tmp_path, "--set", "loud_from=2", episodes=5)
    with files_of_at_most(0):
        refused(capsys, demos, words, "File too large")
    with files_of_at_most(40_000):
        stopped = "recording stopped: cannot write ", "000002.hdf5: File too large; 2 finished"
        refused(capsys, demos, words, *stopped)
    assert [demo.number for demo in DemoReader(tmp_path).demos] == [0, 1]
    assert not list((tmp_path / "episodes").glob(".*"))
    assert demos.main(words) == 0
    assert len(DemoReader(tmp_path)) == 5


@pytest.mark.parametrize(
    ("each", "workers"),
    [
        (signal.SIGINT, 1),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 2, marks=pytest.mark.records),
    ],
)
def test_a_stopped_recording_leaves_whole_episodes_and_goes_on(tmp_path, each, workers):
    slow = ["--set", "step_s=0.02", "steps=9"]
    words = command(*arguments(tmp_path, *slow, episodes=50, workers=workers))
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: len(list(tmp_path.glob("episodes/0*.hdf5"))) >= 2, process)
    process.send_signal(each)
    output, errors = process.communicate(timeout=180)
    assert "Traceback" not in errors
    if each == signal.SIGINT:
        count = len(DemoReader(tmp_path))
        assert process.returncode == 130, errors
        assert f"interrupted; {count} finished episodes are in {tmp_path}" in output
    else:
        before: dict[str, bytes] = {}
        while files(tmp_path) != before:  # its workers notice and end, on a loaded machine later
            before = files(tmp_path)
            time.sleep(1)
    left = {name: data for name, data in files(tmp_path).items() if name != "demos.hdf5"}
    assert 1 <= len(left) < 50
    assert demos.main(arguments(tmp_path, *slow, episodes=len(left) + 1)) == 0
    assert left.items() <= files(tmp_path).items()
    verify_demo(tmp_path, len(left), DemoReader(tmp_path).recording)


@pytest.mark.records
def test_a_worker_that_dies_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "RETRIES", 1)
    reason = "a worker process died (killed, or out of memory), 2 times over episode 1"
    words = arguments(tmp_path, "--set", "die_at=1", workers=2)
    refused(capsys, demos, words, f"recording stopped: {reason}; ")
