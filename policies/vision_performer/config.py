"""Settings of the Vision-Performer policy."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import (
    CHECKED,
    CONTROLLERS,
    ComponentName,
    Projection,
    SeeingConfig,
    check_controller,
    check_feature_map,
)

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry
    from policies.vision_performer.policy import VisionPerformerPolicy
    from policies.vision_performer.pooled import PooledVisionPerformer

OPTIMISERS: dict[str, tuple[str | None, ...]] = {
    "autoregressive": (None, "autoregressive"),
    "joint": (None, "derivative_free", "langevin"),
    "explicit": (None,),
}
"""Optimisers of actions that go with each head; None is its own: none for the explicit head,
langevin for the joint one."""


@dataclass(frozen=True, config=CHECKED)
class VisionPolicyConfig:
    """Image encoder, energy head and search for actions of a Vision-Performer policy."""

    name: Literal["vision_performer"] = "vision_performer"
    """Kind of policy."""
    form: Literal["implicit"] = "implicit"
    """Form of the policy: a colour image and a pose, and actions of low energy."""
    image_scale: int = Field(default=1, ge=1, le=1000)
    """Side of the squares of pixels that are averaged before patching; 1: the full image."""
    patch: tuple[int, int] = (25, 25)
    """Rows and columns of averaged pixels in a patch; must divide the averaged image."""
    embed_dim: int = Field(default=64, ge=4)
    """Width of a token; a multiple of 4 and of `heads`."""
    depth: int = Field(default=2, ge=1, le=256)
    """Transformer blocks."""
    heads: int = Field(default=4, ge=1, le=256)
    """Attention heads of a block."""
    mlp_ratio: float = Field(default=2.0, gt=0, le=64)
    """Width of a block's hidden layer, in units of `embed_dim`."""
    attend: bool = True
    """Attention among the tokens; false: no attention, as a control."""
    feature_map: ComponentName = "angular_hybrid"
    """Random features that make attention linear, as in `PolicyConfig`, or "softmax": exact."""
    num_features: int = Field(default=8, ge=1)
    """Number m of random projections of the feature map, a head."""
    num_lambda_features: int = Field(default=8, ge=1)
    """Number n of random projections of a hybrid's coefficient, a head."""
    num_clusters: int = Field(default=2, ge=1)
    """Number of clusters of queries, and of keys, of a clustered hybrid in each head."""
    hybrid_base: Literal["hyperbolic", "positive", "oprf"] = "hyperbolic"
    """First base of a hybrid, beside trig: hyperbolic shares trig's random vectors, another has its
    own."""
    projection: Projection = "orthogonal"
    """Coupling of the random projections."""
    feature_seed: int = Field(default=0, ge=0, lt=2**62)
    """Seed of the random projections; block i takes this number + i."""
    qk_length: float | None = Field(default=1.0, gt=0, le=1e6)
    """Length that queries and keys are scaled to; null: divided by head_dim**0.25 instead."""
    two_arms: bool = False
    """The pose and the action are those of two arms, one half each: the policy sees and decides
    their mean and half their difference, so that the arms agree while they choose where to go."""
    pose_octaves: int = Field(default=6, ge=0, le=10)
    """Number of sines and cosines added to each number of the pose, the slowest with a period of 8
    standard deviations, each other one twice as fast, so that small differences of poses matter."""
    patch_readout: int = Field(default=8, ge=0, le=2**13)
    """Numbers of each patch token after the last block that the context holds, position by
    position; 0: the mean of the tokens instead."""
    context_dim: int = Field(default=128, ge=1, le=2**16)
    """Width of the encoder's output, which the head reads."""
    head: Literal["autoregressive", "joint", "explicit"] = "autoregressive"
    """One energy for each action dimension, given the dimensions before it; one energy of the whole
    action; or regression with squared errors, the baseline."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the head's hidden layers; the autoregressive head has such layers for each
    dimension."""
    negatives: int = Field(default=64, ge=1, le=2**16)
    """Number of uniform actions that each demonstrated one is compared with; for the autoregressive
    head, in each dimension."""
    action_noise: float = Field(default=0.005, ge=0, le=1e6)
    """Standard deviation of the noise on demonstrated actions, in units of the normalised action,
    which widens the minima of the energy so that a search finds them. Not for the explicit head."""
    optimiser: Literal["autoregressive", "derivative_free", "langevin"] | None = None
    """Search for the action of least energy: autoregressive with the autoregressive head,
    derivative_free or langevin with the joint one; null: the head's own."""
    samples: int = Field(default=128, ge=2, le=2**17)
    """Candidates that a search evaluates together; derivative_free needs 1,000 or more."""
    rounds: int = Field(default=2, ge=1, le=100)
    """Rounds of a search without gradients (autoregressive: for each dimension)."""
    noise: float = Field(default=0.05, gt=0, le=1e6)
    """Standard deviation of the noise after the first of these rounds, in units of the normalised
    action (from -1 to 1); halved every round. derivative_free needs about 0.33."""
    temperature: float = Field(default=0.25, ge=0, le=1e6)
    """Temperature of the autoregressive search: after a first round one candidate is drawn with
    weights softmax(-energy / temperature), and the best around it is taken; 0: the best candidate,
    with which the robot can stop for ever where two dimensions disagree."""
    langevin_steps: int = Field(default=100, ge=1, le=5000)
    """Steps of a Langevin chain for an action."""
    langevin_step_start: float = Field(default=0.1, gt=0, le=1e6)
    """Size of a chain's first step."""
    langevin_step_end: float = Field(default=1e-5, gt=0, le=1e6)
    """Size of a chain's last step; squares fall from the first to it."""
    langevin_negatives: bool = False
    """Joint head: negatives are moved by a Langevin chain, and gradients penalised."""
    langevin_training_steps: int = Field(default=20, ge=1, le=1000)
    """Steps of the chain that moves negatives."""
    inference_seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the searches for actions, from which every episode starts."""
    init_seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the initial parameters."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if min(self.patch) < 1:
            raise ValueError(f"patch must be [rows, columns] of at least 1, got {list(self.patch)}")
        if self.embed_dim % 4 or self.embed_dim % self.heads:
            raise ValueError(
                f"embed_dim must be a multiple of 4 and of heads = {self.heads}, "
                f"got {self.embed_dim}"
            )
        head_dim = self.embed_dim // self.heads
        check_feature_map(self.feature_map, self.hybrid_base, self.projection, head_dim)
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must be widths of at least 1, got {list(self.hidden)}")
        allowed = OPTIMISERS[self.head]
        if self.optimiser not in allowed:
            names = " or ".join("null" if name is None else name for name in allowed)
            raise ValueError(
                f"optimiser must be {names} with the head {self.head}, got {self.optimiser}"
            )
        if self.langevin_negatives and self.head != "joint":
            raise ValueError(
                f"langevin_negatives must be false with the head {self.head}; joint takes it"
            )
        return self

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "VisionPerformerPolicy":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.vision_performer.policy import VisionPerformerPolicy  # loads PyTorch

        return VisionPerformerPolicy(self, observation_space, action_space, geometry)


@dataclass(frozen=True, config=CHECKED)
class PooledPolicyConfig(SeeingConfig):
    """Tokens, encoder and controller of a pooled Vision-Performer: any images, any actions."""

    name: Literal["vision_performer"] = "vision_performer"
    """Kind of policy."""
    form: Literal["pooled"] = "pooled"
    """Form of the policy: the tokens of any images are pooled, and a controller acts on the
    result."""
    embed_dim: int = Field(default=8, ge=1, le=2**12)
    """Width of a token; a multiple of `heads`."""
    depth: int = Field(default=1, ge=1, le=256)
    """Transformer blocks."""
    heads: int = Field(default=2, ge=1, le=256)
    """Attention heads of a block."""
    mlp_ratio: float = Field(default=2.0, gt=0, le=64)
    """Width of a block's hidden layer, in units of `embed_dim`."""
    attend: bool = True
    """Attention among the tokens; false: no attention, as a control."""
    qk_length: float | None = Field(default=1.0, gt=0, le=1e6)
    """Length that queries and keys are scaled to; null: divided by head_dim**0.25 instead."""
    patch_readout: int = Field(default=0, ge=0, le=2**13)
    """Numbers per token that the controller receives after the last block, by place; 0: it receives
    the mean of all tokens instead."""
    controller: ComponentName = "auto"
    """A small dense network (mlp, auto), a recurrent one (lstm, gru), or a custom one
    (module:Class)."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.embed_dim % self.heads:
            raise ValueError(
                f"embed_dim must be a multiple of heads = {self.heads}, got {self.embed_dim}"
            )
        head_dim = self.embed_dim // self.heads
        check_feature_map(self.feature_map, self.hybrid_base, self.projection, head_dim)
        check_controller(self.controller, tuple(c for c in CONTROLLERS if c != "vote"))
        if self.attend and head_dim == 1 and self.qk_length is not None:
            raise ValueError(
                "qk_length must be null where heads have one dimension (embed_dim = heads = "
                f"{self.heads}), whose length alone can be learned, got {self.qk_length}"
            )
        return self

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "PooledVisionPerformer":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.vision_performer.pooled import PooledVisionPerformer  # loads PyTorch

        return PooledVisionPerformer(self, observation_space, action_space, geometry)

    def outputs(self, tokens: int) -> int:
        """Number of controller inputs for this number of tokens."""
        return tokens * self.patch_readout or self.embed_dim
