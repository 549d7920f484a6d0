"""The feature maps of policies: their bases, and parameters fitted to unit directions."""

import copy
from itertools import cycle
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import attention
from policies import ImplicitAttentionPolicy, VisionPolicyConfig
from policies.common.feature_maps import map_state
from policies.common.settings import EXACT, Projection
from tests.policies import cases, vision_cases
from tests.policies.cases import observation
from training import flops
from training.es import load_config

STONES = Path(__file__).resolve().parents[2] / "configs" / "stepping_stones.yaml"


def kernel(**settings):
    return cases.make(**settings).selection.features


def test_oprf_has_the_parameter_for_unit_directions():
    """|q + k|^2 is 2 on average for unit vectors in random directions."""
    expected = attention.theory.oprf_parameter(torch.tensor(2.0, dtype=torch.float64), 4)
    assert pytest.approx(float(expected), rel=0.05) == kernel(feature_map="oprf").A
    assert expected < -0.1


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
    seen = policy.attended_tokens(cases.batch(observation(0)))
    with torch.no_grad():
        scores = [p.selection.scores(seen) for p in (policy, exact)]
    assert torch.corrcoef(torch.cat(scores))[0, 1] > 0.5


def test_policies_take_every_projection_of_the_library():
    assert get_args(Projection) == attention.available_projections()


@pytest.mark.parametrize(
    ("module", "name", "projection"),
    [
        *zip(
            cycle([cases, vision_cases]),
            attention.available(general=True),
            cycle(attention.available_projections()),
        ),
        *((cases, "oprf", projection) for projection in attention.available_projections()),
        (cases, "poisson_plus", "simplex"),
        (vision_cases, "geometric_plus", "halton"),
    ],
)
def test_every_projection_acts_or_is_refused_in_a_sentence(module, name, projection):
    settings = {"feature_map": name, "projection": projection}
    if name in ("geometric_plus", "poisson_plus") and projection not in ("iid", "orthogonal"):
        with pytest.raises(ValueError, match="projection must be iid or orthogonal with the feat"):
            module.make(**settings)
        return
    made = [module.make(**settings, feature_seed=seed) for seed in (0, 1)]
    assert np.isfinite(made[0].act(module.observation())).all()
    first, second = (map_state(policy) for policy in made)
    if name != "elu":  # which draws no vectors
        assert any(not first[key].equal(second[key]) for key in first)


def test_simplices_need_two_dimensions():
    with pytest.raises(ValueError, match=r"projection = simplex makes simplices.*got 1"):
        VisionPolicyConfig(embed_dim=4, heads=4, projection="simplex")
    VisionPolicyConfig(embed_dim=4, heads=4, projection="halton")


@pytest.mark.parametrize(
    ("module", "name"), list(zip(cycle([cases, vision_cases]), attention.available(general=True)))
)
def test_a_map_fitted_to_its_own_tokens_survives_a_file(module, name):
    policy, other = (module.make(feature_map=name) for _ in range(2))
    fit(policy)
    other.load_state_dict(map_state(policy), strict=False)
    np.testing.assert_array_equal(other.act(module.observation()), policy.act(module.observation()))


def fit(policy):
    """Fit the maps of a policy to what it makes of some observations."""
    if isinstance(policy, ImplicitAttentionPolicy):
        policy.fit_attention(cases.batch(*(observation(seed) for seed in range(8))))
    else:
        policy.fit_attention(*vision_cases.batch(8)[:2])


@pytest.mark.parametrize(("clusters", "share"), [(2, 0.95), (4, 0.8)])
def test_fitted_clusters_estimate_the_kernel_better_than_positive_features(clusters, share):
    """At equal m, on the policy's own queries and keys; before the fit the two are alike."""
    errors = {"positive": [], "bare": [], "fitted": []}
    for seed in range(5):
        settings = {"num_features": 8, "feature_seed": seed, "drawn": False}
        policies = {
            "positive": cases.make(feature_map="positive", **settings),
            "bare": cases.make(feature_map="clustered_hybrid", num_clusters=clusters, **settings),
        }
        policies["fitted"] = copy.deepcopy(policies["bare"])
        fit(policies["fitted"])
        for kind, policy in policies.items():
            other = cases.batch(*(observation(seed) for seed in range(8, 12)))
            with torch.no_grad():
                q, k = policy.selection.project(policy.attended_tokens(other))
                features, exact = policy.selection.features, (q @ k.mT).exp()
                estimates = features.queries(q) @ features.keys(k).mT
            errors[kind].append((estimates - exact).norm() / exact.norm())
    positive, bare, fitted = (torch.stack(found).mean() for found in errors.values())
    torch.testing.assert_close(bare, positive, rtol=1e-5, atol=0)
    assert fitted < share * positive


@pytest.mark.parametrize("name", ["clustered_hybrid", "oprf"])
def test_every_head_of_every_block_is_fitted(name):
    policy = vision_cases.make(feature_map=name, depth=2)
    before = [copy.deepcopy(m) for m in policy.modules() if isinstance(m, attention.FeatureMap)]
    fit(policy)
    after = [m for m in policy.modules() if isinstance(m, attention.FeatureMap)]
    parameter = "A" if name == "oprf" else "query_centers"
    for old, new in zip(before, after, strict=True):
        changed = getattr(old, parameter) != getattr(new, parameter)
        assert changed.flatten(1).any(1).all()


def test_maps_without_parameters_from_data_stay_as_they_are():
    for module, name in ((cases, "angular_hybrid"), (vision_cases, "trig"), (cases, "positive")):
        policy = module.make(feature_map=name)
        before = copy.deepcopy(policy.state_dict())
        fit(policy)
        assert all(value.equal(before[key]) for key, value in policy.state_dict().items())
    for settings in ({"feature_map": EXACT}, {"selection": "random"}, {"selection": "all"}):
        fit(cases.make(**settings))


class Halves(attention.features.PositiveFeatures):
    """A map that only the registry knows."""


def test_a_map_in_the_registry_is_known_everywhere(monkeypatch, capsys):
    monkeypatch.setitem(attention.registry._MAPS, "halves", Halves)
    assert isinstance(kernel(feature_map="halves"), Halves)
    assert isinstance(VisionPolicyConfig(feature_map="halves"), VisionPolicyConfig)
    load_config(str(STONES), ["feature_map=halves"])
    flops.main([str(STONES), "--calls", "1", "--vary", "feature_map=halves"])
    assert "halves" in capsys.readouterr().out
