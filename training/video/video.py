"""Videos and stills of an episode, with the images and the attention of the policy.

OpenCV encodes them. Its wheels have no H.264 encoder because the free one is under the GPL, so .mp4
files use VP9.
"""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from envs import task_of
from foveate_extras import require
from training.collect.environments import step_s
from training.collect.episode import Policy
from training.collect.outcomes import outcomes_of
from training.command.files import append, reason
from training.io.config import UserError

FPS = 20
"""Frames per second of an environment without `render_fps`."""
_CODECS = {".mp4": "vp09", ".webm": "VP80"}  # the faster one where both would do
SUFFIXES = (*_CODECS, ".webp", ".gif", ".png")
_OWN_COLOURS = 3  # each frame its 256 most frequent, undithered; what is in between is coarse
_WEBP_QUALITY = 75


class FrameWriter:
    """Writes frames into one file: .mp4 (VP9) and .webm (VP8), which play in browsers, .webp and
    .gif, which pages show as images, or .png (one still frame).

    Nothing appears under the file's name before `close`, so an interrupted run leaves an older file
    unchanged. Raises UserError for another suffix or a place that cannot be written."""

    def __init__(self, path: str | Path, fps: float):
        self.path = Path(path)
        check_video_path(self.path)
        self.fps = fps
        self.frames = 0
        self._suffix = self.path.suffix.lower()
        self._partial = self.path.with_name(f".{self.path.stem}.partial{self.path.suffix}")
        self._kept: list[np.ndarray] = []  # of an image, which is encoded in memory
        self._video: Any = None

    @property
    def still(self) -> bool:
        """Whether the file holds a single image."""
        return self._suffix == ".png"

    @property
    def stride(self) -> int:
        """A frame is written of so many that are drawn."""
        return 2 if self._suffix in (".gif", ".webp") else 1

    def add(self, frame: np.ndarray) -> None:
        """Append a frame (height, width, 3) uint8, all of one size; a .png keeps only the last one.
        Raises UserError if it cannot be written.
        """
        import cv2

        try:
            if not self.frames:
                self._partial.touch()  # OpenCV does not report the reason
            bgr = cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
            if self._suffix not in _CODECS:
                self._kept = [bgr] if self.still else [*self._kept, bgr]
            else:
                with _quiet():
                    self._open_video(bgr).write(bgr)
        except OSError as error:
            raise self._failed(error) from None
        self.frames += 1

    def _open_video(self, frame: np.ndarray) -> Any:
        import cv2

        if self._video is None:
            codec, size = _CODECS[self._suffix], frame.shape[1::-1]
            # An absolute path, as ffmpeg would read a:b.mp4 as a protocol.
            path, fourcc = str(self._partial.absolute()), cv2.VideoWriter.fourcc(*codec)
            self._video = cv2.VideoWriter(path, cv2.CAP_FFMPEG, fourcc, self.fps, size)
            if not self._video.isOpened():
                raise OSError(f"OpenCV cannot write {codec} here")
        return self._video

    def close(self, keep: bool = True) -> None:
        """Finish the file and rename it; with `keep=False` delete it. Raises UserError if it is to
        be kept and cannot be written."""
        try:
            if self.frames:
                self._finish()
                if keep:
                    os.replace(self._partial, self.path)
        except OSError as error:
            if keep:
                raise self._failed(error) from None
        finally:
            self._kept, self._video = [], None
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Complete the file; OSError also where OpenCV, which reports no errors, did not write
        every frame of a video."""
        import cv2

        if self._video is not None:
            with _quiet():
                self._video.release()
                video = cv2.VideoCapture(str(self._partial.absolute()), cv2.CAP_FFMPEG)
                written = 0
                while video.grab():
                    written += 1
                video.release()
            if written != self.frames:
                raise OSError(f"OpenCV wrote {written} of {self.frames} frames")
        elif self.still:
            self._partial.write_bytes(cv2.imencode(".png", self._kept[-1])[1].tobytes())
        else:
            images, frame_ms = cv2.Animation(), round(1000 / (self.fps / self.stride))
            images.frames, images.durations = self._kept, [frame_ms] * self.frames
            options = [cv2.IMWRITE_GIF_DITHER, _OWN_COLOURS]
            if self._suffix == ".webp":
                options = [cv2.IMWRITE_WEBP_QUALITY, _WEBP_QUALITY]
            encoded = cv2.imencodeanimation(self._suffix, images, options)[1]
            self._partial.write_bytes(encoded.tobytes())

    def _failed(self, error: OSError) -> UserError:
        why = (error.strerror or str(error)).partition("\n")[0]
        if self._suffix in _CODECS:
            try:  # OpenCV reports no reason: write a file to get the disk's error
                with self._partial.open("ab", buffering=0) as file:
                    append(file, bytes(2**20))
            except OSError as refused:
                why = reason(refused)
        return UserError(f"--video {str(self.path)!r} cannot be written: {why}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard error, where OpenCV's ffmpeg prints messages regardless of its log level."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def check_video_path(path: Path) -> None:
    """Raise UserError when `path` has no known suffix or cannot be written, and MissingExtraError
    without a package that can write it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"--video must end in one of {', '.join(SUFFIXES)}, got {str(path)!r}")
    if not os.path.isdir(path.parent):  # unlike Path's, False for impossible names
        raise UserError(f"--video {str(path)!r}: {str(path.parent)!r} is not an existing directory")
    if os.path.isdir(path) or not os.access(path.parent, os.W_OK):
        raise UserError(f"--video {str(path)!r} cannot be written")
    require("--video", "video")


class LastInfo(gymnasium.Wrapper):
    """Keeps the last `info`, which captions use."""

    info: dict[str, Any]

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, self.info = self.env.reset(**kwargs)
        return observation, self.info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self.info = result[4]
        return result


def frames_a_step(env: gymnasium.Env[Any, Any]) -> int:
    """Frames that an environment with render mode rgb_array lets a caller draw in a step: its
    `frames_a_step`. It then calls `env.unwrapped.on_frame` at each of them."""
    found = getattr(env.unwrapped, "frames_a_step", 1)
    drawn = env.unwrapped.render_mode == "rgb_array" and isinstance(found, int)
    return max(found, 1) if drawn else 1


class VideoRecorder:
    """An `on_step` of the episode loop that draws every step into a FrameWriter, and what happens
    within a step where the environment has frames there (`frames_a_step`).

    A .gif or .webp takes every second frame; a .png is the frame at `still_s` seconds of the first
    episode, or the episode's last frame when it ends earlier. Raises UserError for a `still_s` that
    is negative or not finite.
    """

    def __init__(self, env: LastInfo, writer: FrameWriter, still_s: float = 4.0, title: str = ""):
        if not 0 <= still_s < math.inf:
            raise UserError(f"--still-s must be a finite number of at least 0, got {still_s}")
        from training.video.scene import Scene  # needs OpenCV

        self.env, self.writer, self.title = env, writer, title
        self._scene = Scene(env)
        self._frames_a_step = frames_a_step(env)
        self.frame_s = step_s(env, 1 / FPS) / self._frames_a_step
        self.still_frame = max(1, round(still_s / self.frame_s))
        self.frame = self.episode = 0
        self._latest: tuple[Any, Policy] | None = None
        self._outside: list[Any] = []  # views of frames whose observation is not known yet
        if self._frames_a_step > 1:
            env.unwrapped.on_frame = self._look  # type: ignore[attr-defined]

    def start_episode(self) -> None:
        """Begin counting the frames of the next episode."""
        self.frame = 0
        self.episode += 1

    def __call__(self, env: Any, observation: Any, action: Any, reward: float, policy: Any) -> None:
        self._latest = (observation, policy)
        outside, self._outside = self._outside, []
        if len(outside) < self._frames_a_step:
            outside.append(None)
        for view in outside:
            self.frame += 1
            if self._is_wanted(self.frame):
                self._draw(view)

    def end_episode(self) -> None:
        """Draw the last frame of an episode that ended before the still's moment."""
        if self.writer.still and self.episode == 1 and self.frame < self.still_frame:
            self._draw()

    def _look(self) -> None:
        wanted = self._is_wanted(self.frame + len(self._outside) + 1)
        self._outside.append(self.env.render() if wanted else None)

    def _is_wanted(self, frame: int) -> bool:
        if self.writer.still:
            return self.episode == 1 and frame == self.still_frame
        return frame % self.writer.stride == 0

    def _draw(self, outside: Any = None) -> None:
        assert self._latest is not None
        self.writer.add(self._scene.frame(*self._latest, self._caption(), outside))

    def _caption(self) -> str:
        parts = [self.title] if self.title else []
        parts.append(f"{self.frame * self.frame_s:5.2f} s")
        outcomes, info = outcomes_of(task_of(self.env)), self.env.info
        parts += [one.captioned(float(info[one.name])) for one in outcomes if one.name in info]
        return "   ".join(filter(None, parts))
