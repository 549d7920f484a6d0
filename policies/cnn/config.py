"""Settings of the convolutional policy."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import (
    CHECKED,
    CONTROLLERS,
    ComponentName,
    ImageScaling,
    SeeingConfig,
    check_controller,
)

if TYPE_CHECKING:
    import gymnasium

    from policies.cnn.policy import CNNPolicy
    from policies.common.geometry import Geometry

Layer = tuple[
    Annotated[int, Field(ge=1, le=4096)],
    Annotated[int, Field(ge=1, le=256)],
    Annotated[int, Field(ge=1, le=256)],
]
NATURE: tuple[Layer, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Mnih et al. 2015, Nature 518: for images of at least 36 pixels a side."""
SMALL: tuple[Layer, ...] = ((16, 3, 2), (32, 3, 2), (32, 3, 1))
"""For images of at least 15 pixels a side."""
TINY: tuple[Layer, ...] = ((16, 2, 1), (32, 2, 1), (64, 2, 1))
"""Those of MiniGrid's documentation, for images of 7 x 7 cells and at least 4."""
_UNUSED = (
    *("patch", "stride", "edges", "standardise", "feature_map", "num_features"),
    *("num_lambda_features", "num_clusters", "hybrid_base", "projection", "feature_seed"),
)
"""Settings of tokens and attention, which it does not have."""


@dataclass(frozen=True, config=CHECKED)
class CNNPolicyConfig(SeeingConfig):
    """Convolutions and controller of a convolutional policy: any images, any actions."""

    name: Literal["cnn"] = "cnn"
    """Kind of policy."""
    convolutions: tuple[Layer, ...] | None = Field(default=None, min_length=1, max_length=64)
    """Channels, kernel size and stride in pixels of each convolution, with a ReLU after each; null:
    by the shortest side of the images, [[32, 8, 4], [64, 4, 2], [64, 3, 1]] from 36 pixels (DQN),
    [[16, 3, 2], [32, 3, 2], [32, 3, 1]] from 15, else [[16, 2, 1], [32, 2, 1], [64, 2, 1]]."""
    features_dim: int = Field(default=256, ge=1, le=2**14)
    """Width of the dense layer after the convolutions, with a ReLU."""
    image_scaling: ImageScaling = "running"
    """As of other policies, whose default is auto: running suits images of few of the values that
    their space allows, such as the codes of cells."""
    controller: ComponentName = "auto"
    """A dense network (mlp, auto), linear without `hidden`; a recurrent one (lstm, gru), or a
    custom one (module:Class)."""
    hidden: tuple[int, ...] = ()
    """Widths of the controller's hidden layers."""
    init_output: float = Field(default=0.01, ge=0, le=100)
    """Factor of the initial weights of the controller's last layer, small so that all choices are
    about equally probable at first."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_controller(self.controller, tuple(c for c in CONTROLLERS if c != "vote"))
        own = SeeingConfig()
        for name in _UNUSED:
            if getattr(self, name) != getattr(own, name):
                raise ValueError(
                    f"{name} must be left out with the policy cnn, which has neither tokens nor "
                    f"attention, got {getattr(self, name)}"
                )
        return self

    def layers(self, height: int, width: int) -> tuple[Layer, ...]:
        """The convolutions over images of this size."""
        if self.convolutions is not None:
            return self.convolutions
        side = min(height, width)
        return NATURE if side >= 36 else SMALL if side >= 15 else TINY

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "CNNPolicy":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.cnn.policy import CNNPolicy  # loads PyTorch

        return CNNPolicy(self, observation_space, action_space, geometry)
