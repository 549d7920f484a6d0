"""Messages of ROS 2 as the inputs of a policy. NumPy alone, and OpenCV to resize colour images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.contract_file import Port
from deploy.frames import as_input

__all__ = ["image_input", "joint_input", "pixels", "seconds"]

ENCODINGS = {
    "rgb8": ("u1", 3), "rgba8": ("u1", 4), "bgr8": ("u1", 3), "bgra8": ("u1", 4),
    "mono8": ("u1", 1), "16UC1": ("u2", 1), "32FC1": ("f4", 1),
}  # fmt: skip
"""Type and channels of the encodings of `sensor_msgs/Image` that are read here."""
MILLIMETRE_M = np.float32(0.001)


def seconds(stamp: Any) -> float:
    """`builtin_interfaces/Time` in seconds."""
    return float(stamp.sec + 1e-9 * stamp.nanosec)


def pixels(message: Any) -> NDArray[Any]:
    """`sensor_msgs/Image` as an array: grey or depth (height, width), colours (height, width, 3).

    Bytes are as OpenCV has them, blue first. Depth is float32 in metres (REP 118): 16UC1 counts
    millimetres, and 0 is no return; 32FC1 counts metres, and NaN and infinity are no return.

    Raises:
        ValueError: one sentence, for another encoding, or data of another size.
    """
    if message.encoding not in ENCODINGS:
        raise ValueError(
            f"encoding must be one of {', '.join(ENCODINGS)}, got {message.encoding!r}"
        )
    kind, channels = ENCODINGS[message.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    height, step, row = message.height, message.step, message.width * channels * dtype.itemsize
    data = np.frombuffer(message.data, np.uint8)
    if not row or step < row or data.size != step * height:
        raise ValueError(
            f"an image of {height} x {message.width}, {message.encoding}, must have rows of at "
            f"least {max(row, 1)} bytes, got step = {step} and {data.size} bytes"
        )
    rows = np.ascontiguousarray(data.reshape(height, step)[:, :row])  # a row may end in padding
    image = rows.view(dtype).reshape(height, message.width, channels)
    if kind == "u1":
        colours = image[..., 2::-1] if message.encoding.startswith("rgb") else image[..., :3]
        return np.ascontiguousarray(colours if channels > 1 else image[..., 0])
    depth = image[..., 0].astype(np.float32)
    return depth * MILLIMETRE_M if kind == "u2" else depth


def image_input(messages: Sequence[Any], port: Port) -> NDArray[Any]:
    """One message per camera as an input: several cameras are its first axis.

    Depth takes the nearest pixel, because a mean across an edge is the depth of nothing. No return,
    and what is farther than the upper bound, becomes that bound, as in the environments.

    Raises:
        ValueError: one sentence, for messages that do not fit the input.
    """
    shape = port.shape if len(messages) == 1 else port.shape[1:]
    if len(messages) > 1 and port.shape[0] != len(messages):
        raise ValueError(f"{port.name} {port.shape} cannot be made of {len(messages)} images")
    images = [_image(message, shape, port) for message in messages]
    return images[0] if len(images) == 1 else np.stack(images)


def _image(message: Any, shape: tuple[int, ...], port: Port) -> NDArray[Any]:
    image, depth = pixels(message), message.encoding in ("16UC1", "32FC1")
    if depth == (port.dtype == np.uint8):
        raise ValueError(f"{port.name} must be of {port.dtype}, got an image {message.encoding}")
    if not depth:
        return as_input(image, shape)
    sides = tuple(side for side in shape if side > 1)
    if len(sides) != 2:
        raise ValueError(f"{port.name} {port.shape} must have one topic per camera, got one image")
    rows, columns = (
        ((np.arange(side) + 0.5) * size / side).astype(int)
        for side, size in zip(sides, image.shape, strict=True)
    )
    found = image[rows][:, columns]
    if port.high is not None:
        far = np.broadcast_to(port.high, port.shape).max()
        found = np.where(np.isfinite(found) & (found > 0), np.minimum(found, far), far)
    return found.reshape(shape).astype(port.dtype)


def joint_input(message: Any, names: Sequence[str], fields: Sequence[str]) -> NDArray[np.float64]:
    """`sensor_msgs/JointState` as numbers: each field (position, velocity, effort) of all `names`.

    Raises:
        ValueError: one sentence, if a joint or a field is not there.
    """
    places = {name: place for place, name in enumerate(message.name)}
    absent = [name for name in names if name not in places]
    if absent:
        raise ValueError(f"the joints must be {', '.join(names)}, got no {', '.join(absent)}")
    values = {field: getattr(message, field) for field in fields}
    for field, numbers in values.items():
        if len(numbers) != len(message.name):
            raise ValueError(
                f"{field} must have {len(message.name)} numbers, one per joint, got {len(numbers)}"
            )
    return np.array([values[field][places[name]] for field in fields for name in names])
