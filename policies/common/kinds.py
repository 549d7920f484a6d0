"""Kinds of policies and their settings classes, by the `name` in the settings.

This module does not need PyTorch, so that configurations load quickly.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Discriminator, Tag, model_validator
from pydantic.dataclasses import dataclass

from policies.cnn.config import CNNPolicyConfig
from policies.common.settings import COMPONENT, ComponentName, entry_points, is_name, name_of
from policies.felt_ground.config import FeltGroundPolicyConfig
from policies.implicit_attention.config import PolicyConfig
from policies.place_memory.config import PlaceMemoryConfig
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CustomPolicyConfig:
    """A custom policy, see docs/guide/custom_policy.md."""

    name: ComponentName
    """Its class, "module:Class", or its name among the entry points `foveate.policies` of an
    installed package."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the class beside the spaces; `policy.x` is the same as
    `policy.options.x`."""

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, given: Any) -> Any:
        """Other keys are options."""
        options = given.get("options", {}) if isinstance(given, dict) else None
        if not isinstance(options, dict):
            return given
        more = {key: value for key, value in given.items() if key not in ("name", "options")}
        return {"name": given.get("name"), "options": {**options, **more}}

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> Any:
        """The custom policy with these options."""
        from policies.common.plugins import build_custom  # imported late because it loads PyTorch

        return build_custom(self, observation_space, action_space, geometry)


OwnPolicyConfig = CustomPolicyConfig
"""Former name."""
CONFIGS: dict[str, type[Any]] = {
    "implicit_attention": PolicyConfig,
    "place_memory": PlaceMemoryConfig,
    "felt_ground": FeltGroundPolicyConfig,
    "vision_performer": VisionPolicyConfig,
    "cnn": CNNPolicyConfig,
}
"""Settings of each kind of policy by its `name`; settings without a name are the first's, and a
vision_performer whose `form` is pooled has `PooledPolicyConfig`."""

AnyPolicyConfig = (
    PolicyConfig
    | PlaceMemoryConfig
    | FeltGroundPolicyConfig
    | PooledPolicyConfig
    | VisionPolicyConfig
    | CNNPolicyConfig
    | CustomPolicyConfig
)
"""Settings of any policy."""


def is_custom(name: Any) -> bool:
    """Whether a policy's name is "module:Class" or an entry point of an installed package."""
    name = name_of(name)
    if not isinstance(name, str) or name in CONFIGS:
        return False
    return is_name(name) or name in entry_points()


def settings_class(given: Mapping[str, Any]) -> type[Any]:
    """The class of a policy's settings.

    Raises:
        ValueError: for a name that no policy has.
    """
    name = given.get("name", "implicit_attention")
    if is_custom(name):
        return CustomPolicyConfig
    if not isinstance(name, str) or name not in CONFIGS:
        known = ", ".join([*CONFIGS, *entry_points()])
        raise ValueError(
            f"policy name must be one of {known}, got {name!r}; {COMPONENT} names a custom one"
        )
    if name == "vision_performer" and given.get("form") == "pooled":
        return PooledPolicyConfig
    return CONFIGS[name]


def _tag(given: Any) -> str:
    """The member of `PolicySettings` to which settings belong."""
    if isinstance(given, CustomPolicyConfig):
        return COMPONENT
    name = given.get("name", "implicit_attention") if isinstance(given, dict) else given.name
    return COMPONENT if is_custom(name) else str(name)


PolicySettings = Annotated[
    Annotated[PolicyConfig, Tag("implicit_attention")]
    | Annotated[PlaceMemoryConfig, Tag("place_memory")]
    | Annotated[FeltGroundPolicyConfig, Tag("felt_ground")]
    | Annotated[PooledPolicyConfig, Tag("vision_performer")]
    | Annotated[CNNPolicyConfig, Tag("cnn")]
    | Annotated[CustomPolicyConfig, Tag(COMPONENT)],
    Discriminator(_tag),
]
"""Settings of policies for trainers that require only actions."""
