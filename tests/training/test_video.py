"""Images and films: what they show, and that their files are what they claim."""

import cv2
import gymnasium
import numpy as np
import pytest
from PIL import Image

import envs
import policies
from tests.helpers import refused
from tests.training import picture_env, walk_env  # noqa: F401 - register theirs
from tests.training.video import frames_of, picture_of
from training import rollout
from training.io.config import UserError
from training.video.overlays import MARGIN
from training.video.rollout import LiveWindow, check_windows
from training.video.scene import Scene, _appearance
from training.video.video import SUFFIXES, FrameWriter


def video_of(tmp_path, name, *more):
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / name
    arguments = ["--policy", "oracle", "--env", "tests.training.walk_env:Walk-v0"]
    assert rollout.main([*arguments, "--video", str(path), *more]) == 0
    assert [file.name for file in tmp_path.iterdir()] == [name]
    return path


class Kept:
    """A policy that stores its observations."""

    def __init__(self, masks):
        self.masks = masks

    def attention_masks(self, observation):
        return self.masks


def stones(**settings):
    return gymnasium.make(envs.STEPPING_STONES, render_mode="rgb_array", **settings)


def test_near_is_bright_and_masked_is_red():
    white, black = envs.find_task(envs.STEPPING_STONES).shown
    depth = np.full((2, 24, 32), black, np.float32)
    depth[0, :12] = white
    kept = np.ones((2, 24, 32), bool)
    kept[1, :12] = False
    with stones() as env:
        observation = {**env.reset(seed=0)[0], "depth": depth}
        outside = env.render()
        frame = Scene(env).frame(observation, Kept({"depth": kept}), "1.23 m")
    assert frame.shape == (480, 640, 3)
    front = frame[MARGIN : MARGIN + 96, MARGIN : MARGIN + 128].astype(int)
    belly = frame[MARGIN : MARGIN + 96, 2 * MARGIN + 128 : 2 * MARGIN + 256].astype(int)
    assert (front[:48] == 255).all()
    assert (front[48:] == 0).all()
    assert (belly[:48, :, 0] > 2 * belly[:48, :, 1:].max(-1)).all()
    assert (belly[48:] == 0).all()
    assert (frame[200:400] == outside[200:400]).all()
    assert (frame[-30:] != outside[-30:]).any()


def test_a_policy_is_shown_what_its_repair_made_of_the_images():
    with stones() as env:
        policy = policies.build_for({"keep": 0.25, "controller": "mlp", "repair": "holes"}, env)
        observation, _ = env.reset(seed=1)
        whole = Scene(env).frame(observation, policy, "")
        observation["depth"][0, 4:8, 4:8] = 1.5
        holed = Scene(env).frame(observation, Kept({}), "")
        policy.act(observation)
        mended = Scene(env).frame(observation, policy, "")
    hole = slice(MARGIN + 16, MARGIN + 32), slice(MARGIN + 16, MARGIN + 32)
    assert (holed[hole] == 0).all()
    assert np.abs(mended[hole].astype(int) - whole[hole]).mean() < 30
    assert mended[hole].max() > 100


def test_any_number_of_cameras_of_any_size_is_inset():
    sizes = {"front": (96, 128), "belly": (24, 32), **{f"side{i}": (48, 64) for i in range(5)}}
    cameras = {name: {"height_px": h, "width_px": w} for name, (h, w) in sizes.items()}
    given = {"front_camera": cameras.pop("front"), "belly_camera": cameras.pop("belly")}
    with stones(cameras=tuple(sizes), extra_cameras=cameras, **given) as env:
        observation, _ = env.reset(seed=0)
        outside = env.render()
        frame = Scene(env).frame(observation, Kept({}), "")
    for number in range(len(sizes)):
        row, column = divmod(number, 4)
        top, left = MARGIN + row * (96 + 3 * MARGIN), MARGIN + column * (128 + MARGIN)
        place = slice(top, top + 96), slice(left, left + 128)
        inset = frame[place].astype(int)
        assert (inset == inset[..., :1]).all(), number  # grey, unlike the scene
        assert (inset != outside[place]).mean() > 0.5
    assert (frame[300:] == outside[300:]).all()


def test_an_environment_that_draws_nothing_is_shown_by_its_images():
    with gymnasium.make("Picture-v0") as env:
        frame = Scene(env).frame(env.reset(seed=2)[0], Kept({"rgb": np.zeros((40, 48), bool)}), "")
    inset = frame[MARGIN : MARGIN + 40 * 7, MARGIN : MARGIN + 48 * 7].astype(int)
    assert (inset[..., 0] > inset[..., 1]).all()
    assert (frame[MARGIN + 300 :, 500:] == 0).all()


def test_images_are_those_that_the_policy_reads():
    with gymnasium.make("Picture-v0") as env:
        policy = policies.build_for({"layout": {"rgb": "vector"}}, env)
        frame = Scene(env).frame(env.reset(seed=2)[0], policy, "")
    assert not frame.any()


def test_appearances_are_shown_as_colours():
    numbers = np.zeros((16, 2, 2), np.float32)
    numbers[:, 0, 0], numbers[0, 1, 1] = 0.01, 0.5
    shown = _appearance(numbers, is_picture=False)
    assert not shown[0, 1].any()  # no tile
    assert (np.abs(shown[0, 0].astype(int) - 127) < 10).all()
    assert shown[1, 1, 0] > 200
    picture = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    assert np.array_equal(_appearance(picture, is_picture=True), picture.transpose(1, 2, 0))


def test_without_images_there_is_no_video(tmp_path, capsys):
    words = ["--policy", "random", "--env", "tests.training.third_task:Bare-v0"]
    sentence = "Bare-v0 draws no rgb_array and its observations hold no images, so there is nothing"
    refused(capsys, rollout, [*words, "--video", str(tmp_path / "a.png")], sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "start", "codec"), [("film.mp4", b"ftyp", b"vp09"), ("film.webm", b"webm", b"V_VP8")]
)
def test_a_video_holds_every_step_for_browsers(tmp_path, capfd, name, start, codec):
    path = video_of(tmp_path / "film", name, "--episodes", "2")
    assert "FFMPEG" not in capfd.readouterr().err
    assert start in path.read_bytes()[:64]
    assert codec in path.read_bytes()
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS) == pytest.approx(20)
    frames = frames_of(path)
    assert frames.shape == (20, 480, 640, 3)
    last = picture_of(video_of(tmp_path / "still", "still.png", "--still-s", "60"))
    assert np.abs(frames[9].astype(int) - last).mean() < 3


def test_what_happens_within_a_long_decision_is_drawn_too(tmp_path, capsys):
    """A decision of 0.25 s has ten frames, and the episode is the one without a video."""
    settings = ["decide=lift_off", "action_legs=lifting", "episode_s=0.55"]
    arguments = ["--policy", "oracle", "--seed", "3", "--set", *settings]
    assert rollout.main(arguments) == 0
    alone = capsys.readouterr().out
    path = tmp_path / "film.webm"
    assert rollout.main([*arguments, "--video", str(path)]) == 0
    assert capsys.readouterr().out == f"{alone}wrote {path}\n"
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS) == pytest.approx(40)
    frames = frames_of(path)[:, :440].astype(int)  # without the caption
    assert len(frames) == 20
    assert (np.abs(np.diff(frames, axis=0)).mean((1, 2, 3)) > 0.2).all()


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_sides_need_not_be_even_nor_names_be_no_protocol(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    writer = FrameWriter(f"http:film{suffix}", 10)
    for brightness in range(0, 250, 50):
        writer.add(np.full((65, 97, 3), brightness, np.uint8))
    writer.close()
    (path,) = tmp_path.iterdir()
    assert frames_of(path).mean((1, 2, 3)) == pytest.approx(np.arange(0, 250, 50), abs=6)


def test_a_gif_holds_every_second_step_in_its_own_colours(tmp_path):
    path = video_of(tmp_path / "film", "film.gif")
    assert path.read_bytes()[:6] == b"GIF89a"
    assert b"NETSCAPE2.0" in path.read_bytes()  # it plays again and again
    frames = frames_of(path)
    assert frames.shape == (5, 480, 640, 3)
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS) == pytest.approx(10)
    last = picture_of(video_of(tmp_path / "still", "still.png", "--still-s", "60"))
    assert np.abs(frames[-1].astype(int) - last).mean() < 1


def test_a_webp_is_an_animation_of_every_second_step(tmp_path):
    with Image.open(video_of(tmp_path / "animation", "animation.webp")) as animation:
        assert (animation.size, animation.n_frames, animation.info["loop"]) == ((640, 480), 5, 0)
        animation.seek(4)
        animation.load()
        assert animation.info["duration"] == 100
        last = picture_of(video_of(tmp_path / "still", "still.png", "--still-s", "60"))
        assert np.abs(np.asarray(animation.convert("RGB"), int) - last).mean() < 1


@pytest.mark.parametrize("still_s", ["0.2", "60"])
def test_a_png_is_one_frame(tmp_path, still_s):
    picture = picture_of(video_of(tmp_path, "still.png", "--still-s", still_s, "--episodes", "2"))
    assert picture.shape == (480, 640, 3)
    blue = np.flatnonzero(picture[240, :, 2] > 200)
    reached_m = (blue.mean() - 320) / 300
    assert reached_m == pytest.approx(0.4 if still_s == "0.2" else 1.0, abs=0.06)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_name_that_is_too_long_is_one_sentence(tmp_path, suffix):
    writer = FrameWriter(tmp_path / ("n" * 251 + suffix), 20)
    with pytest.raises(UserError, match="cannot be written: File name too long"):
        writer.add(np.zeros((480, 640, 3), np.uint8))
    writer.close(keep=False)
    assert list(tmp_path.iterdir()) == []


# Live windows.

FAST = 1e4  # frames a second: no waiting
WALK = f"{walk_env.__name__}:Walk-v0"
HEADLESS = (
    "this build of OpenCV has none: pip uninstall opencv-python-headless, then "
    "pip install opencv-python"
)


@pytest.fixture
def windows(monkeypatch):
    """What is shown, by the window's title; no display is needed."""
    shown = {}
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "QT")
    monkeypatch.setattr(
        cv2, "imshow", lambda title, frame: shown.setdefault(title, []).append(frame)
    )
    monkeypatch.setattr(cv2, "waitKey", lambda ms: -1)
    return shown


@pytest.fixture
def headless(monkeypatch):
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "")


def shown_of(env, windows, human=False):
    """The window after a step of some policy, and the same frame of a video."""
    observation, _ = env.reset(seed=3)
    if human:  # as with its own window, which needs a display
        env.unwrapped.render_mode = "human"
    LiveWindow(env, FAST, "walker")(env, observation, np.zeros(9), 0.0, None)
    (frame,) = windows["walker"]
    return cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), Scene(env).frame(observation, None, "")


def test_the_policys_cameras_are_inset_where_the_environment_gives_images(windows):
    with gymnasium.make("SteppingStones-v0", render_mode="rgb_array") as env:
        shown, filmed = shown_of(env, windows)
    assert shown.shape == (480, 640, 3)
    np.testing.assert_array_equal(shown, filmed)


def test_they_have_a_window_of_their_own_where_it_draws_itself(windows):
    with gymnasium.make("SteppingStones-v0", disable_env_checker=True) as env:
        shown, filmed = shown_of(env, windows, human=True)
    np.testing.assert_array_equal(shown, filmed)
    assert (shown == 0).mean() > 0.3  # nothing but what it sees


@pytest.mark.parametrize(
    ("env_id", "steps"), [(WALK, 10), ("tests.training.picture_env:Picture-v0", 12)]
)
def test_rollout_renders_images_of_the_environment_or_of_its_observations(windows, env_id, steps):
    assert rollout.main(["--policy", "oracle", "--env", env_id, "--render"]) == 0
    assert len(windows["oracle"]) == steps
    assert windows["oracle"][0].shape == (480, 640, 3)


def test_opencv_without_windows_says_what_to_install(headless, capsys):
    sentence = f"--render: {WALK} opens no window, and {HEADLESS}"
    refused(capsys, rollout, ["--policy", "oracle", "--env", WALK, "--render"], sentence)


def test_beside_a_window_of_the_environments_own_that_is_a_note(headless, capsys):
    check_windows("SteppingStones-v0", has_own=True)
    note = f"note: what the policy sees is not shown, as {HEADLESS}\n"
    assert capsys.readouterr().err == note
    with gymnasium.make("SteppingStones-v0", render_mode="rgb_array") as env:
        observation, _ = env.reset(seed=3)
        LiveWindow(env, FAST)(env, observation, np.zeros(9), 0.0, None)
