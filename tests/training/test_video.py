"""Pictures and films: what they show, and that their files are what they claim."""

import re
import subprocess
import sys
from pathlib import Path

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
import pytest

from tests.training import walk_env  # noqa: F401 - registers Walk-v0
from training import rollout
from training.config import UserError
from training.overlays import FAR_M, INSET_SCALE, MARGIN, NEAR_M, compose, depth_picture
from training.video import FrameWriter

ROOT = Path(__file__).resolve().parents[2]


def film(tmp_path, name, *more):
    path = tmp_path / name
    arguments = ["--policy", "oracle", "--env", "tests.training.walk_env:Walk-v0"]
    assert rollout.main([*arguments, "--video", str(path), *more]) == 0
    assert [file.name for file in tmp_path.iterdir()] == [name]
    return path


def test_near_is_bright_and_masked_is_red():
    depth = np.array([[NEAR_M, FAR_M, FAR_M], [NEAR_M, 9.0, NEAR_M]])
    kept = np.array([[True, True, True], [True, False, False]])
    picture = depth_picture(depth, kept)
    assert picture.dtype == np.uint8
    assert (picture[0, 0] == 255).all()
    assert (picture[0, 1] == 0).all()
    for pixel in (picture[1, 1], picture[1, 2]):
        red, green, blue = (int(value) for value in pixel)
        assert red > 2 * max(green, blue)


def test_both_cameras_are_inset_top_left_and_the_frame_is_left_alone():
    frame = np.full((480, 640, 3), 10, np.uint8)
    depths = np.full((2, 24, 32), NEAR_M)
    kept = np.ones((2, 24, 32), bool)
    kept[1, :12] = False
    picture = compose(frame, depths, kept, "1.23 m")
    assert (frame == 10).all()
    front = picture[MARGIN : MARGIN + 24 * INSET_SCALE, MARGIN : MARGIN + 32 * INSET_SCALE]
    left = 2 * MARGIN + 32 * INSET_SCALE
    belly = picture[MARGIN : MARGIN + 24 * INSET_SCALE, left : left + 32 * INSET_SCALE]
    assert (front == 255).all()
    assert (belly[12 * INSET_SCALE :] == 255).all()
    assert (belly[: 12 * INSET_SCALE, :, 0] > 200).all()
    assert (belly[: 12 * INSET_SCALE, :, 1] < 120).all()
    assert (picture[200:400] == 10).all()
    assert (picture[-30:] != frame[-30:]).any()


def test_an_mp4_holds_every_step_in_h264_for_browsers(tmp_path):
    path = film(tmp_path, "film.mp4", "--episodes", "2")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "null", "-"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    stream = next(line for line in told.splitlines() if "Video: h264" in line)
    assert "yuv420p" in stream
    assert "640x480" in stream
    assert "20 fps" in stream
    assert re.findall(r"frame= *(\d+)", told)[-1] == "20"
    assert path.read_bytes().index(b"moov") < path.read_bytes().index(b"mdat")


def test_a_gif_holds_every_second_step(tmp_path):
    frames = imageio.mimread(film(tmp_path, "film.gif"))
    assert len(frames) == 5
    assert frames[0].shape[:2] == (480, 640)


@pytest.mark.parametrize("still_s", ["0.2", "60"])
def test_a_png_is_one_frame(tmp_path, still_s):
    picture = imageio.imread(film(tmp_path, "still.png", "--still-s", still_s, "--episodes", "2"))
    assert picture.shape == (480, 640, 3)
    blue = np.flatnonzero(picture[240, :, 2] > 200)
    reached_m = (blue.mean() - 320) / 300
    assert reached_m == pytest.approx(0.4 if still_s == "0.2" else 1.0, abs=0.06)


def test_an_older_file_stays_when_the_new_one_is_not_finished(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_text("older")
    writer = FrameWriter(path, 20)
    writer.add(np.zeros((480, 640, 3), np.uint8))
    writer.close(keep=False)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".png"])
def test_a_full_disk_is_one_sentence_and_leaves_the_older_file(tmp_path, suffix):
    """The limit on a file's size stands for the disk; in a process of its own, for it lasts."""
    path = tmp_path / f"film{suffix}"
    path.write_text("older")
    program = """if True:
        import resource, signal, sys
        from training import rollout
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        walk = "tests.training.walk_env:Walk-v0"
        sys.exit(rollout.main(["--policy", "oracle", "--env", walk, "--video", sys.argv[1]]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --video '{path}' cannot be written: ")
    assert done.stderr.count("\n") == 1
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".png"])
def test_a_name_that_is_too_long_is_one_sentence(tmp_path, suffix):
    writer = FrameWriter(tmp_path / ("n" * 251 + suffix), 20)
    with pytest.raises(UserError, match="cannot be written: File name too long"):
        writer.add(np.zeros((480, 640, 3), np.uint8))
    writer.close(keep=False)
    assert list(tmp_path.iterdir()) == []


def test_ffmpeg_takes_no_name_for_a_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = FrameWriter("http:film.mp4", 20)
    writer.add(np.zeros((480, 640, 3), np.uint8))
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["http:film.mp4"]


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="not an existing directory"):
        FrameWriter(tmp_path / "nowhere" / "film.mp4", 20)
    with pytest.raises(UserError, match=r"must end in one of \.mp4, \.gif, \.png, got 'film'"):
        FrameWriter("film", 20)
