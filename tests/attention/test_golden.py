"""Reference values: closed forms to rtol 1e-10, estimates with fixed projections to 1e-12.

Each `golden_*` module beside this file computes the values of its topic.
"""

import pytest
import torch

from tests.attention import (
    golden_angular,
    golden_bounds,
    golden_compositional,
    golden_features,
    golden_hybrid_features,
    golden_hybrids,
    golden_maps,
    golden_projections,
)
from tests.attention.reference import Computation, Entry, tensor

TOPICS = (
    golden_angular,
    golden_bounds,
    golden_features,
    golden_hybrid_features,
    golden_hybrids,
    golden_maps,
    golden_projections,
    golden_compositional,
)
CLOSED_FORMS: dict[str, Computation] = {k: v for t in TOPICS for k, v in t.CLOSED_FORMS.items()}
FIXED_PROJECTIONS: dict[str, Computation] = {
    k: v for t in TOPICS for k, v in t.FIXED_PROJECTIONS.items()
}


@pytest.mark.parametrize("name", sorted(CLOSED_FORMS))
def test_closed_form(golden: dict[str, Entry], name: str) -> None:
    entry = golden[name]
    computed = CLOSED_FORMS[name](entry)
    torch.testing.assert_close(computed, tensor(entry["value"]), rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", sorted(FIXED_PROJECTIONS))
def test_fixed_projections(golden: dict[str, Entry], name: str) -> None:
    entry = golden[name]
    computed = FIXED_PROJECTIONS[name](entry)
    torch.testing.assert_close(computed, tensor(entry["value"]), rtol=1e-12, atol=0)


def test_every_reference_value_is_computed(golden: dict[str, Entry]) -> None:
    assert set(golden) == set(CLOSED_FORMS) | set(FIXED_PROJECTIONS)
