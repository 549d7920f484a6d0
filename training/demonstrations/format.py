"""Names, metadata and arrays of demonstration files.

The layout is robomimic's (https://robomimic.github.io/docs/datasets/overview.html), in one file
an episode:

    DIR/episodes/000123.hdf5   episode 123, complete in itself: data/demo_123/...
    DIR/demos.hdf5             data/demo_123 -> that file (an external link), mask/train, mask/valid

A demonstration is a group with `actions` (steps, k), `rewards` (steps,), `dones` (steps,) and
`obs/<key>` (steps, ...): the observations, the expert's actions, and their outcome. Observations of
`FRAME_BYTES` or more are frames: one per chunk, compressed by zlib, so that each takes one read.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.state_files import Count, Finite, check

FORMAT, VERSION = "foveate-demonstrations", 1
MASTER, EPISODES = "demos.hdf5", "episodes"
FRAME_BYTES = 4096
"""Observations of at least this size a step are frames; smaller ones are read at once."""
BOX_KEY = "observation"
"""The name that a Box observation, which has none, is kept under."""


_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_DTYPES = {np.dtype(code).name for code in "?bhilqBHILQefdg"}
_MOST_BYTES = 2**28  # of a step's array; an image of 1000 x 1000 pixels has 3 MB


@dataclass(frozen=True, config=_STRICT)
class ArraySpec:
    """Shape and type of one step's array."""

    shape: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16)]
    dtype: str
    """numpy's name of it: "uint8", "float32"."""

    @model_validator(mode="after")
    def _numbers(self) -> Self:
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be numpy's name of a type of numbers, got {self.dtype!r}")
        if self.nbytes > _MOST_BYTES:
            raise ValueError(
                f"an array of shape {list(self.shape)} has {self.nbytes} bytes, where at most "
                f"{_MOST_BYTES} are read"
            )
        return self

    @classmethod
    def of(cls, space: spaces.Box) -> Self:
        """The shape and type of a space's elements."""
        return cls(tuple(int(size) for size in space.shape), np.dtype(space.dtype).name)

    @property
    def nbytes(self) -> int:
        """Size of one step, bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_frame(self) -> bool:
        """Whether each step is a separate chunk."""
        return self.nbytes >= FRAME_BYTES

    def __str__(self) -> str:
        return f"{self.shape} of {self.dtype}"


def observation_spec(space: gymnasium.Space[Any]) -> dict[str, ArraySpec]:
    """Arrays that an observation consists of, by key; raises UserError for other than (a Dict of)
    Box.
    """
    parts = space.spaces if isinstance(space, spaces.Dict) else {BOX_KEY: space}
    for key, part in parts.items():
        if not isinstance(part, spaces.Box) or "/" in key:
            raise UserError(
                f"observation {key!r} is {part}, but a demonstration holds a Box of numbers, "
                "or a Dict of them with names without '/'"
            )
    return {key: ArraySpec.of(part) for key, part in parts.items()}  # type: ignore[arg-type]


@dataclass(frozen=True, config=_STRICT)
class Recording:
    """The metadata shared by all demonstrations of a directory."""

    env_id: str
    """Gymnasium id."""
    env: dict[str, Any]
    """Settings of the environment, with every default where they are known."""
    seed: Count
    """Episode i began with `reset(seed=seed + i)`."""
    after_done_steps: Annotated[int, Field(ge=-1, lt=2**31)]
    """Steps recorded after `info["success"]` or `expert_done` first holds; -1: all."""
    noise: Annotated[Finite, Field(ge=0)]
    """Standard deviation of the noise on executed actions, as a share of half their range."""
    observation: dict[str, ArraySpec]
    """Arrays of an observation, by key."""
    action: ArraySpec
    """An action."""
    packages: dict[str, str | None]
    """Versions of those that decide what an episode is."""

    def to_json(self) -> str:
        """Equal text for equal recordings."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, path: Path) -> Self:
        """Parse the output of `to_json` from a file; raises UserError for other text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged: its recording is no JSON: {error}") from None
        return check(cls, data, path, "recording.")


def check_same(path: Path, found: Recording, wanted: Recording) -> None:
    """UserError with the first thing in which two recordings differ."""
    for change in differences(*(fingerprint(dataclasses.asdict(one)) for one in (found, wanted))):
        raise UserError(
            f"{path} was recorded with {change.describe()}: give the same again, "
            "or another directory"
        )


def episode_path(number: int) -> str:
    """The path of episode `number` relative to the directory."""
    return f"{EPISODES}/{number:06d}.hdf5"
