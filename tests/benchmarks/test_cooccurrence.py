"""Pixels of one random feature: alike in a flat kernel, the nearer the more in a deep one."""

import json

import numpy as np

from attention.compositional import ReLU, draw, image_skeleton
from experiments.compositional_kernels import cooccurrence


def test_pairs_of_lower_layers_occur_together_more_often(tmp_path):
    """Orders as here came out with six of six seeds; the smallest gap was 0.002."""
    assert cooccurrence.main(["--quick", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "cooccurrence.json").read_text())["results"]
    assert (tmp_path / "cooccurrence.png").stat().st_size > 5_000
    for layers in range(4):
        means = [row["mean"] for row in rows if row["layers"] == layers]
        assert len(means) >= min(layers, 2) + 1
        assert means == sorted(means, reverse=True)
        assert means[0] > (1.5 * means[1] if layers else 0)


def test_correlations_and_tiers_are_those_of_the_features():
    skeleton = image_skeleton(4, 4, [(2, 2, ReLU())], ReLU())
    features = draw(skeleton, 500, np.random.default_rng(0))
    occurs = np.zeros((500, 16))
    for name, terms in features.terms.items():
        occurs[terms.owner, skeleton.inputs[name].columns[0]] = 1
    expected = np.corrcoef(occurs.T)
    np.testing.assert_allclose(cooccurrence.correlations(features), expected, atol=1e-12)
    layer_of = cooccurrence.tiers(skeleton)
    assert layer_of[0].tolist() == [-1, 1, 2, 2, 1, 1, *[2] * 10]
