"""Live or recorded camera images, converted to a policy's observation space.

    space = env.observation_space["depth"]
    with CameraReader(space, ["front.npz", "belly.npz"]) as camera:
        for depth in camera:
            action = policy.act({"depth": depth, "proprio": proprio()})

Frames are undistorted, cropped, resized and brought to the space's colours, unit, type and bounds,
by OpenCV. Depth is never averaged over an edge; 0 and NaN become the space's upper bound, as for a
pixel without a return, and whole numbers count `depth_unit_m`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.frame_sources import frames_of

__all__ = ["Calibration", "CameraReader", "read_calibration"]

Frame = NDArray[Any]
Source = int | str | Path
Kind = Literal["depth", "colour", "grey"]
_LONGEST_YAML = 2**16


@dataclass(frozen=True)
class Calibration:
    """Intrinsics of a camera for images of one size (OpenCV's pinhole model)."""

    width_px: int
    height_px: int
    matrix: tuple[tuple[float, float, float], ...]
    """(3, 3): focal lengths and principal point, pixels."""
    distortion: tuple[float, ...] = ()
    """k1, k2, p1, p2, k3, ... of cv2.undistort: none, 4, 5, 8, 12 or 14 numbers."""

    def __post_init__(self) -> None:
        sizes = [len(row) for row in self.matrix]
        numbers = [*self.distortion, *(number for row in self.matrix for number in row)]
        if sizes != [3, 3, 3] or not np.isfinite(numbers).all():
            raise ValueError(f"camera_matrix must be 9 finite numbers, got {self.matrix}")
        (fx, _, _), (_, fy, _), _ = self.matrix
        if min(fx, fy) <= 0 or min(self.width_px, self.height_px) < 1:
            raise ValueError(
                f"a calibration must have focal lengths and sides above 0, got {fx}, {fy} and "
                f"{self.width_px} x {self.height_px}"
            )
        if len(self.distortion) not in (0, 4, 5, 8, 12, 14):
            raise ValueError(
                f"distortion_coefficients must be 4, 5, 8, 12 or 14, got {len(self.distortion)}"
            )


def read_calibration(path: str | Path) -> Calibration:
    """A calibration from YAML as ROS's camera_calibration writes it: `image_width`, `image_height`,
    `camera_matrix` and `distortion_coefficients`, the last two with their numbers under `data`.

    Raises:
        ValueError: one sentence, for a file that is not there or not of this kind.
    """
    import yaml

    try:
        if Path(path).is_fifo():
            raise ValueError("it is a pipe, where a file is needed")
        with Path(path).open("rb") as file:
            data = yaml.safe_load(file.read(_LONGEST_YAML))
        matrix = [float(number) for number in data["camera_matrix"]["data"]]
        rows = tuple(zip(*[iter(matrix)] * 3, strict=True))
        distortion = (data.get("distortion_coefficients") or {}).get("data", ())
        return Calibration(
            int(data["image_width"]), int(data["image_height"]), rows,
            tuple(float(number) for number in distortion),
        )  # fmt: skip
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (
        yaml.YAMLError, KeyError, TypeError, AttributeError, RecursionError, OverflowError
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is no calibration of a camera: {reason}") from None
    except ValueError as error:
        raise ValueError(f"{path} is no calibration of a camera: {error}") from None


class CameraReader:
    """Iterator over images that fit a space, until the shortest source ends.

    Args:
        space: observation space of the images: a Box (height, width), (height, width, 3 or 1),
            (3 or 1, height, width), or (cameras, height, width) of depth.
        sources: see `frames_of`; one, or one for each camera of the space.
        kind: kind of the images; None: colour where the space has 3 channels, grey where it is of
            bytes, else depth.
        calibration: calibration used to undistort the images; None: no undistortion.
        fov_deg: crop to this field of view over the height, which needs a calibration.
        crop: pixels left out at the top, bottom, left and right, after that.
        depth_unit_m: what 1 means in depth of whole numbers, metres.
        array: name of the array in .npz files.

    Raises:
        ValueError: one sentence, for arguments that do not fit together; while reading, for a frame
        or a file that does not fit.
    """

    def __init__(
        self,
        space: spaces.Box,
        sources: Source | Sequence[Source],
        *,
        kind: Kind | None = None,
        calibration: Calibration | str | Path | None = None,
        fov_deg: float | None = None,
        crop: tuple[int, int, int, int] = (0, 0, 0, 0),
        depth_unit_m: float = 0.001,
        array: str | None = None,
    ) -> None:
        self.space, self.kind = space, kind or _guessed(space)
        self._cameras, self._height, self._width = _read_shape(space, self.kind)
        given = [sources] if isinstance(sources, int | str | Path) else list(sources)
        if len(given) not in (1, self._cameras):
            raise ValueError(
                f"sources must be 1 or {self._cameras}, one per camera, got {len(given)}"
            )
        if isinstance(calibration, str | Path):
            calibration = read_calibration(calibration)
        if fov_deg is not None and (calibration is None or not 0 < fov_deg < 180):
            raise ValueError(
                f"fov_deg must be between 0 and 180, beside a calibration, got {fov_deg}"
            )
        if not depth_unit_m > 0 or min(crop) < 0:
            raise ValueError(
                f"depth_unit_m must be above 0 and crop 0 or more, got {depth_unit_m} and "
                f"{list(crop)}"
            )
        self._calibration, self._fov_deg, self._crop = calibration, fov_deg, crop
        self._unit_m = depth_unit_m
        self._names = [f"camera {one}" if isinstance(one, int) else str(one) for one in given]
        self._streams = [frames_of(one, array) for one in given]
        self._maps: dict[tuple[int, ...], tuple[Frame, Frame]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release cameras and files."""
        for stream in self._streams:
            stream.close()

    def __iter__(self) -> Iterator[Frame]:
        """Yield images as elements of the space."""
        for frames in zip(*self._streams, strict=False):
            yield self._image(frames)

    def _image(self, frames: tuple[Frame, ...]) -> Frame:
        several = len(frames) == 1 and self._cameras > 1
        if several and (frames[0].ndim != 3 or len(frames[0]) != self._cameras):
            raise ValueError(
                f"{self._names[0]} must have frames of {self._cameras} images, one per camera, "
                f"got {frames[0].shape}"
            )
        names = self._names * self._cameras if several else self._names
        apart = frames[0] if several else frames
        prepared = [self._prepared(*one) for one in zip(apart, names, strict=True)]
        image = prepared[0] if self._cameras == 1 else np.stack(prepared)
        if self.kind == "colour" and self.space.shape[-1] != 3:
            image = np.moveaxis(image, -1, 0)
        whole = np.issubdtype(self.space.dtype, np.integer)
        image = np.rint(image) if whole and image.dtype.kind == "f" else image
        bounded = np.clip(image, self.space.low.min(), self.space.high.max())
        return bounded.reshape(self.space.shape).astype(self.space.dtype)

    def _prepared(self, frame: Frame, name: str) -> Frame:
        """One frame undistorted, cropped, resized, and in the space's colours and unit."""
        import cv2

        whole = frame.dtype.kind in "ui"
        frame = self._coloured(frame, name)
        if self._calibration is not None:
            frame = self._undistorted(frame, self._calibration, name)
        top, bottom, left, right = self._crop
        frame = frame[top : len(frame) - bottom, left : frame.shape[1] - right]
        if not frame.size:
            raise ValueError(f"{name}: crop {list(self._crop)} leaves nothing of its frames")
        size = (self._width, self._height)
        if self.kind == "depth":
            resized = cv2.resize(frame, size, interpolation=cv2.INTER_NEAREST_EXACT)
            counts = whole and self.space.dtype.kind == "f"
            return self._metres(resized, self._unit_m if counts else 1.0)
        smaller = frame.shape[0] >= self._height and frame.shape[1] >= self._width
        way = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
        return self._scaled(cv2.resize(frame, size, interpolation=way))

    def _coloured(self, frame: Frame, name: str) -> Frame:
        import cv2

        colours = frame.ndim == 3 and frame.shape[-1] == 3
        if frame.ndim != 2 and not colours:
            raise ValueError(f"{name} must have frames (height, width) or (height, width, 3), got "
                             f"{frame.shape}")  # fmt: skip
        if self.kind == "depth" and (colours or frame.dtype == np.uint8):
            raise ValueError(
                f"{name} has images of bytes, where depth is needed: integers of 16 bits "
                "and more, or metres"
            )
        if self.kind == "depth":
            return np.ascontiguousarray(frame, np.float32)
        if frame.dtype != np.uint8:
            raise ValueError(f"{name} has images of {frame.dtype}, where bytes are needed")
        frame = np.ascontiguousarray(frame)
        if colours and self.kind == "grey":
            return cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        if not colours and self.kind == "colour":
            return cv2.cvtColor(frame, cv2.COLOR_GRAY2RGB)
        return frame

    def _undistorted(self, frame: Frame, calibration: Calibration, name: str) -> Frame:
        import cv2

        shape = frame.shape[:2]
        if shape != (calibration.height_px, calibration.width_px):
            raise ValueError(
                f"{name} has frames of {shape[0]} x {shape[1]}, but its calibration is of "
                f"{calibration.height_px} x {calibration.width_px}"
            )
        if shape not in self._maps:
            matrix = np.array(calibration.matrix)
            distortion = np.array(calibration.distortion)
            self._maps[shape] = cv2.initUndistortRectifyMap(
                matrix, distortion, None, matrix, shape[::-1], cv2.CV_32FC1
            )
        # Interpolated depth between two objects is the depth of neither.
        way = cv2.INTER_NEAREST if self.kind == "depth" else cv2.INTER_LINEAR
        straight = cv2.remap(frame, *self._maps[shape], way)
        return straight if self._fov_deg is None else self._narrowed(straight, calibration, name)

    def _narrowed(self, frame: Frame, calibration: Calibration, name: str) -> Frame:
        """Cropped around the optical axis to the field of view that is wanted."""
        assert self._fov_deg is not None
        (fx, _, cx), (_, fy, cy), _ = calibration.matrix
        high = np.tan(np.radians(self._fov_deg) / 2)
        wide = high * self._width / self._height
        top, bottom = round(cy - fy * high), round(cy + fy * high)
        left, right = round(cx - fx * wide), round(cx + fx * wide)
        if min(top, left) < 0 or bottom > frame.shape[0] or right > frame.shape[1]:
            raise ValueError(
                f"{name} sees less than fov_deg = {self._fov_deg:g} over the height and as much "
                f"in proportion over the width: it would take rows {top} to {bottom} and columns "
                f"{left} to {right} of {frame.shape[0]} x {frame.shape[1]}"
            )
        return frame[top:bottom, left:right]

    def _metres(self, depth: Frame, unit_m: float) -> Frame:
        far = self.space.high.max()
        nothing = ~(depth > 0) | ~np.isfinite(depth)
        return np.where(nothing, far, depth.astype(np.float64) * unit_m)

    def _scaled(self, image: Frame) -> Frame:
        """Bytes unchanged, or scaled to the bounds of a space of other numbers."""
        if self.space.dtype == np.uint8:
            return image
        low, high = float(self.space.low.min()), float(self.space.high.max())
        if not np.isfinite([low, high]).all():
            raise ValueError(f"space must have bounds to scale images to, got {self.space}")
        return low + (high - low) * image.astype(np.float32) / 255


def _guessed(space: spaces.Box) -> Kind:
    if space.dtype != np.uint8:
        return "colour" if len(space.shape) == 3 and space.shape[-1] == 3 else "depth"
    return "colour" if len(space.shape) == 3 and 3 in (space.shape[0], space.shape[-1]) else "grey"


def _read_shape(space: spaces.Box, kind: Kind) -> tuple[int, int, int]:
    """Cameras, height and width of a space's images."""
    shape = space.shape
    if kind == "colour" and len(shape) == 3 and 3 in (shape[0], shape[-1]):
        return (1, *(shape[:2] if shape[-1] == 3 else shape[1:]))
    if kind != "colour" and len(shape) == 2:
        return (1, *shape)
    if kind != "colour" and len(shape) == 3:
        return (1, *shape[:2]) if shape[-1] == 1 else shape
    raise ValueError(f"space must be of {kind} images, got the shape {shape}")
