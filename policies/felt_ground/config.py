"""Settings of the policy that learns underfoot which ground holds; nothing here needs PyTorch."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import CHECKED, ComponentName
from policies.felt_ground.memory_config import FeltMemoryConfig
from policies.place_memory.config import PlaceMemoryConfig

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry
    from policies.felt_ground.policy import FeltGroundPolicy


@dataclass(frozen=True, config=CHECKED)
class FeltGroundPolicyConfig(PlaceMemoryConfig):
    """A memory of places, which holds appearances, and a memory of how appearances felt."""

    name: Literal["felt_ground"] = "felt_ground"  # type: ignore[assignment]
    """Kind of policy."""
    controller: ComponentName = "vote"
    """Controller that turns risks into footholds: vote, whose initial parameters walk already, or
    another one, which must be trained."""
    felt: FeltMemoryConfig = FeltMemoryConfig(kappa=8.0, rate=0.8)
    """Memory from appearance to how the ground felt."""
    deep_m: float = Field(default=0.015, gt=0, le=0.1)
    """A foot that stands deeper below the plane of the others stands on ground that gave way."""
    num_features: int = Field(default=40, ge=1)
    """Highest harmonic of the memory of places, which has 2 m + 1 features."""
    width_m: float = Field(default=0.02, gt=0, le=1)
    """Standard deviation of the kernel of places, metres: tiles are short."""
    alike: float = Field(default=-1, ge=-1, le=1)
    """Least cosine of the appearances 3.5 cm behind and ahead of a foot that writes that ground
    held; -1: every foot writes, even one between two tiles, which may stand on either."""
    sharpness: float = Field(default=5.0, gt=0, le=100)
    """Factor of what is read, from -1 (held) to 1 (gave way), in the log odds of the risk."""
    careful_m: float | None = Field(default=2.2, ge=0, le=100)
    """Distance walked before feet avoid ground that may give way: until then they try it. null:
    until the memory can tell about most of the ground within reach."""
    prior_risk: float = Field(default=0.45, gt=0, lt=1)
    """Risk of ground of which nothing is known."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for key, taken in (("memory", "linear"), ("keys", "geometry"), ("rule", "sum"),
                           ("pool_m", None), ("write_tokens", None)):  # fmt: skip
            if getattr(self, key) != taken:
                raise ValueError(
                    f"{key} must be {'null' if taken is None else taken} in felt_ground, got "
                    f"{getattr(self, key)}"
                )
        return self

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "FeltGroundPolicy":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.felt_ground.policy import FeltGroundPolicy  # loads PyTorch

        return FeltGroundPolicy(self, observation_space, action_space, geometry)

    @property
    def carries(self) -> bool:
        """Whether the memory keeps earlier frames."""
        return True
