"""Control loop of an exported policy: inputs, timing and reports."""

import time

import numpy as np
import pytest

from deploy import frames, loop
from deploy.contract_file import Port
from deploy.frames import Camera, Drawn, Recorded
from deploy.loop import main, run
from deploy.runtime import Policy
from tests.clock import Clock
from tests.deploy.folders import searching, write

RGB = Port("rgb", (20, 30, 3), np.dtype(np.uint8))


def recording(path, steps=3):
    rng = np.random.default_rng(0)
    depth = rng.uniform(0, 1.5, (steps, 6, 8)).astype(np.float32)
    np.savez(path, depth=depth, proprio=rng.normal(0, 1, (steps, 3)).astype(np.float32))
    return path


def test_decisions_begin_when_they_are_due_and_a_slow_one_delays_no_others(folder, monkeypatch):
    policy, clock = Policy(folder, late="hold"), Clock()
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(frames, "time", clock)
    observe, begun_s = Drawn(policy.contract.inputs), []

    def do(action):
        begun_s.append(clock.monotonic())
        if len(begun_s) == 3:
            clock.sleep(0.12)  # two and a bit of 50 ms

    times = run(policy, observe, do, rate_hz=20.0, steps=6)
    due = [0, 1, 2, 4, 5, 6]  # the fourth begins at once, in the time of the one missed
    assert (np.array(begun_s) - begun_s[0]) / 0.05 == pytest.approx(due, abs=0.5)
    assert times.jitter == pytest.approx([0, 0, 0, 20, 0, 0], abs=0.2)
    assert times.decision == pytest.approx([0, 0, 120, 0, 0, 0], abs=0.2)
    assert times.age == pytest.approx([0] * 6, abs=0.2)


def test_what_is_old_is_held_and_counted(folder):
    policy = Policy(folder, late="hold")
    drawn, actions = Drawn(policy.contract.inputs), []
    times = run(
        policy, lambda: (drawn()[0], time.monotonic() - 0.2), actions.append, rate_hz=0, steps=4
    )
    assert times.late == 4
    assert not np.any(actions)


def test_a_recording_is_played_again_and_its_episodes_begin_anew(folder, tmp_path):
    policy = Policy(folder)
    source = Recorded(recording(tmp_path / "seen.npz"), policy.contract.inputs)
    actions = []
    run(policy, source, actions.append, rate_hz=0, steps=6)
    np.testing.assert_array_equal(actions[:3], actions[3:])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"depth": np.zeros((2, 6, 8), np.float32)}, "must be an .npz file of each input"),
        (
            {"depth": np.zeros((2, 6, 8)), "proprio": np.zeros((3, 3))},
            r"as many steps of each input, got \[2, 3\]",
        ),
        ({"depth": np.array([{}]), "proprio": np.zeros((1, 3))}, "allow_pickle=False"),
    ],
)
def test_a_recording_of_others_is_refused(folder, tmp_path, arrays, sentence):
    np.savez(tmp_path / "seen.npz", **arrays)
    with pytest.raises(ValueError, match=sentence):
        Recorded(tmp_path / "seen.npz", Policy(folder).contract.inputs)


def test_a_recording_cannot_fill_the_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "_LARGEST_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "seen.npz", depth=np.zeros(1 << 18, np.float32))
    with pytest.raises(ValueError, match="must unpack to at most 1048576 bytes, got 10487"):
        Recorded(tmp_path / "seen.npz", Policy(folder).contract.inputs)


def film(path, pictures=5):
    cv2 = pytest.importorskip("cv2")
    written = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 20, (60, 40))
    for _ in range(pictures):
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[..., 2] = 250  # red, as OpenCV has it
        written.write(picture)
    written.release()
    return path


def test_a_video_is_read_frame_by_frame(tmp_path):
    camera = Camera(str(film(tmp_path / "film.avi")), RGB, {"pose": np.zeros(2)})
    seen = [camera()[0] for _ in range(5)]
    assert seen[0]["rgb"].shape == RGB.shape
    assert seen[0]["rgb"].dtype == np.uint8
    assert seen[0]["rgb"][..., 0].min() > 200
    assert seen[0]["rgb"][..., 1:].max() < 50
    with pytest.raises(EOFError, match="no more frames"):
        camera()
    camera.close()


def grey(seen):
    return seen[0]["rgb"].mean()


def test_a_live_camera_yields_its_latest_frame():
    pytest.importorskip("cv2")
    from tests.deploy.network_camera import network_camera

    with network_camera() as there:
        there.send(20)
        camera = Camera(there.address, RGB, {})
        assert grey(camera()) < 20.5
        there.send(180)
        looks = 0
        while grey(camera()) < 190 and looks < 100:  # one look for each picture were too few
            looks += 1
            time.sleep(0.05)
        assert looks < 100
        there.end()
        camera._thread.join()
        assert camera()[1] == camera()[1] < time.monotonic()  # it is seen on, and grows old
        camera.close()


def test_addresses_and_devices_are_live_and_videos_are_not(tmp_path):
    for source in (0, "rtsp://robot/stream", "http://robot:8080/", "/dev/null"):
        assert frames._is_live(source)
    for source in (str(tmp_path / "film.avi"), "pictures/%03d.png", "file:///film.avi", ""):
        assert not frames._is_live(source)


def test_the_command_tells_percentiles_and_writes_each_decision(folder, tmp_path, capsys):
    seen = str(recording(tmp_path / "seen.npz"))
    log = tmp_path / "times.csv"
    assert main([str(folder), "--rate", "0", "--steps", "20"]) == 0
    assert "20 decisions, 0 observations too old" in capsys.readouterr().out
    words = [str(folder), "--recorded", seen, "--rate", "200", "--steps", "4", "--log", str(log)]
    assert main(words) == 0
    told = capsys.readouterr().out
    for line in ("a decision, ms: 50 %", "its computing, ms: 50 %", "start delay, ms:"):
        assert line in told
    table = np.loadtxt(log, delimiter=",", skiprows=1)
    assert table.shape == (4, 4)
    assert (table[:, 2] > 0).all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rate", "-1"], "--rate must be a number from 0 to 10000, got -1.0"),
        (["--steps", "0"], "--steps must be from 1 to 100000000, got 0"),
        (["--camera", "0"], "--camera is for policies with one image, uint8 (rows, columns, 3)"),
        (["--recorded", "absent.npz"], "must be an .npz file of each input"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder, capsys, words, sentence):
    assert main([str(folder), *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_a_camera_feeds_a_policy_of_images(tmp_path, capsys):
    write(tmp_path, *searching())
    path = film(tmp_path / "film.avi")
    assert main([str(tmp_path), "--camera", str(path), "--rate", "0"]) == 0
    assert "5 decisions" in capsys.readouterr().out
    assert main([str(tmp_path), "--camera", str(tmp_path / "absent.avi")]) == 2
    assert "cannot be opened" in capsys.readouterr().err
