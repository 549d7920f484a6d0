"""Settings of the Implicit Attention Policy."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import (
    CHECKED,
    CONTROLLERS,
    ComponentName,
    SeeingConfig,
    check_controller,
    check_feature_map,
)

if TYPE_CHECKING:
    import gymnasium

    from policies.common.geometry import Geometry
    from policies.implicit_attention.policy import ImplicitAttentionPolicy


@dataclass(frozen=True, config=CHECKED)
class PolicyConfig(SeeingConfig):
    """Tokens, attention and controller of an Implicit Attention Policy."""

    name: Literal["implicit_attention"] = "implicit_attention"
    """Kind of policy."""
    variant: Literal["masking", "rank", "trans"] = "masking"
    """Attention output: the image with the lesser tokens zeroed, the best
    tokens in order of score (to an image controller, vote, the same as masking), or values mixed by
    attention."""
    rank_with: Literal["both", "values", "places"] = "both"
    """Output of rank for the best tokens: values and place codes, values, or row and column
    alone (and image, where there are several), each from -1 to 1."""
    selection: Literal["learned", "random", "all"] = "learned"
    """Tokens to keep: by attention score, a fixed random set, or all (no attention)."""
    keep: float = Field(default=0.5, gt=0, le=1)
    """Share of tokens kept."""
    keep_tokens: int | None = Field(default=None, ge=1)
    """Number of tokens kept, in place of the share."""
    score_step: float = Field(default=0.0, ge=0, le=100)
    """Logarithms of scores are rounded to multiples of this, and of equal scores the first token is
    the better: so that tiny differences do not reorder tokens; 0: not rounded."""
    qk_dim: int = Field(default=4, ge=2, le=256)
    """Dimension d of queries and keys."""
    qk_lengths: Literal["unit", "learned"] = "unit"
    """Queries and keys are scaled to length 1 (Hybrid Random Features, appendix K), or keep the
    length that their weights give them, divided by d^(1/4) and at most 4 (as softmax attention of
    q.k / sqrt(d)). Lengths tell tokens of one direction apart."""
    init_keys: Literal["random", "opposed"] = "random"
    """Initial weights of the keys: drawn like those of queries, or the opposites of those, so that
    attention starts at the tokens that differ most from the rest of the image."""
    image_means: Literal["none", "lines", "patches"] = "none"
    """Means of the attended image that the controller receives in place of its pixels: of each row
    and each column (lines), or of each token (patches); with the variant masking and without
    votes."""
    controller: ComponentName = "auto"
    """Foothold votes over the depth profile of each leg's lane (vote), a small dense network (mlp),
    convolutions along the columns of images and dense layers (conv), a recurrent one (lstm, gru),
    or a custom one (module:Class, docs/guide/custom_policy.md);
    auto: vote where the robot's geometry says where feet and cameras are, else mlp."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_feature_map(self.feature_map, self.hybrid_base, self.projection, self.qk_dim)
        check_controller(self.controller, (*CONTROLLERS, "conv"))
        if self.controller == "conv" and (self.image_means != "lines" or not self.hidden):
            raise ValueError(
                "controller conv needs image_means = lines and at least one width in hidden, got "
                f"{self.image_means} and {list(self.hidden)}"
            )
        if self.standardise and self.controller == "vote":
            raise ValueError(
                "standardise must be false with the controller vote, which compares pixels; mlp "
                "takes it"
            )
        if self.last_action and self.controller == "vote":
            raise ValueError("last_action must be false with the controller vote; others take it")
        if self.variant != "masking" and self.selection != "learned":
            raise ValueError(
                f"variant {self.variant} needs attention scores: selection must be learned, "
                f"got {self.selection}"
            )
        if self.image_means != "none" and (self.variant != "masking" or self.controller == "vote"):
            raise ValueError(
                "image_means must be none with another variant than masking and with the "
                f"controller vote, got {self.image_means} with the variant {self.variant} and the "
                f"controller {self.controller}"
            )
        if self.rank_with != "both" and self.variant != "rank":
            raise ValueError(
                f"rank_with must be both with the variant {self.variant}, got {self.rank_with}; "
                "rank takes others"
            )
        return self

    def kept(self, tokens: int) -> int:
        """The number of tokens kept of `tokens`."""
        if self.keep_tokens is not None:
            return min(self.keep_tokens, tokens)
        return max(1, round(self.keep * tokens))

    def build(
        self,
        observation_space: "gymnasium.Space[Any]",
        action_space: "gymnasium.Space[Any]",
        geometry: "Geometry | None" = None,
    ) -> "ImplicitAttentionPolicy":
        """Build the policy with these settings; `policies.build` checks its size beforehand."""
        from policies.implicit_attention.policy import ImplicitAttentionPolicy  # loads PyTorch

        return ImplicitAttentionPolicy(self, observation_space, action_space, geometry)
