"""Uptraining: training continues with another feature map than a policy was trained with.

So Chefs' Random Tables (Likhosherstov et al. 2022, section 5.3) continue from a Transformer
trained with exact softmax. All trained tensors are kept, except the tensors of feature maps
(random vectors and fitted parameters): those are the new map's, and fitted again if the trainer
fits maps.
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
    """Prefixes of the tensors that are not kept: those of the policy's feature maps if they differ
    from the maps before, otherwise none.

    Args:
        policy: current settings of the policy.
        before: settings of the policy from which it starts.
        now: its own.
    """
    there, here = kernel(before), kernel(now)
    return map_prefixes(policy) if None not in (there, here) and there != here else ()


def kernel(settings: Any) -> tuple[Any, ...] | None:
    """The settings of a policy's maps except the seed; None for a custom policy."""
    name = getattr(settings, "feature_map", None)
    if name is None:
        return None
    return (EXACT,) if name == EXACT else (name, settings.num_features, map_options(settings))


def without(tensors: Mapping[str, T], prefixes: tuple[str, ...]) -> dict[str, T]:
    """The tensors whose names have none of the prefixes."""
    return {name: one for name, one in tensors.items() if not name.startswith(prefixes)}


def check_heads(before: Any, now: Any) -> None:
    """UserError if the number of heads differs, which only the shapes of maps would show."""
    there, here = (getattr(settings, "heads", None) for settings in (before, now))
    if there != here:
        raise UserError(
            f"policy.heads is {there} there, but the configured policy has {here}: where the "
            "feature map is another, the heads must be the same"
        )


def begin_from(policy: nn.Module, start: Checkpoint, settings: Any) -> str:
    """Load the tensors that another run trained into a policy.

    Args:
        policy: the initialised policy; changed in place.
        start: checkpoint of the other run.
        settings: settings of the policy.

    Returns:
        A line that lists the tensors that start anew; "" if all are kept.

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
        f"another feature map than in {start.path}: start anew: {', '.join(anew) or 'none'}; "
        f"left out: {', '.join(left_out) or 'none'}"
    )
