"""Images from cameras, films and files, as a policy's observation space has them."""

import io
import zipfile

import cv2
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from envs.camera_reader import Calibration, CameraReader, read_calibration
from envs.frame_sources import frames_of
from training.io import checkpoint
from training.video.video import FrameWriter

DEPTH = spaces.Box(0, 1.5, (24, 32), np.float32)
PAIR = spaces.Box(0, 1.5, (2, 24, 32), np.float32)
COLOUR = spaces.Box(0, 255, (60, 80, 3), np.uint8)
CALIBRATION = """
image_width: 640
image_height: 480
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [400.0, 0.0, 320.0, 0.0, 400.0, 240.0, 0.0, 0.0, 1.0]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [-0.25, 0.08, 0.001, -0.001, 0.0]}
"""


@pytest.fixture(scope="module")
def walk():
    """Observations of a shipped policy on the stones, and its actions."""
    torch.set_num_threads(1)
    with gymnasium.make("SteppingStones-v0") as env:
        policy, _ = checkpoint.load_policy(checkpoint.resolve("stepping_stones_favor_256"), env)
        seen, _ = env.reset(seed=7)
        observations, actions = [], []
        for _ in range(10):
            observations.append(seen)
            actions.append(policy.act(seen))
            seen = env.step(actions[-1])[0]
    return policy, observations, actions


def save(path, depths, kind):
    """Depth (frames, ...) metres as millimetres, in one of the kinds that are read."""
    counts = np.rint(1000 * depths).astype(np.uint16)
    if kind == "npy":
        np.save(path.with_suffix(".npy"), counts)
        return path.with_suffix(".npy")
    if kind == "npz":
        np.savez_compressed(path.with_suffix(".npz"), depth=counts)
        return path.with_suffix(".npz")
    path.mkdir()
    for i, one in enumerate(counts):
        if kind == "png":
            cv2.imwrite(str(path / f"{i:04d}.png"), one)
        else:
            np.save(path / f"{i:04d}.npy", one / np.float32(1000))
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "png", "folder of npy"])
def test_a_policy_acts_on_recorded_depth_as_it_did_on_the_cameras(walk, tmp_path, kind):
    """Recorded in whole millimetres, of 5 mm noise."""
    policy, observations, actions = walk
    depths = np.stack([one["depth"] for one in observations])
    files = [save(tmp_path / name, depths[:, i], kind) for i, name in enumerate(("front", "belly"))]
    policy.reset()
    with CameraReader(PAIR, files) as camera:
        count = 0
        for depth, seen, action in zip(camera, observations, actions, strict=True):
            assert PAIR.contains(depth)
            np.testing.assert_allclose(depth, seen["depth"], atol=6e-4)
            again = policy.act({"depth": depth, "proprio": seen["proprio"]})
            np.testing.assert_allclose(again, action, atol=0.15)
            count += 1
    assert count == 10


def test_images_of_all_cameras_may_be_in_one_array(tmp_path):
    depths = np.random.default_rng(0).uniform(0.3, 1.2, (4, 2, 24, 32)).astype(np.float32)
    np.savez(tmp_path / "walk.npz", depth=depths, proprio=np.zeros((4, 45)))
    with CameraReader(PAIR, tmp_path / "walk.npz", array="depth") as camera:
        np.testing.assert_array_equal(np.stack(list(camera)), depths)
    with pytest.raises(ValueError, match="holds the arrays depth, proprio: name one of them"):
        next(iter(CameraReader(PAIR, tmp_path / "walk.npz")))


@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
def test_a_video_of_a_camera_is_read_back(tmp_path, suffix):
    writer = FrameWriter(tmp_path / f"film{suffix}", 20)
    x = np.linspace(0, 255, 160)
    frames = []
    for i in range(12):
        picture = np.stack([np.roll(x, 4 * i), x[::-1], np.full(160, 60.0)], -1)
        frames.append(np.tile(picture, (120, 1, 1)).astype(np.uint8))
        writer.add(frames[-1])
    writer.close()
    with CameraReader(COLOUR, tmp_path / f"film{suffix}") as camera:
        found = np.stack(list(camera)).astype(int)
    half = [cv2.resize(one, (80, 60), interpolation=cv2.INTER_AREA) for one in frames]
    assert found.shape == (12, 60, 80, 3)
    assert np.abs(found - np.stack(half)).mean() < 6
    grey = spaces.Box(0, 1, (60, 80), np.float32)
    with CameraReader(grey, tmp_path / f"film{suffix}", kind="grey") as camera:
        first = next(iter(camera))
    expected = cv2.cvtColor(half[0], cv2.COLOR_RGB2GRAY) / 255
    assert grey.contains(first)
    assert np.abs(first - expected).mean() < 0.03


def test_channels_come_where_the_space_has_them(tmp_path):
    picture = np.zeros((50, 70, 3), np.uint8)
    picture[..., 0] = 200
    cv2.imwrite(str(tmp_path / "a.png"), picture[..., ::-1])
    for shape in ((3, 25, 35), (25, 35, 3)):
        space = spaces.Box(0, 255, shape, np.uint8)
        (found,) = CameraReader(space, tmp_path)
        assert found.shape == shape
        red = found[0] if shape[0] == 3 else found[..., 0]
        assert (red == 200).all()
        assert found.sum() == 200 * 25 * 35


def test_depth_is_never_averaged_and_what_returns_nothing_is_far(tmp_path):
    depth = np.full((48, 64), 400, np.uint16)
    depth[:, 33:] = 900
    depth[:9, :9] = 0
    depth[40:, 60:] = 4000
    cv2.imwrite(str(tmp_path / "a.png"), depth)
    (found,) = CameraReader(DEPTH, tmp_path)
    assert np.unique(found).tolist() == np.float32([0.4, 0.9, 1.5]).tolist()
    assert (found[:4, :4] == 1.5).all()
    assert (found[21:, 31:] == 1.5).all()
    (found,) = CameraReader(DEPTH, tmp_path, depth_unit_m=0.0005)
    assert found[12, 8] == np.float32(0.2)
    (found,) = CameraReader(DEPTH, tmp_path, crop=(0, 0, 40, 0))
    assert (found[:20, 1:] == np.float32(0.9)).all()


def test_a_distorted_line_becomes_straight(tmp_path):
    path = tmp_path / "front.yaml"
    path.write_text(CALIBRATION)
    calibration = read_calibration(path)
    assert calibration.matrix[1] == (0.0, 400.0, 240.0)
    matrix, distortion = np.array(calibration.matrix), np.array(calibration.distortion)
    ideal = np.stack([np.linspace(-0.6, 0.6, 200), np.full(200, -0.45), np.ones(200)], -1)
    points, _ = cv2.projectPoints(ideal, np.zeros(3), np.zeros(3), matrix, distortion)
    picture = np.full((480, 640, 3), 255, np.uint8)
    cv2.polylines(picture, [np.rint(points).astype(np.int32)], False, (0, 0, 0), 3)
    (tmp_path / "frames").mkdir()
    cv2.imwrite(str(tmp_path / "frames" / "a.png"), picture)
    space = spaces.Box(0, 255, (480, 640), np.uint8)

    def bend(found):
        """Pixels between the highest and the lowest place of the line."""
        rows = [found[:, x].argmin() for x in range(120, 520, 20)]
        return int(np.ptp(rows)), float(np.mean(rows))

    (before,) = CameraReader(space, tmp_path / "frames")
    (after,) = CameraReader(space, tmp_path / "frames", calibration=path)
    assert bend(before)[0] > 5
    assert bend(after)[0] <= 2
    assert bend(after)[1] == pytest.approx(240 - 0.45 * 400, abs=2)


def test_a_field_of_view_is_cut_out_of_a_wider_one(tmp_path):
    """Half the height is tan(25 degrees) focal lengths: a square that fills it stays as wide."""
    calibration = Calibration(640, 480, ((400.0, 0, 320), (0, 400.0, 240), (0, 0, 1)))
    half = round(400 * np.tan(np.radians(25)))
    depth = np.full((480, 640), 900, np.uint16)
    depth[240 - half : 240 + half, 320 - half : 320 + half] = 400
    cv2.imwrite(str(tmp_path / "a.png"), depth)
    (found,) = CameraReader(DEPTH, tmp_path, calibration=calibration, fov_deg=50)
    np.testing.assert_array_equal(found[:, 4:28], np.float32(0.4))
    np.testing.assert_array_equal(found[:, [3, 28]], np.float32(0.9))
    with pytest.raises(ValueError, match="sees less than fov_deg = 70"):
        next(iter(CameraReader(DEPTH, tmp_path, calibration=calibration, fov_deg=70)))


def npz_of(path, shape, dtype="<f8", data=b""):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "there is no file, folder or camera"),
        (lambda p: p.write_bytes(b""), "is not a readable video"),
        (lambda p: p.write_text("#EXTM3U\nhttp://example.org/a.ts\n"), "is not a readable video"),
        (lambda p: p.write_bytes(b"\x1aE\xdf\xa3" + bytes(99)), "is not a readable video"),
        (lambda p: p.write_bytes(b"RIFF" + bytes(99)), "is not a readable video"),
        (lambda p: p.mkdir(), "holds neither .png nor .npy files"),
    ],
)
def test_a_source_that_is_none_is_one_sentence(tmp_path, make, message, capfd):
    path = tmp_path / "film.mp4"
    make(path)
    with pytest.raises(ValueError, match=message) as raised:
        list(CameraReader(COLOUR, path))
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.npz", lambda p: p.write_bytes(b"PK\x03\x04" + bytes(50)), "damaged"),
        ("a.npz", lambda p: npz_of(p, (9, 10**6, 10**6)), "frames of 1000000 x 1000000"),
        ("a.npz", lambda p: npz_of(p, (2, 24, 32), data=bytes(9000)), "is cut short"),
        ("a.npz", lambda p: npz_of(p, (0, 24, 32)), "has no frame"),
        ("a.npz", lambda p: npz_of(p, (2, 24), data=bytes(9000)), "must have frames"),
        ("a.npz", lambda p: np.savez(p, a=np.array([{}], object)), "must hold numbers"),
        ("a.npy", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\xff\xff(" * 9), "is damaged"),
        ("a.npy", lambda p: np.save(p, np.zeros((3, 24, 32), np.uint8)), "images of bytes"),
        ("a.npy", lambda p: np.save(p, np.zeros((3, 2, 24, 32))), "must have frames"),
        ("f/a.png", lambda p: p.write_bytes(b"GIF89a" + bytes(40)), "is no PNG"),
        ("f/a.png", lambda p: p.write_bytes(png_of(2**16, 2**16)), "frames of 65536 x 65536"),
        ("f/a.png", lambda p: p.write_bytes(png_of(32, 24)), "is a damaged PNG"),
    ],
)
def test_a_file_that_is_damaged_or_foreign_is_one_sentence(tmp_path, name, make, message):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    with pytest.raises(ValueError, match=message) as raised:
        list(CameraReader(DEPTH, path.parent if name.startswith("f/") else path))
    assert "\n" not in str(raised.value)


def png_of(width, height):
    sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + sides


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "is no calibration"),
        ("just words", "is no calibration"),
        (CALIBRATION.replace("image_width: 640", ""), "is no calibration.*image_width"),
        (CALIBRATION.replace("-0.25, ", ""), None),
        (CALIBRATION.replace("-0.25, 0.08, ", ""), "distortion_coefficients must be 4, 5, 8"),
        (CALIBRATION.replace("[400.0, 0.0,", "[.nan, 0.0,"), "must be 9 finite numbers"),
        (CALIBRATION.replace("640", ".inf"), "is no calibration.*infinity"),
        (CALIBRATION.replace("[400.0, 0.0,", "[400.0,"), "is no calibration"),
        (CALIBRATION.replace("[400.0, 0.0,", "[-4.0, 0.0,"), "focal lengths and sides above 0"),
    ],
)
def test_a_calibration_that_is_none_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "camera.yaml"
    if text is not None:
        path.write_text(text)
    if message is None:
        assert len(read_calibration(path).distortion) == 4
        return
    with pytest.raises(ValueError, match=message) as raised:
        read_calibration(path)
    assert "\n" not in str(raised.value)


def test_what_does_not_go_together_is_one_sentence(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 24, 32), np.float32))
    source = tmp_path / "a.npy"
    small = Calibration(320, 240, ((200.0, 0, 160), (0, 200.0, 120), (0, 0, 1)))
    with pytest.raises(ValueError, match="sources must be 1 or 2, one per camera, got 3"):
        CameraReader(PAIR, [source] * 3)
    with pytest.raises(ValueError, match="fov_deg must be between 0 and 180, beside a calibration"):
        CameraReader(DEPTH, source, fov_deg=50)
    with pytest.raises(ValueError, match="crop 0 or more"):
        CameraReader(DEPTH, source, crop=(-1, 0, 0, 0))
    with pytest.raises(ValueError, match="space must be of colour images"):
        CameraReader(DEPTH, source, kind="colour")
    with pytest.raises(ValueError, match="frames of 24 x 32, but its calibration is of 240 x 320"):
        next(iter(CameraReader(DEPTH, source, calibration=small)))
    with pytest.raises(ValueError, match="must have frames of 2 images, one per camera"):
        next(iter(CameraReader(PAIR, source)))
    with pytest.raises(ValueError, match="leaves nothing"):
        next(iter(CameraReader(DEPTH, source, crop=(12, 12, 0, 0))))


def test_a_long_recording_takes_the_memory_of_a_frame(tmp_path):
    """A gigabyte of zeros in a megabyte of file; frames are read on request."""
    npz_of(tmp_path / "a.npz", (10_000, 120, 120), "<f8", bytes(2**24))
    frames = frames_of(tmp_path / "a.npz")
    for _ in range(100):
        assert next(frames).shape == (120, 120)
    frames.close()


def test_a_camera_that_is_not_there_is_one_sentence():
    with pytest.raises(ValueError, match="camera 63 cannot be opened"):
        next(iter(CameraReader(COLOUR, 63)))
