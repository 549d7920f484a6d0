"""The feature maps of policies: their bases, and parameters fitted to unit directions."""

import pytest
import torch
from torch.nn.functional import normalize

import attention
from policies import PolicyConfig
from policies.config import EXACT
from policies.feature_maps import fit_to_directions
from tests.policies import cases, vision_cases
from tests.policies.cases import observation, tensors


def kernel(**settings):
    return cases.make(**settings).selection.features


def directions(count, seed):
    return normalize(torch.randn(count, 4, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_oprf_has_the_parameter_for_unit_directions():
    """|q + k|^2 is 2 on average for unit vectors in random directions."""
    expected = attention.theory.oprf_parameter(torch.tensor(2.0, dtype=torch.float64), 4)
    assert pytest.approx(float(expected), rel=0.05) == kernel(feature_map="oprf").A
    assert expected < -0.1


def test_oprf_is_no_positive_map_in_disguise():
    """With the same random vectors, the errors of the kernel are smaller."""
    q, k = directions(64, 1), directions(64, 2)
    exact = (q @ k.mT).exp()
    errors = {}
    for name in ("oprf", "positive"):
        found = []
        for seed in range(20):
            features = kernel(feature_map=name, num_features=32, feature_seed=seed)
            found.append((features.queries(q) @ features.keys(k).mT - exact).square().mean())
        errors[name] = float(torch.stack(found).mean())
    assert errors["oprf"] < 0.9 * errors["positive"]


def test_the_head_of_a_vision_performer_is_fitted_too():
    policy = vision_cases.make(feature_map="oprf")
    fitted = [m for m in policy.modules() if isinstance(m, attention.FeatureMap)]
    assert fitted
    assert all((features.A < -0.01).all() for features in fitted)


@pytest.mark.parametrize("base", ["positive", "oprf"])
def test_a_hybrid_with_another_base(base):
    policy = cases.make(feature_map="angular_hybrid", hybrid_base=base, num_features=4)
    features = policy.selection.features
    assert features.base == (base, "trig")
    assert features.output_dim == 3 * 4 * 9
    own = normalize(features.weight[:4], dim=-1)  # rows of the first base
    off = (own @ own.mT)[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full_like(off, -1 / 3))  # a simplex
    exact = cases.make(feature_map=EXACT)
    seen = policy.tokens.with_places(policy.tokens(tensors(observation(0))[0]))
    with torch.no_grad():
        scores = [p.selection.scores(seen) for p in (policy, exact)]
    assert torch.corrcoef(torch.cat(scores))[0, 1] > 0.5


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="must be hyperbolic with the feature map trig"):
        PolicyConfig(feature_map="trig", hybrid_base="oprf")


def test_clustered_maps_are_left_alone():
    features = attention.feature_map("clustered_hybrid", 4, 8)
    before = {name: tensor.clone() for name, tensor in features.state_dict().items()}
    fit_to_directions(features, 1.0)
    assert all(tensor.equal(before[name]) for name, tensor in features.state_dict().items())
