"""Settings of the policy that remembers where the ground has holes; nothing here needs PyTorch."""

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import (
    CHECKED,
    CONTROLLERS,
    EXACT,
    ComponentName,
    SeeingConfig,
    check_controller,
    check_feature_map,
)

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry
    from policies.place_memory.policy import PlaceMemoryPolicy

CUE = 18
"""Cells of the lateral cue, each with a share of holes and whether it was seen."""
ASIDE, BANDS = 3, 3
"""Where the path turns: rows of places that a leg reads, and stretches ahead with a cue each."""
KEY_PX = (12, 16)
"""Rows and columns of tokens that keys are learned of."""
KEY_INPUTS, KEY_HIDDEN, KEY_OUTPUTS = 7, (48, 48), 3 + CUE
"""Widths of the network that learns them."""
CHOICE_INPUTS = 10
"""Count of a pixel's features for the choice of the written pixels."""
_IMAGE_SETTINGS = (
    "patch", "stride", "edges", "image_scaling", "image_crop", "image_px", "grey", "standardise",
)  # fmt: skip


@dataclass(frozen=True, config=CHECKED)
class PlaceMemoryConfig(SeeingConfig):
    """Settings of the pixels that are written, the memory, and the controller that reads it."""

    name: Literal["place_memory"] = "place_memory"
    """Kind of policy."""
    memory: Literal["none", "linear", "exact", "grid", "gru"] = "linear"
    """Linear attention; softmax attention over past frames (exact); a grid of cells along the path;
    none: reads of the present frame alone, in such a grid; gru: the same with a recurrent
    controller."""
    keys: Literal["geometry", "learned"] = "geometry"
    """Where pixels are: projected by the cameras' geometry, or learned (of one camera)."""
    key_prior: tuple[float, float] = (0.0, 0.8)
    """Initial weights of a pixel's row and column, from -1 to 1, in a learned key: (0, 0.8) if
    columns run from near to far, (-0.8, 0) if rows run from far to near."""
    key_stride: int = Field(default=1, ge=1)
    """Training of learned keys uses one pixel in this many, other ones at each decision; a divisor
    of 192. Acting uses all pixels."""
    feature_map: ComponentName = "harmonic"
    """Features of places on the circle, of linear memory; of learned keys with none and gru too."""
    num_features: int = Field(default=26, ge=1)
    """Number m of the feature map; for harmonic, the highest harmonic, with 2 m + 1 features."""
    rule: Literal["sum", "delta"] = "sum"
    """Update of the linear memory: add tokens to the sums, or, by the delta rule, correct the value
    that is read at their place."""
    rate: float = Field(default=0.1, gt=0, le=1)
    """Share of the difference that a token corrects by the delta rule."""
    pool_m: float | None = Field(default=None, gt=0, le=0.5)
    """Length of path whose pixels the linear memory pools into one token; null: no pooling."""
    write_tokens: int | None = Field(default=None, ge=1, le=10_000)
    """Number of pixels of a frame that the linear memory writes, with keys by geometry; null: all
    pixels on the ground between the feet."""
    write_choice: Literal["learned", "random"] = "learned"
    """Choice of the `write_tokens` pixels: the best by an Implicit Attention Policy's scores, which
    the loss trains through the memory; or random ones, new at each step."""
    width_m: float = Field(default=0.03, gt=0, le=1)
    """Standard deviation of the kernel of places, metres."""
    circle_m: float = Field(default=2.0, ge=0.5, le=100)
    """Length of path after which places repeat: its ends are joined to a circle, metres. Where the
    path turns, the length of both sides of the torus."""
    forgetting: float = Field(default=0.95, gt=0, le=1)
    """Factor by which each decision discounts the weight of earlier tokens."""
    exact_s: float | None = Field(default=10.0, gt=0, le=600)
    """Time for which exact memory keeps a frame, seconds; null: until the episode ends."""
    cell_m: float = Field(default=0.01, gt=0, le=0.2)
    """Side of a cell of the memories grid, none and gru, metres."""
    fit_pitch: bool = False
    """Whether a grid corrects the pitch of the cameras so that most pixels lie in the plane of the
    stones' tops."""
    reach_m: float = Field(default=0.2, gt=0, le=1)
    """How far ahead of and behind its nominal foothold a leg reads, metres."""
    spacing_m: float = Field(default=0.01, gt=0, le=0.2)
    """Distance from one place that is read to the next, metres."""
    hole_m: float = Field(default=0.025, gt=0, le=0.5)
    """How far below the plane of the stones' tops a pixel is a hole, metres."""
    decision_s: float = Field(default=0.05, gt=0, le=10)
    """Time from one decision to the next, seconds, which odometry integrates velocity by."""
    controller: ComponentName = "mlp"
    """Controller that turns reads, cue and proprioception into footholds: a small dense network
    (mlp, auto), a template of 23 parameters over the reads (vote), a recurrent network (lstm, gru),
    or a custom one (module:Class)."""
    hidden: tuple[int, ...] = (64, 32)
    """Widths of the hidden layers; none: a linear map (mlp). The last is that of the recurrent
    layer (lstm, gru)."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_controller(self.controller, CONTROLLERS)
        if self.last_action and self.controller == "vote":
            raise ValueError("last_action must be false with the controller vote; others take it")
        if self.feature_map == EXACT:
            raise ValueError(f"feature_map must not be {EXACT}; memory exact is exact attention")
        if self.feature_map != "harmonic":
            check_feature_map(self.feature_map, self.hybrid_base, self.projection, 2)
        if self.memory == "gru" and self.controller not in ("auto", "mlp"):
            raise ValueError(
                f"controller must be auto or mlp with memory gru, which names it, got "
                f"{self.controller}"
            )
        if self.memory == "gru" and not self.hidden:
            raise ValueError("hidden must have a width with memory gru, got none")
        if self.fit_pitch and (self.memory, self.keys) != ("grid", "geometry"):
            raise ValueError(
                f"fit_pitch must be false with memory {self.memory} and keys {self.keys}; grid and "
                "geometry take it"
            )
        if self.keys == "learned" and self.memory == "grid":
            raise ValueError(
                "keys must be geometry with memory grid, whose cells have no gradient, got learned"
            )
        if math.prod(KEY_PX) % self.key_stride:
            raise ValueError(
                f"key_stride must be a divisor of {math.prod(KEY_PX)}, got {self.key_stride}"
            )
        if self.keys == "geometry" and (self.key_prior, self.key_stride) != ((0.0, 0.8), 1):
            raise ValueError(
                "key_prior and key_stride have no effect with keys geometry, where they must be "
                f"[0.0, 0.8] and 1, got {list(self.key_prior)} and {self.key_stride}"
            )
        if self.memory != "linear" and (self.rule, self.pool_m) != ("sum", None):
            raise ValueError(
                f"rule must be sum with memory {self.memory}, and pool_m null, got {self.rule} and "
                f"{self.pool_m}; linear takes others"
            )
        self._check_choice()
        if self.width_m * math.pi > self.circle_m / 2:
            raise ValueError(
                f"width_m must be at most circle_m / {2 * math.pi:.3g} = "
                f"{self.circle_m / 2 / math.pi:.3g}, got {self.width_m}"
            )
        defaults = {part.name: part.default for part in fields(SeeingConfig)}
        for key in _IMAGE_SETTINGS:
            if getattr(self, key) != defaults[key]:
                raise ValueError(
                    f"{key} has no effect in place_memory, which reads depth in metres, pixel "
                    f"by pixel; "
                    f"leave it out, got {getattr(self, key)}"
                )
        return self

    def _check_choice(self) -> None:
        if self.write_tokens is None:
            if self.write_choice != "learned":
                raise ValueError(
                    f"write_choice must be learned with write_tokens null, which writes all "
                    f"pixels, got {self.write_choice}"
                )
            return
        for key, taken in (("memory", "linear"), ("keys", "geometry"), ("pool_m", None)):
            if getattr(self, key) != taken:
                raise ValueError(
                    f"write_tokens must be null with {key} {getattr(self, key)}, got "
                    f"{self.write_tokens}; {key} {taken or 'null'} takes a number"
                )

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "PlaceMemoryPolicy":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.place_memory.policy import PlaceMemoryPolicy  # loads PyTorch

        return PlaceMemoryPolicy(self, observation_space, action_space, geometry)

    @property
    def acts_by(self) -> str:
        """The kind of the controller."""
        return "gru" if self.memory == "gru" else self.controller

    @property
    def kappa(self) -> float:
        """Concentration of the von Mises kernel exp(kappa (cos angle - 1)) on the circle."""
        return (self.circle_m / (2 * math.pi * self.width_m)) ** 2

    @property
    def carries(self) -> bool:
        """Whether the memory keeps earlier frames."""
        return self.memory not in ("none", "gru")

    @property
    def reads(self) -> int:
        """The places that a leg reads."""
        return 2 * round(self.reach_m / self.spacing_m) + 1

    def outputs(self, legs: int, is_plane: bool = False) -> int:
        """Number of controller inputs beside proprioception; more if places have two dimensions
        because the path turns.
        """
        rows, cues = (ASIDE, BANDS) if is_plane else (1, 1)
        return legs * rows * self.reads + cues * 2 * CUE
