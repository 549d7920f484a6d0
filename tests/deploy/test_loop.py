"""Control loop of an exported policy: inputs, timing and reports."""

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pytest

from deploy import frames, loop
from deploy.contract_file import Port
from deploy.frames import Camera, Drawn, Recorded, StreamEndError
from deploy.loop import STOPPED, main, run
from deploy.runtime import Policy, StaleError
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


class Fails:
    """Observations that fail from the third decision on, for a number of decisions."""

    def __init__(self, policy, how, count):
        self.drawn, self.how, self.count, self.calls = Drawn(policy.contract.inputs), how, count, 0

    def __call__(self):
        self.calls += 1
        seen, seen_s = self.drawn()
        if 2 < self.calls <= 2 + self.count:
            if self.how == "end":
                raise StreamEndError("the stream has ended")
            if self.how == "nothing":
                return None
            seen["proprio"][1] = {"nan": np.nan, "inf": np.inf}.get(self.how, 0)
            seen_s -= 0.2 if self.how == "old" else 0
        return seen, seen_s


@pytest.mark.parametrize("how", ["old", "end", "nan", "inf", "nothing"])
@pytest.mark.parametrize("count", [2, 9])
def test_the_watchdog_holds_then_stops(folder, how, count):
    policy, actions = Policy(folder, late="hold"), []
    source = Fails(policy, how, count)
    times = run(policy, source, actions.append, rate_hz=0, steps=6, hold=2, stop=[0.5, -0.5])
    assert np.array_equal(actions[2], actions[1])
    assert np.array_equal(actions[3], actions[1])
    assert (times.late, times.missing) == ((min(count, 3), 0) if how == "old" else
                                           (0, min(count, 3)))  # fmt: skip
    if count == 2:
        assert len(actions) == 6
        assert not times.stopped
    else:
        assert len(actions) == 5
        assert actions[4].tolist() == [0.5, -0.5]
        assert "stopped by the watchdog: 3 decisions without a usable obs" in times.report()
    assert actions[-1].dtype == np.float32


def test_an_error_leaves_a_stop_action_behind(folder):
    actions = []
    policy = Policy(folder, late="error")
    with pytest.raises(StaleError):
        run(policy, Fails(policy, "old", 1), actions.append, rate_hz=0, steps=6)
    assert len(actions) == 3
    assert not actions[2].any()
    times = run(policy, Fails(policy, "end", 1), actions.append, rate_hz=0, steps=6)
    assert times.stopped
    assert len(actions) == 6
    with pytest.raises(ValueError, match=r"stop must be at most 1\.0, got 3\.0"):
        run(policy, Fails(policy, "old", 1), actions.append, rate_hz=0, steps=6, stop=[3, 0])


@pytest.mark.parametrize(
    ("stamp", "wrong"),
    [
        (time.time, "from the future"),
        (lambda: time.monotonic() - 1e5, "hours older than the loop"),
        (lambda: float("nan"), "no number"),
    ],
)
def test_time_stamps_of_another_clock_are_refused(folder, stamp, wrong):
    policy, actions = Policy(folder, late="hold"), []
    seen = Drawn(policy.contract.inputs)()[0]
    with pytest.raises(ValueError, match=f"clock time.monotonic, .*{wrong}"):
        run(policy, lambda: (seen, stamp()), actions.append, rate_hz=0, steps=3)
    assert not np.any(actions)


def test_a_wall_clock_can_be_given(folder):
    policy = Policy(folder, late="hold")
    seen = Drawn(policy.contract.inputs)()[0]
    observe = lambda: (seen, time.time() - 0.2)  # noqa: E731
    times = run(policy, observe, lambda _: None, rate_hz=20, steps=2, clock=time.time)
    assert times.age == pytest.approx([200, 200], abs=40)
    assert times.late == 2


def test_a_recording_is_played_again_and_its_episodes_start_again(folder, tmp_path):
    policy = Policy(folder)
    source = Recorded(recording(tmp_path / "seen.npz"), policy.contract.inputs)
    actions = []
    run(policy, source, actions.append, rate_hz=0, steps=6)
    np.testing.assert_array_equal(actions[:3], actions[3:])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"depth": np.zeros((2, 6, 8), np.float32)}, "must be an .npz file of each input"),
        ({"depth": np.zeros((2, 6, 8)), "proprio": np.zeros((3, 3))}, r"as many steps of each inp"),
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


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((20, 30), 76),
        ((1, 20, 30), 76),
        ((3, 20, 30), [250, 0, 0]),
        ((20, 30, 4), 76),
        ((2, 20, 30, 3), 83),
    ],
)
def test_frames_become_grey_or_channels_first(tmp_path, shape, found):
    camera = Camera(str(film(tmp_path / "film.avi")), Port("x", shape, np.dtype(np.uint8)), {})
    picture = camera()[0]["x"]
    assert picture.shape == shape
    assert camera()[0]["x"].shape == shape
    means = picture.mean((1, 2)) if shape[0] == 3 else picture.mean()
    assert means == pytest.approx(found, abs=4)


def test_stacked_frames_are_those_of_the_last_decisions():
    camera = Camera.__new__(Camera)
    camera._port, camera._history = Port("x", (3 + 1, 2, 6), np.dtype(np.uint8)), []
    camera._axis, camera._shape = frames._stack(camera._port.shape)
    numbers = iter(range(9))
    camera._frame = lambda: ({"x": np.full((2, 6), next(numbers), np.uint8)}, 0.0)
    found = [camera()[0]["x"][:, 0, 0].tolist() for _ in range(5)]
    assert found == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4]]


def test_a_video_is_read_frame_by_frame(tmp_path):
    camera = Camera(str(film(tmp_path / "film.avi")), RGB, {"pose": np.zeros(2)})
    seen = [camera()[0] for _ in range(5)]
    assert seen[0]["rgb"].shape == RGB.shape
    assert seen[0]["rgb"].dtype == np.uint8
    assert seen[0]["rgb"][..., 0].min() > 200
    assert seen[0]["rgb"][..., 1:].max() < 50
    with pytest.raises(EOFError, match="the video has no more frames"):
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
        while grey(camera()) < 190 and looks < 100:  # one look for each image were too few
            looks += 1
            time.sleep(0.05)
        assert looks < 100
        there.end()
        camera._thread.join()
        with pytest.raises(StreamEndError, match="has ended"):
            _ = [camera() for _ in range(2)]  # a last frame is returned once
        camera.close()


def test_a_camera_connects_again_if_asked():
    pytest.importorskip("cv2")
    from tests.deploy.network_camera import network_camera

    with network_camera() as there:
        there.send(20)
        camera = Camera(there.address, RGB, {}, reconnect=True)
        assert grey(camera()) < 20.5
        there.end()
        time.sleep(0.1)
        before_s, there.over = camera()[1], False
        there.send(250)
        end_s = time.monotonic() + 10
        while camera()[1] == before_s and time.monotonic() < end_s:
            time.sleep(0.05)
        assert camera()[1] > before_s
        there.end()
        camera.close()


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
    ("limit_s", "words", "found_s"),
    [
        (None, ["--rate", "0"], None),
        (None, ["--rate", "0", "--camera", "0"], 1.0),
        (0.2, ["--rate", "20"], 0.2),
        (0.2, ["--rate", "20", "--max-age", "3"], 3.0),
    ],
)
def test_the_rate_limits_the_age_where_nothing_else_does(folder, tmp_path, limit_s, words, found_s):
    shutil.copy(folder / "model.onnx", tmp_path)
    contract = json.loads((folder / "contract.json").read_text()) | {"max_age_s": limit_s}
    (tmp_path / "contract.json").write_text(json.dumps(contract))
    policy, _ = loop._policy(loop._parser().parse_args([str(tmp_path), *words]))
    assert policy._max_age_s == found_s


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rate", "-1"], "--rate must be a number from 0 to 10000, got -1.0"),
        (["--camera", "0"], "--camera is for policies with one image, uint8 (rows, columns, 3)"),
        (["--max-age", "0"], "--max-age must be above 0, got 0.0"),
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


LIVE = """
import sys
from deploy import loop
status = loop.main(sys.argv[1:])
print("status", status)
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["healthy", "ends", "stalls"])
def test_a_live_camera_is_watched_and_closed(tmp_path, how):
    pytest.importorskip("cv2")
    from tests.deploy.network_camera import network_camera

    write(tmp_path, *searching())
    with network_camera() as there:
        there.send(200)
        if how == "ends":
            threading.Timer(6.0, there.end).start()
        words = ["--camera", there.address, "--rate", "20", "--steps", "600"]
        words += {"healthy": ["--max-age", "60", "--steps", "5"], "ends": ["--max-age", "60"]}.get(
            how, []
        )
        done = subprocess.run(
            [sys.executable, "-c", LIVE, str(tmp_path), *words], capture_output=True, text=True
        )
    assert done.returncode == (0 if how == "healthy" else STOPPED), done.stderr
    assert "FATAL" not in done.stderr
    assert ("stopped by the watchdog" in done.stdout) == (how != "healthy")


def test_without_opencv_a_camera_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"read by OpenCV, .* pip install opencv-python-headless"):
        Camera(0, RGB, {})


def member(data, name="depth.npy", kind=zipfile.ZIP_STORED):
    """An archive with one member of these bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def numbers(array, **more):
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), **more)
    return file.getvalue()


GOOD = member(numbers(np.zeros((3, 6, 8), np.float32)), kind=zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"PK", GOOD[:-30], GOOD[:60] + b"\xff" * 8 + GOOD[68:],
        GOOD.replace(b"\x08\x00", b"\x63\x00"), GOOD.replace(b"PK\x01\x02", b"PK\x01\x03"),
        member(numbers([None], allow_pickle=True)), member(b"\x93NUMPY\x01\x00\x05\x00{'de("),
        member(b"no array"), member(b"\x93NUMPY\x09\x00"), member(b"", "depth"),
        member(numbers(np.zeros(3)).replace(b"(3,)", b"(9,)")),
        member(numbers(np.zeros(3)).replace(b"<f8", b"|V9")), member(numbers(3.0)),
        member(numbers(np.zeros((0, 6, 8)))), np.lib.format.magic(1, 0),
    ],
)  # fmt: skip
def test_a_damaged_recording_is_one_sentence(folder, tmp_path, capsys, data):
    path = tmp_path / "seen.npz"
    path.write_bytes(data)
    assert main([str(folder), "--recorded", str(path), "--rate", "0", "--steps", "2"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"deploy.loop: {path} must ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["#EXTM3U\n/etc/passwd\n", "ffconcat version 1.0\nfile a.mp4\n", "<MPD>", "v=0\n", None]
)
def test_a_video_is_no_pipe_and_no_list_of_other_files(tmp_path, text):
    path = tmp_path / "film.mp4"
    os.mkfifo(path) if text is None else path.write_text(text)
    for source in (path, f"file:{path}", tmp_path):
        with pytest.raises(ValueError, match="must be a camera, its address, or a video file"):
            Camera(str(source), RGB, {})
    if text is None:
        with pytest.raises(ValueError, match=r"must be an .npz file of each input: there is no"):
            Recorded(path, (RGB,))
