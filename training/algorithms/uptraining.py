"""Uptraining: a policy trained with one attention goes on with another feature map.

So Chefs' Random Tables (Likhosherstov et al. 2022, section 5.3) go on from a Transformer trained
with exact softmax. All that was trained is taken over. What belongs to a feature map alone, random
vectors and what was fitted, is the new map's, and is fitted again where the trainer fits maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from policies.common.feature_maps import map_options, map_prefixes
from policies.implicit_attention.config import EXACT
from training.io.checkpoint import Checkpoint, check_tensors, load_into, policy_settings
from training.io.config import UserError

__all__ = ["begin_from", "check_heads", "kernel", "renewed", "without"]

T = TypeVar("T")


def renewed(policy: nn.Module, before: Any, now: Any) -> tuple[str, ...]:
    """How the names of those tensors of a policy begin that are not taken over: its feature maps',
    where they are others than before; none where they are the same.

    Args:
        policy: as it is now.
        before: the settings of the policy that it begins from.
        now: its own.
    """
    there, here = kernel(before), kernel(now)
    return map_prefixes(policy) if None not in (there, here) and there != here else ()


def kernel(settings: Any) -> tuple[Any, ...] | None:
    """What a policy's maps are made by, but for the seed; None for a policy of the user's own."""
    name = getattr(settings, "feature_map", None)
    if name is None:
        return None
    return (EXACT,) if name == EXACT else (name, settings.num_features, map_options(settings))


def without(tensors: Mapping[str, T], prefixes: tuple[str, ...]) -> dict[str, T]:
    """Those whose names do not begin so."""
    return {name: one for name, one in tensors.items() if not name.startswith(prefixes)}


def check_heads(before: Any, now: Any) -> None:
    """UserError where projections are of another number of heads, which no shape but those of maps
    tells."""
    there, here = (getattr(settings, "heads", None) for settings in (before, now))
    if there != here:
        raise UserError(
            f"policy.heads is {there} there, but the configured policy has {here}: where the "
            "feature map is another, the heads must be the same"
        )


def begin_from(policy: nn.Module, start: Checkpoint, settings: Any) -> str:
    """Set a policy to what another run trained.

    Args:
        policy: as it is initialised; changed in place.
        start: of the other run.
        settings: of the policy.

    Returns:
        A line that says which tensors begin anew; "" where all are taken over.

    Raises:
        UserError: names the first tensor that differs and is not of a feature map.
    """
    given = start.config.get("policy")
    before = settings if given is None else policy_settings(given, start.path)
    prefixes = renewed(policy, before, settings)
    if not prefixes:
        load_into(policy, start)
        return ""
    try:
        check_heads(before, settings)
    except UserError as error:
        raise UserError(f"{start.path} holds another policy: {error}") from None
    ours: dict[str, Tensor] = policy.state_dict()
    kept = without(ours, prefixes)
    check_tensors(start.path, "policy", without(start.policy_layout, prefixes), kept)
    taken = without(start.policy, prefixes)
    check_tensors(start.path, "policy", taken, kept)
    policy.load_state_dict({**ours, **taken})
    anew = sorted(ours.keys() - kept.keys())
    left_out = sorted(start.policy_layout.keys() - taken.keys())
    if not anew and not left_out:
        return ""
    return (
        f"another feature map than in {start.path}: begin anew: {', '.join(anew) or 'none'}; "
        f"left out: {', '.join(left_out) or 'none'}"
    )
