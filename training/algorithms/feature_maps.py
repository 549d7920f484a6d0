"""Fitting and exchange of a policy's feature maps in training.

Fitting. Before training only the length of queries and keys is known
(`policies.common.feature_maps`). Every trainer therefore fits data-dependent maps (the A of OPRF,
the clusters of a clustered hybrid) to the policy's own queries and keys after `fit_after` of its
updates, once: Hybrid Random Features, section 4.3, finds clusters after 1,000 steps.

Uptraining. Training continues with another feature map than a policy was trained with, as Chefs'
Random Tables (Likhosherstov et al. 2022, section 5.3) continue from a Transformer trained with
exact softmax. All trained tensors are kept, except the tensors of feature maps (random vectors and
fitted parameters): those are the new map's, and fitted again if the trainer fits maps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate_extras import require
from policies.common.feature_maps import map_options, map_prefixes, unfitted
from policies.common.settings import EXACT
from training.io.checkpoint import Checkpoint, check_tensors, load_into, policy_settings
from training.io.config import UserError

T = TypeVar("T")

OBSERVATIONS = 32
"""Largest number of observations that maps are fitted to."""


def is_due(fit_after: int | None, fitted: bool, updates: int) -> bool:
    """Whether maps must be fitted after this number of `updates`."""
    return fit_after is not None and not fitted and updates >= fit_after


def announce(policy: nn.Module, fit_after: int | None, fitted: bool, updates: int) -> None:
    """Print a note if a run of `updates` would leave a map unfitted that requires fitting.

    Raises MissingExtraError if what fits it is not installed.
    """
    if not fitted and fit_after is not None and unfitted(policy):
        require("feature_map = clustered_hybrid", "sklearn")
    if fitted or not unfitted(policy) or is_due(fit_after, fitted, updates):
        return
    ends = "never" if fit_after is None else f"after {fit_after} updates"
    print(
        f"fit_after = {fit_after}: the clusters of clustered_hybrid are found {ends}, and this run "
        f"makes {updates}; without them it is positive features at a multiple of their cost",
        flush=True,
    )


@contextmanager
def sound() -> Iterator[None]:
    """Raise UserError when the block cannot fit the maps to the observations."""
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"training stopped: the feature map cannot be fitted ({error}); the last checkpoint is "
            "intact, and fit_after = null leaves the map as it is"
        ) from None


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the indices below `count`, spread evenly."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


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
            f"feature map changes, the heads must be the same"
        )


def begin_from(policy: nn.Module, start: Checkpoint, settings: Any) -> str:
    """Load the tensors that another run trained into a policy.

    Args:
        policy: the initialised policy; changed in place.
        start: checkpoint of the other run.
        settings: settings of the policy.

    Returns:
        A line that lists the tensors that are initialised; "" if all are kept.

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
