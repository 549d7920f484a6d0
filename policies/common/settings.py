"""Settings shared by several policies; nothing here needs PyTorch.

A name "module:Class" of a custom policy, controller or feature map may import its module only if it
comes from the user: from a call, a command line or their configuration
(`policies.common.plugins.admit`). Imported or given objects are registered here by name, so that
later code finds them without importing anything.
"""

import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry

COMPONENT = "module:Class"
"""The form of a custom component's name, in error messages."""
GROUP = "foveate.policies"
"""Entry points of installed packages that name a policy or a controller of theirs."""
ADMITTED: dict[str, Any] = {}
"""Classes, functions that make objects, and objects, of which copies are made, by their names."""


def is_name(name: str) -> bool:
    """Whether a name is "module:Class"."""
    return bool(re.fullmatch(r"[\w.]+:[\w.<>]+", name))


def name_of(given: Any) -> Any:
    """Register a class, function or module of PyTorch for this program, and return its name; return
    anything else unchanged."""
    if inspect.isclass(given) or inspect.isroutine(given):
        name = f"{given.__module__}:{given.__qualname__}"
    elif hasattr(given, "state_dict"):
        name = f"{type(given).__module__}:{type(given).__qualname__}.object{id(given)}"
    else:
        return given
    ADMITTED[name] = given
    return name


ComponentName = Annotated[str, BeforeValidator(name_of)]
"""Name of a custom component; in Python also its class, function or object."""


def entry_points(group: str = GROUP) -> tuple[str, ...]:
    """The sorted entry points of a group, without importing any."""
    from importlib import metadata  # late, as it takes longer than all of this package

    return tuple(sorted({point.name for point in metadata.entry_points(group=group)}))


Layout = Literal["HW", "HWC", "CHW", "NHW", "NHWC", "NCHW", "THWC", "TCHW", "vector"]
"""How the axes of an image are meant, see `PolicyConfig.layout`."""
ImageScaling = (
    Literal["auto", "space", "running"] | tuple[float, float] | dict[str, tuple[float, float]]
)
"""See `PolicyConfig.image_scaling`."""
Edges = Literal["auto", "pad", "drop"]
"""See `PolicyConfig.edges`."""
Repair = Literal["none", "holes", "full"]
"""See `PolicyConfig.repair`."""
EXACT = "softmax"
"""Name under which exact softmax attention is chosen in place of a feature map."""
CONTROLLERS = ("auto", "vote", "mlp", "lstm", "gru")
"""Built-in values of `PolicyConfig.controller`."""
SCALED = (*(name for name in CONTROLLERS if name != "vote"), "conv")
"""Controllers whose last layer `init_output` scales; auto is mlp then."""
Projection = Literal[
    "fast_simplex", "hadamard", "halton", "iid", "orthogonal", "simplex", "simplex_plus"
]
"""Names of `attention.available_projections()`."""
CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Configuration of all settings: unknown keys and numbers that are not finite are errors."""


def _bins(count: int) -> int:
    if count == 1:
        raise ValueError("bins must be 0 (regressed) or at least 2, got 1")
    return count


Bins = Annotated[int, Field(ge=0, le=1001), AfterValidator(_bins)]
NotNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1, le=10_000)]
_DEFAULT_MAPS = tuple((name, "hyperbolic", "orthogonal") for name in ("angular_hybrid", "trig"))
"""Defaults of the settings, which need no check: `--help` prints them without loading PyTorch."""


def check_scaling(scaling: ImageScaling) -> None:
    """ValueError for units that are not above 0."""
    if isinstance(scaling, str):
        return
    every = scaling.values() if isinstance(scaling, dict) else [scaling]
    for zero, unit in every:
        if unit <= 0:
            raise ValueError(f"image_scaling must have units above 0, got [{zero}, {unit}]")


def check_feature_map(name: str, hybrid_base: str, projection: str, dim: int) -> None:
    """Raise ValueError for settings that no policy accepts; `dim` is the dimension of queries and
    keys.

    A map of `attention.available()` declares what it accepts (`FeatureMap.general`,
    `FeatureMap.projections`, the option `base`).
    """
    if (name, hybrid_base, projection) in _DEFAULT_MAPS and dim > 1:
        return
    from attention import registry  # imported late because it loads PyTorch

    known = (EXACT, *registry.available(general=True))
    if name not in known and not is_name(name):
        raise ValueError(f"feature_map must be one of {', '.join(known)}, got {name!r}")
    if hybrid_base != "hyperbolic" and "base" not in registry.options_of(name):
        hybrids = [one for one in known if "base" in registry.options_of(one)]
        raise ValueError(
            f"hybrid_base must be hyperbolic with the feature map {name}, got {hybrid_base}; "
            f"{' and '.join(hybrids)} take another"
        )
    taken = registry.projections_of(name)
    if taken is not None and projection not in taken:
        raise ValueError(
            f"projection must be {' or '.join(taken)} with the feature map {name}, got {projection}"
        )
    simplices = "simplex" in projection or (
        hybrid_base != "hyperbolic" and projection == "orthogonal"  # see `map_options`
    )
    if name != EXACT and simplices and dim < 2:
        raise ValueError(
            f"projection = {projection} makes simplices, which need queries and keys of at least "
            f"2 dimensions, got {dim}"
        )


def check_controller(name: str, known: tuple[str, ...]) -> None:
    """ValueError for a controller that is neither built-in nor custom."""
    if name not in known and not is_name(name) and name not in entry_points():
        raise ValueError(
            f"controller must be one of {', '.join((*known, *entry_points()))}, got {name!r}; "
            f"{COMPONENT} names a custom one"
        )


BuiltPolicy = TypeVar("BuiltPolicy", covariant=True)


class Buildable(Protocol[BuiltPolicy]):
    """Settings that build their policy."""

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> BuiltPolicy:
        """Build the policy with these settings; `policies.build` checks its size beforehand."""


@dataclass(frozen=True, config=CHECKED)
class SeeingConfig:
    """The settings shared by all policies for any images and any action space."""

    name: str = ""
    """Kind of policy."""
    patch: tuple[int, int] = (4, 4)
    """Rows and columns of image pixels in a token; [1, 1] makes every pixel a token."""
    stride: tuple[int, int] | None = None
    """Rows and columns of pixels from a patch to the next: smaller than `patch`, patches overlap;
    null: they are adjacent."""
    edges: Edges = "auto"
    """Patches that reach beyond an image: filled up with zeros (pad), or left out (drop); auto:
    pad without `stride`, else drop."""
    layout: dict[str, Layout] = Field(default_factory=dict)
    """Meaning of an image's axes, by its key in the observation ("observation" if it is no Dict): N
    separate images, T frames, C channels, H rows, W columns; or vector, no image.
    Default: as in the robot's geometry; else [H, W], with the shorter of the first and the last of
    three axes as channels, and with the first of four axes as frames. A table (floats, at most 7
    rows or columns, no name such as image or depth) is a vector."""
    image_scaling: ImageScaling = "auto"
    """Offset and scale of an image's values: [zero, unit], for all images or by key;
    space: middle and half of the space's bounds; running: mean and standard deviation of each
    channel over the training observations; auto: as in the robot's geometry, else space, or running
    for a space without bounds."""
    image_crop: tuple[NotNegative, NotNegative, NotNegative, NotNegative] = (0, 0, 0, 0)
    """Pixels left out of every image at the top, bottom, left and right."""
    image_px: tuple[Positive, Positive] | None = None
    """Height and width that every image is resized to, by means over areas; null: not resized."""
    grey: bool = False
    """Convert colours to one channel, by the luma weights of red, green and blue."""
    repair: Repair = "none"
    """Repair of depth images before the policy sees them, see `policies.common.depth_repair`.
    holes: pixels without a return are filled; full: false returns are replaced too, by the last
    image. Losses use images without repair."""
    standardise: bool = False
    """Cloning without the controller vote: bring each pixel to mean 0 and variance 1 over the
    demonstrations; before that, and otherwise, `image_scaling` holds."""
    feature_map: ComponentName = "angular_hybrid"
    """Feature map of linear attention: a name of `attention.available(general=True)` or
    module:Class; or "softmax": exact attention."""
    num_features: int = Field(default=8, ge=1)
    """Number m of random projections of the feature map."""
    num_lambda_features: int = Field(default=8, ge=1)
    """Number n of random projections of a hybrid's coefficient."""
    num_clusters: int = Field(default=2, ge=1)
    """Number of clusters of queries, and of keys, of a clustered hybrid."""
    hybrid_base: Literal["hyperbolic", "positive", "oprf"] = "hyperbolic"
    """First base of a hybrid, beside trig: hyperbolic shares trig's random vectors, another has its
    own."""
    projection: Projection = "orthogonal"
    """Coupling of the random projections."""
    feature_seed: int = Field(default=0, ge=0, lt=2**62)
    """Seed of the random projections."""
    controller: ComponentName = "mlp"
    """Controller that turns attention output and vector into an action."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the hidden layers; none: a linear map (mlp). The last is the width of the recurrent
    layer (lstm, gru), the first the channels of the convolutions (conv)."""
    bins: Annotated[int, Field(ge=2, le=1001)] | tuple[Bins, ...] | None = None
    """Number of equally spaced values among which a softmax chooses a number of the action, for all
    numbers or for each, where 0 is regressed; null: regressed, or votes for the feet of a robot
    whose geometry names them."""
    last_action: bool = False
    """Whether the controller receives the previous action, zeros at the beginning of an episode;
    not with votes."""
    init_seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the initial parameters."""
    init_output: float = Field(default=1.0, ge=0, le=100)
    """Factor of the initial weights of the controller's last layer: 0 begins in the middle of the
    action space for every observation; not with votes."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for name, sides in (("patch", self.patch), ("stride", self.stride)):
            if sides is not None and min(sides) < 1:
                raise ValueError(f"{name} must be [rows, columns] of at least 1, got {list(sides)}")
        check_scaling(self.image_scaling)
        if min(self.hidden, default=1) < 1:
            raise ValueError(f"hidden must be widths of at least 1, got {list(self.hidden)}")
        if self.controller in ("lstm", "gru") and not self.hidden:
            raise ValueError(
                f"hidden must have a width with the controller {self.controller}, got none"
            )
        if self.init_output != 1 and self.controller not in SCALED:
            raise ValueError(
                f"init_output must be 1 with the controller {self.controller}, got "
                f"{self.init_output}; {', '.join(SCALED)} take another"
            )
        return self

    @property
    def acts_by(self) -> str:
        """The kind of the controller."""
        return self.controller
