"""Descriptions of environments: a `Task`, found by its Gymnasium id.

Commands, studies, plots and videos read the description and name no task. A custom package calls
`envs.register(Task(...))` when it is imported. An environment without a description works too, with
its reward and, if `info` has it, `success`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import gymnasium

SUCCESS = "success"
"""The headline of a task that is judged by `info["success"]`."""
_TAKEN = {"seed", "reward", "steps", SUCCESS}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One measure of an episode: `info[name]` after its last step."""

    name: str
    """Key of `info`; the measure's name in metrics.csv and evaluation.json."""
    label: str
    """Text in a table or a caption; for an event, the text where it happened."""
    unit: str = ""
    """Its unit; none for shares, counts and events."""
    better: Literal["up", "down"] = "up"
    """Whether more of it is better, or less."""
    kind: Literal["number", "share", "event"] = "number"
    """A number, a share from 0 to 1, or an event: True where it happened."""
    decimals: int = 2
    """How many are shown of a number."""
    axis: str = ""
    """Text beside a plot; default: the label with its unit."""
    of: str = ""
    """Name of the whole that a fraction refers to."""
    sentence: str = ""
    """Text for a policy's mean, a verb and {} for the figure, as in "places {} of the balls"; else
    "has a distance of {} m"."""
    otherwise: str = ""
    """Text where an event did not happen."""
    mean: str = ""
    """Name of its mean over episodes; else `name` with `_mean`, of an event with `_rate`."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in _TAKEN:
            raise ValueError(
                f"the name of an outcome must be a key of info that is a Python name, and none of "
                f"{', '.join(sorted(_TAKEN))}, got {self.name!r}"
            )

    @property
    def mean_name(self) -> str:
        """Name of its mean over episodes, in files."""
        return self.mean or f"{self.name}_{'rate' if self.kind == 'event' else 'mean'}"

    @property
    def axis_label(self) -> str:
        """Its text beside a plot."""
        return self.axis or (f"{self.label} ({self.unit})" if self.unit else self.label)

    @property
    def full_label(self) -> str:
        """Its full name where the context does not define it: "share of balls in bowls"."""
        if self.kind == "share" and self.of:
            return f"share of {self.of} {self.label}"
        return self.axis_label

    def said(self, figure: str) -> str:
        """Return a sentence on a policy's mean."""
        words = self.sentence or f"has a {self.label} of {{}} {self.unit}".rstrip()
        return words.replace("{}", figure)

    def captioned(self, value: float) -> str:
        """A value at this moment, as wide as others; "" for an event that has not happened."""
        if self.kind == "event":
            return self.label if value else ""
        if self.kind == "share":
            return f"{value:4.0%} {self.label}"
        return f"{value:5.{self.decimals}f} {self.unit or self.label}"

    def shown(self, value: float) -> str:
        """A value of one episode in words; "" for an event of which nothing is said."""
        if self.kind == "event":
            return self.label if value else self.otherwise
        if self.kind == "share":
            return f"{value:.1%} {self.label}"
        return f"{value:.{self.decimals}f} {self.unit or self.label}"


@dataclass(frozen=True, kw_only=True)
class DepthEdges:
    """Which parts of depth images matter to a policy: the edges of safe ground."""

    past_m: float
    """A pixel whose depth is larger sees past what can be stepped on, metres."""
    edge: str
    """Name of such an edge, as in "a gap's edge"."""
    past: str
    """Name of the region that such a pixel shows, as in "past the stones"."""
    between: str
    """Description of such an edge, as in "between stone and floor"."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The description of one environment."""

    env_id: str
    """Gymnasium id."""
    what: str = ""
    """Two sentences: the task, and the measure of an episode."""
    scene: Path | None = None
    """A small WebP of it, which pages show beside these sentences."""
    settings: type[Any] | None = None
    """A pydantic dataclass of its settings, the keywords of `gymnasium.make`, with extra="forbid";
    None: not known, and checked by the environment alone."""
    embodiment: tuple[str, ...] = ()
    """Settings that determine a policy's observations and the meaning of its actions: only these
    are stored with a policy. The others define the task, the same for every policy: scene, noise,
    length and reward, which training may have made easier. Where `settings` is None, all are
    stored."""
    per_episode: tuple[str, ...] = ()
    """Settings that `reset(options=...)` may change for an episode: what a curriculum can hold."""
    outcomes: tuple[Outcome, ...] = ()
    """Measures of an episode, beside reward and success."""
    headline: str = SUCCESS
    """The outcome that matters most, or "success"."""
    success: str = "succeeds"
    """Verb for success in an episode."""
    reward: str = ""
    """Description of a step's reward."""
    expert: bool = False
    """Whether the environment has `expert_action()`."""
    camera_image: str | None = None
    """Key of the camera image that videos show beside its attention overlay, in place of an outside
    view; None: the outside view, with the policy's input images inset."""
    shown: tuple[float, float] | None = None
    """Values of an image that videos draw white and black, such as depths in metres; None: the
    bounds of the space."""
    edges: DepthEdges | None = None
    """Relevant parts of the depth images; None if they are not known."""
    picture: InitVar[str | None] = None
    """Former name of `camera_image`."""

    def __post_init__(self, picture: str | None) -> None:
        if picture is not None:
            object.__setattr__(self, "camera_image", picture)
        if ":" in self.env_id or not self.env_id:
            raise ValueError(f"env_id must be a Gymnasium id without module, got {self.env_id!r}")
        config = getattr(self.settings, "__pydantic_config__", {})
        if self.settings is not None and config.get("extra") != "forbid":
            raise TypeError(
                "settings must be a pydantic dataclass with extra='forbid', or None, got "
                f"{self.settings}"
            )
        names = [outcome.name for outcome in self.outcomes]
        if len(set(names)) < len(names):
            raise ValueError(f"names of outcomes must be distinct, got {', '.join(names)}")
        if self.headline not in (SUCCESS, *names):
            allowed = ", ".join((SUCCESS, *names))
            raise ValueError(f"headline must be one of {allowed}, got {self.headline!r}")
        known = set() if self.settings is None else {part.name for part in fields(self.settings)}
        for key, given in (("embodiment", self.embodiment), ("per_episode", self.per_episode)):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ValueError(f"{key} must name settings, got {', '.join(unknown)}")

    @property
    def headline_outcome(self) -> Outcome | None:
        """The outcome that matters most; None where that is success."""
        return next((one for one in self.outcomes if one.name == self.headline), None)


_TASKS: dict[str, Task] = {}


def register(description: Task, entry_point: str | Callable[..., Any] | None = None) -> None:
    """Describe an environment; a later description of the same id replaces it.

    Args:
        description: of the environment.
        entry_point: registers it with Gymnasium too, where that does not know the id.
    """
    if entry_point is not None and description.env_id not in gymnasium.registry:
        gymnasium.register(description.env_id, entry_point=entry_point)
    _TASKS[description.env_id] = description


def find_task(env_id: str) -> Task | None:
    """The description for a Gymnasium id, also "module:Id", whose module is not imported; None if
    there is none."""
    return _TASKS.get(env_id.rpartition(":")[2])


def name_of(env: gymnasium.Env[Any, Any]) -> str:
    """Name of an open environment in messages: its Gymnasium id, or else its class."""
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else spec.id


def task_of(env: gymnasium.Env[Any, Any]) -> Task | None:
    """The description of an open environment; None without any."""
    spec = env.unwrapped.spec
    return None if spec is None else find_task(spec.id)


def tasks() -> tuple[Task, ...]:
    """All descriptions, in the order in which they were registered."""
    return tuple(_TASKS.values())
