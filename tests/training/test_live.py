"""Live windows show what the policy sees, beside the robot or in a window below its own."""

import cv2
import gymnasium
import numpy as np
import pytest

from tests.helpers import refused
from tests.training import picture_env, walk_env  # noqa: F401 - register theirs
from training import rollout
from training.video.rollout import LiveWindow, check_windows
from training.video.scene import Scene

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
    """The window after a step of a policy of no account, and the frame that a film would have."""
    observation, _ = env.reset(seed=3)
    if human:  # as with its own window, which needs a display
        env.unwrapped.render_mode = "human"
    LiveWindow(env, FAST, "walker")(env, observation, np.zeros(9), 0.0, None)
    (frame,) = windows["walker"]
    return cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), Scene(env).frame(observation, None, "")


def test_the_policys_cameras_are_inset_where_the_environment_gives_pictures(windows):
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
    sentence = f"--render: {WALK} opens no window of its own, and {HEADLESS}"
    refused(capsys, rollout, ["--policy", "oracle", "--env", WALK, "--render"], sentence)


def test_beside_a_window_of_the_environments_own_that_is_a_note(headless, capsys):
    check_windows("SteppingStones-v0", has_own=True)
    note = f"note: what the policy sees is not shown, as {HEADLESS}\n"
    assert capsys.readouterr().err == note
    with gymnasium.make("SteppingStones-v0", render_mode="rgb_array") as env:
        observation, _ = env.reset(seed=3)
        LiveWindow(env, FAST)(env, observation, np.zeros(9), 0.0, None)
