"""How far a model's attention estimates softmax attention."""

import pytest
import torch

import attention
from experiments.__main__ import main
from experiments.learning import TRUST, trust
from tests.experiments.own_data import table_in


def told(name, scale, m=16):
    """Of one layer over drawn tokens, whose queries and keys are so long."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layer = attention.RandomFeatureAttention(16, 2, name, m, seed=0, batch_first=True)
    tokens = torch.randn(3, 12, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layer.in_proj_weight[:32] *= scale
    found = trust(torch.nn.ModuleList([layer]), lambda: layer(tokens, tokens, tokens))
    q, k, _ = (part.detach() for part in layer.project(tokens, tokens, tokens))
    return found, layer, q, k


def test_what_is_told_is_of_the_layers_own_queries_and_keys():
    found, layer, q, k = told("trig", 2.0)
    seen = attention.diagnose(layer.feature_map, q, k)
    assert found["negative"] == pytest.approx(100 * seen.negative_estimates, rel=1e-5)
    assert found["clamped"] == pytest.approx(100 * seen.clamped_rows, rel=1e-5)
    assert found["negative"] > 1
    assert found["lengths"] == pytest.approx(float(q.norm(dim=-1).mean() * k.norm(dim=-1).mean()))


def test_more_features_are_nearer_to_softmax_and_longer_vectors_farther():
    near, far = told("trig", 0.5)[0], told("trig", 1.0)[0]
    assert near["distance"] < far["distance"]
    assert told("trig", 1.0, 1024)[0]["distance"] < 0.5 * far["distance"]
    assert far["lengths"] == pytest.approx(4 * near["lengths"], rel=1e-4)


def test_positive_maps_have_no_negative_estimates_and_softmax_makes_none():
    assert told("positive", 2.0)[0]["negative"] == 0
    exact = attention.RandomFeatureAttention(16, 2, "softmax", batch_first=True)
    tokens = torch.zeros(1, 4, 16)
    assert set(trust(exact, lambda: exact(tokens, tokens, tokens)).values()) == {0.0}


def test_the_experiment_in_miniature(tmp_path, clothes):
    few = ("--set", "seeds=[0]", "--arms", "FAVOR+", "angular hybrid")
    out = tmp_path / "out"
    assert main(["signed_maps", "--quick", "--data", clothes, "--out", str(out), *few]) == 0
    rows = {row["arm"]: row for row in table_in(out)}
    assert set(rows) == {"exact", "FAVOR+", "angular hybrid"}
    assert {measure.name for measure in TRUST} < rows["exact"].keys()
    assert float(rows["angular hybrid"]["distance"]) > float(rows["exact"]["distance"]) == 0
    (metrics,) = (out / "trials").glob("angular-hybrid-s0/metrics.csv")
    assert "clamped" in metrics.read_text().splitlines()[0]
