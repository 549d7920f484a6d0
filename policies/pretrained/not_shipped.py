"""Policies that do not come with the package, and the command that retrains each.

They were large, and most differ from a shipped one in attention alone. For their names
`checkpoint.resolve` prints the command. It gives the same bytes only on a CPU of the kind that
trained them, and `stepping_stones_clone` predates the current initial attention: the result
differs.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, NamedTuple


class Remade(NamedTuple):
    """How to retrain a policy."""

    command: str
    """Shell command, for any directory."""
    path: str
    """The run or checkpoint that the command leaves, relative to that directory."""

    def sentence(self, name: str) -> str:
        """The error message for the `name` of this policy."""
        return (
            f"{name} no longer comes with the package; this trains it again, as {self.path}: "
            f"{self.command}"
        )


def _arm(study: str, arm: str, seed: int, **settings: Any) -> Remade:
    """One variant and seed of a study in `configs/studies`, with minimal evaluation."""
    arms = json.dumps([{"name": arm, "set": settings}])
    alone = [f"seeds=[{seed}]", f"arms={arms}", f"baseline={arm}", "headline=null"]
    briefly = ["compare_stages=false", "curves=[]", "references=[]", "episodes=2", "videos=false"]
    words = ["python", "-m", "training.study", "--config", study, "--set", *alone, *briefly]
    file = "-".join(re.findall("[a-z0-9]+", arm.lower()))
    return Remade(shlex.join(words), f"studies/{study}/policies/{file}-s{seed}.safetensors")


def _angular(m: int, n: int, **settings: Any) -> dict[str, Any]:
    hybrid = {"feature_map": "angular_hybrid", **settings}
    return {**hybrid, "num_features": m, "num_lambda_features": n}


def _features(feature_map: str, m: int) -> dict[str, Any]:
    return {"feature_map": feature_map, "num_features": m}


_STONES, _SWEEP = "stepping_stones", "bimanual_sweep"
_OPRF_TRIG = {"policy.hybrid_base": "oprf"}

NOT_SHIPPED: dict[str, Remade] = {
    "stepping_stones_clone": Remade(
        "python -m training.bc --out runs/stepping_stones_clone", "runs/stepping_stones_clone"
    ),
    "stepping_stones_angular_4x2": _arm(_STONES, "angular m = 4, n = 2", 0, **_angular(4, 2)),
    "stepping_stones_favor_16": _arm(_STONES, "FAVOR+ m = 16", 0, **_features("positive", 16)),
    "stepping_stones_favor_64": _arm(_STONES, "FAVOR+ m = 64", 0, **_features("positive", 64)),
    "stepping_stones_oprf_32": _arm(_STONES, "OPRF m = 32", 0, **_features("oprf", 32)),
    "stepping_stones_oprf_trig_16x2": _arm(
        _STONES, "OPRF and trig, m = 16, n = 2", 0, **_angular(16, 2, **_OPRF_TRIG)
    ),
    "stepping_stones_softmax": _arm(_STONES, "exact softmax", 0, feature_map="softmax"),
    "bimanual_sweep_angular_8x8": _arm(_SWEEP, "angular m = n = 8", 0, **_angular(8, 8)),
    "bimanual_sweep_favor_64": _arm(_SWEEP, "FAVOR+ m = 64", 1, **_features("positive", 64)),
    "bimanual_sweep_favor_256": _arm(_SWEEP, "FAVOR+ m = 256", 0, **_features("positive", 256)),
    "bimanual_sweep_no_attention": _arm(_SWEEP, "no attention", 1, **{"policy.attend": False}),
    "bimanual_sweep_oprf_32": _arm(_SWEEP, "OPRF m = 32", 0, **_features("oprf", 32)),
    "bimanual_sweep_oprf_trig_8x2": _arm(
        _SWEEP, "OPRF and trig, m = 8, n = 2", 0, **_angular(8, 2, **_OPRF_TRIG)
    ),
    "bimanual_sweep_softmax": _arm(_SWEEP, "exact softmax", 1, feature_map="softmax"),
}
"""How to retrain each policy, by its name."""
