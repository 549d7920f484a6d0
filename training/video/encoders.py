"""Encoders of videos and stills, by the kind of file; all of them are OpenCV's.

Its wheels have no H.264 encoder because the free one is under the GPL, so .mp4 files use VP9.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_CODECS = {".mp4": "vp09", ".webm": "VP80"}  # the faster one where both would do
SUFFIXES = (*_CODECS, ".gif", ".png")
_OWN_COLOURS = 3  # each frame its 256 most frequent, undithered; what is in between is coarse


class Encoder(Protocol):
    """Encodes frames (height, width, 3) uint8, all of one size. Both raise OSError."""

    def add(self, frame: np.ndarray) -> None:
        """Append a frame."""

    def close(self) -> None:
        """Finish the file, and check that every frame is in it."""


def encoder(path: Path, fps: float) -> Encoder:
    """The encoder of a file, by its suffix."""
    match path.suffix.lower():
        case ".gif":
            return _Gif(path, fps)
        case ".png":
            return _Png(path)
        case suffix:
            return _Video(path, fps, _CODECS[suffix])


class _Video:
    """A video that plays in browsers."""

    def __init__(self, path: Path, fps: float, codec: str) -> None:
        # An absolute path, as ffmpeg would read a:b.mp4 as a protocol.
        self._path, self._fps, self._codec = str(path.absolute()), fps, codec
        self._frames = 0
        self._writer: Any = None

    def add(self, frame: np.ndarray) -> None:
        import cv2

        if self._writer is None:
            codec, size = cv2.VideoWriter.fourcc(*self._codec), frame.shape[1::-1]
            with _quiet():
                self._writer = cv2.VideoWriter(self._path, cv2.CAP_FFMPEG, codec, self._fps, size)
            if not self._writer.isOpened():
                raise OSError(f"OpenCV cannot write {self._codec} here")
        with _quiet():
            self._writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        self._frames += 1

    def close(self) -> None:
        """OSError also where OpenCV, which reports no errors, did not write every frame."""
        import cv2

        if self._writer is None:
            return
        with _quiet():
            self._writer.release()
            video = cv2.VideoCapture(self._path, cv2.CAP_FFMPEG)
            written = 0
            while video.grab():
                written += 1
            video.release()
        if written != self._frames:
            raise OSError(f"OpenCV wrote {written} of {self._frames} frames")


class _Gif:
    """Frames with 256 colours each. Encoded in memory: a half-written file is no video."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._frame_ms = path, round(1000 / fps)
        self._frames: list[np.ndarray] = []

    def add(self, frame: np.ndarray) -> None:
        import cv2

        self._frames.append(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        import cv2

        if not self._frames:
            return
        video = cv2.Animation()
        video.frames, video.durations = self._frames, [self._frame_ms] * len(self._frames)
        _, data = cv2.imencodeanimation(".gif", video, [cv2.IMWRITE_GIF_DITHER, _OWN_COLOURS])
        self._path.write_bytes(data.tobytes())


class _Png:
    """The last frame."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frame: np.ndarray | None = None

    def add(self, frame: np.ndarray) -> None:
        self._frame = frame

    def close(self) -> None:
        import cv2

        if self._frame is not None:
            _, data = cv2.imencode(".png", cv2.cvtColor(self._frame, cv2.COLOR_RGB2BGR))
            self._path.write_bytes(data.tobytes())


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
