"""Compositional kernels: exact recurrence, Algorithm 1, base schemes, de-duplication, images.

The features are a transformer of scikit-learn too.

A z-score of 4 is passed by chance once in 16,000 draws; the seeds are fixed.
"""

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.testing import assert_allclose

from attention import compositional as c
from attention.compositional import (
    Categorical,
    Circle,
    Coordinate,
    Direction,
    Exponential,
    Features,
    Gaussian,
    Identity,
    Internal,
    PatchComponents,
    Polynomial,
    ReLU,
    Sign,
    Skeleton,
    Sphere,
)
from tests.attention.cases import rejects

ACTIVATIONS: list[c.Activation] = [
    Identity(),
    ReLU(),
    Exponential(0.25),
    Exponential(3.0),
    Polynomial((0.1, 0.0, 0.6, 0.3)),
]


def circles(*angles: int) -> dict[str, c.Base]:
    return {f"x{i}": Circle((i,)) for i in angles}


def single(base: c.Base, activation: c.Activation | None = None) -> Skeleton:
    """The base alone, or under one node."""
    nodes = {} if activation is None else {"v": Internal(("x",), activation)}
    return Skeleton({"x": base}, nodes)


def layered() -> Skeleton:
    """Two ReLU nodes of two circles each under an exponential: S1 of the reference values."""
    nodes = {"a": Internal(("x0", "x1"), ReLU()), "b": Internal(("x2", "x3"), ReLU())}
    top = Internal(("a", "b"), Exponential(1.0))
    return Skeleton(circles(0, 1, 2, 3), {"top": top, **nodes})


def uneven() -> Skeleton:
    """Unequal depths: S2 of the reference values."""
    sources = {"a": ("x0", "x1"), "top": ("a", "x2")}
    nodes = {name: Internal(names, Exponential(2.0)) for name, names in sources.items()}
    return Skeleton(circles(0, 1, 2), nodes)


def mixed() -> Skeleton:
    """One base of each kind, a node with two consumers, a polynomial on top."""
    bases: dict[str, c.Base] = {
        "sign": Sign((0,)),
        "circle": Circle((1,), scale=0.5),
        "gaussian": Gaussian((2, 3), a=0.7),
        "category": Categorical((4,), n=3),
        "sphere": Sphere((5, 6, 7)),
        "coordinate": Coordinate((5, 6, 7)),
        "direction": Direction((5, 6, 7)),
    }
    nodes = {"a": Internal(("sign", "circle", "gaussian"), ReLU())}
    nodes |= {"b": Internal(("a", "category", "sphere"), Polynomial((0.0, 0.5, 0.5)))}
    nodes |= {"top": Internal(("a", "b", "coordinate", "direction"), Polynomial((0.2, 0.5, 0.3)))}
    return Skeleton(bases, nodes)


MIXED_X = [1.0, 0.4, 0.2, -0.5, 2.0, 0.6, 0.48, 0.64]
MIXED_Y = [-1.0, -0.3, 0.9, 0.1, 2.0, 0.36, 0.8, 0.48]
UNIT_X, UNIT_Y = MIXED_X[5:], MIXED_Y[5:]
CASES: dict[str, tuple[Skeleton, list[float], list[float]]] = {
    "sign": (single(Sign((0,)), Exponential(1.0)), [1.0], [-1.0]),
    "circle": (single(Circle((0,))), [0.3], [1.4]),
    "circle scaled": (single(Circle((0,), scale=2.0)), [0.3], [0.9]),
    "gaussian": (single(Gaussian((0, 1), a=0.7)), [0.3, -0.2], [1.0, 0.8]),
    "gaussian under exponential": (
        single(Gaussian((0, 1), a=0.7), Exponential(3.0)), [0.3, -0.2], [1.0, 0.8]
    ),
    "categorical different": (single(Categorical((0,), n=5)), [1.0], [3.0]),
    "categorical opposite": (single(Categorical((0,), n=4), Exponential(2.0)), [1.0], [3.0]),
    "categorical equal": (single(Categorical((0,), n=5)), [2.0], [2.0]),
    "sphere": (single(Sphere((0, 1, 2))), UNIT_X, UNIT_Y),
    "sphere under exponential": (single(Sphere((0, 1, 2)), Exponential(0.5)), UNIT_X, UNIT_Y),
    "sphere in the plane": (single(Sphere((0, 1)), ReLU()), [0.6, 0.8], [-0.8, 0.6]),
    "coordinate": (single(Coordinate((0, 1, 2))), UNIT_X, UNIT_Y),
    "coordinate squared": (single(Coordinate((0, 1, 2)), Polynomial((0, 0, 1))), UNIT_X, UNIT_Y),
    "direction": (single(Direction((0, 1, 2))), UNIT_X, UNIT_Y),
    "direction squared": (single(Direction((0, 1, 2)), Polynomial((0, 0, 1))), UNIT_X, UNIT_Y),
    "layered": (layered(), [0.1, 0.9, -0.4, 2.0], [0.5, 0.2, 0.3, 1.1]),
    "uneven": (uneven(), [0.1, 0.9, -0.4], [0.5, 0.2, 0.3]),
    "mixed": (mixed(), MIXED_X, MIXED_Y),
}  # fmt: skip


def products(features: Features, x: list[float], y: list[float]) -> np.ndarray:
    """(q,) Re psi_j(x) conj(psi_j(y))."""
    psi = features.psi([x, y])
    return (psi[0] * psi[1].conj()).real


@pytest.mark.parametrize("draws", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_features_are_unbiased_and_have_the_variance_of_the_closed_form(name, draws):
    skeleton, x, y = CASES[name]
    values = products(c.draw(skeleton, draws, np.random.default_rng(7)), x, y)
    exact, spread = float(skeleton.kernel(x, y)), float(c.variance(skeleton, x, y))
    assert abs(values.mean() - exact) <= 4 * math.sqrt(spread / draws) + 1e-12
    squares = (values - exact) ** 2
    assert abs(squares.mean() - spread) <= 4 * squares.std() / math.sqrt(draws) + 1e-12


KERNELS: dict[str, tuple[c.Base, list[float], list[float], float]] = {
    "sign": (Sign((0,)), [1.0], [-1.0], -1.0),
    "circle": (Circle((0,)), [0.3], [1.4], math.cos(1.1)),
    "circle scaled": (Circle((0,), scale=2.0), [0.3], [1.4], math.cos(2.2)),
    "gaussian": (Gaussian((0, 1), a=0.7), [0.0, 1.0], [2.0, 0.0], math.exp(-0.49 * 5 / 2)),
    "categorical": (Categorical((0,), n=5), [1.0], [3.0], 0.0),
    "sphere": (Sphere((0, 1, 2)), UNIT_X, UNIT_Y, 0.9072),
    "coordinate": (Coordinate((0, 1, 2)), UNIT_X, UNIT_Y, 0.9072),
    "direction": (Direction((0, 1, 2)), UNIT_X, UNIT_Y, 0.9072),
}


@pytest.mark.parametrize("name", KERNELS)
def test_base_kernels(name):
    base, x, y, expected = KERNELS[name]
    assert float(single(base).kernel(x, y)) == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_skeleton_kernel_is_the_recurrence():
    skeleton, x, y = CASES["layered"]
    k = [math.cos(a - b) for a, b in zip(x, y, strict=True)]

    def relu(r: float) -> float:
        return (math.sqrt(1 - r * r) + (math.pi - math.acos(r)) * r) / math.pi

    left, right = relu((k[0] + k[1]) / 2), relu((k[2] + k[3]) / 2)
    expected = math.exp((left + right) / 2 - 1)
    assert float(skeleton.kernel(x, y)) == pytest.approx(expected, rel=1e-14)
    r = np.array([-1 - 1e-16, -1.0, 1.0, 1 + 1e-12])
    assert_allclose(ReLU().value(r), [0, 0, 1, 1], atol=1e-15)
    assert_allclose(ReLU().derivative(np.array([-1.0, 0.0, 1.0])), [0, 0.5, 1])


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activations(activation):
    """Values, derivatives and sampled degrees are those of the series."""
    a = activation.coefficients(60)
    r = np.array([-0.7, -0.2, 0.0, 0.3, 0.8])
    assert (a >= 0).all()
    assert_allclose(activation.value(r), np.polynomial.polynomial.polyval(r, a), atol=1e-8)
    slope = (activation.value(r + 1e-6) - activation.value(r - 1e-6)) / 2e-6
    assert_allclose(activation.derivative(r), slope, rtol=1e-7, atol=1e-9)
    assert float(activation.value(np.array(1.0))) == pytest.approx(1.0, rel=1e-14)
    assert len(activation.coefficients(2)) == 2
    np.testing.assert_array_equal(activation.coefficients(2), a[:2])
    draws = 100_000
    counts = np.bincount(activation.sample(np.random.default_rng(3), draws), minlength=12)[:12]
    p = activation.coefficients(12)
    assert (np.abs(counts - draws * p) <= 4 * np.sqrt(draws * p * (1 - p))).all()
    assert len(activation.sample(np.random.default_rng(3), 0)) == 0


@pytest.mark.parametrize("build", [layered, uneven, mixed])
def test_complexity_is_the_mean_number_of_base_features(build):
    """Counted without merging: a Gaussian's terms alone are never equal."""
    skeleton = build()
    plain = Skeleton(dict.fromkeys(skeleton.inputs, Direction((0, 1))), skeleton.nodes)
    draws = 50_000
    features = c.draw(plain, draws, np.random.default_rng(5))
    degrees = features.degrees()
    assert abs(degrees.mean() - skeleton.complexity) < 4 * degrees.std() / math.sqrt(draws)
    assert plain.complexity == skeleton.complexity


def test_norms_variances_and_bounds():
    assert layered().norm == 1
    assert single(Sphere((0, 1)), ReLU()).norm == 1
    assert single(Sphere((0, 1, 2, 3))).norm == pytest.approx(math.sqrt(2))
    assert single(Coordinate((0, 1, 2))).norm == single(Direction((0, 1, 2))).norm == math.sqrt(3)
    assert single(Coordinate((0, 1, 2)), Polynomial((0, 0.5, 0.5))).norm == pytest.approx(3)
    assert single(Coordinate((0, 1, 2)), Identity()).norm == pytest.approx(math.sqrt(3))
    assert single(Coordinate((0, 1, 2)), ReLU()).norm == math.inf
    skeleton, x, y = CASES["uneven"]
    assert c.variance(skeleton, x, y, 5) == pytest.approx(c.variance(skeleton, x, y) / 5)
    one_hot = [1.0, 0.0, 0.0]
    assert c.variance(single(Coordinate((0, 1, 2)), ReLU()), one_hot, one_hot) == math.inf
    assert c.variance(skeleton, x, x) == pytest.approx(0, abs=1e-15)
    assert c.sufficient_features(0.1, 0.05, 2.0) == pytest.approx(16 * 737.7758908227872)
    assert c.function_error(3.0, 4, 2.0) == pytest.approx(3.0)
    assert c.regularisation(2.0, 5.0, 50, 3.0) == pytest.approx(math.sqrt(2) * 6 / (5 * 50**0.5))
    excess = math.sqrt(8) * 30 / math.sqrt(50) + 30 / math.sqrt(100)
    assert c.excess_loss(2.0, 5.0, 50, 100, 3.0) == pytest.approx(excess)
    # At the chosen lambda, the two terms of eq 7 that hold it are sqrt8 rho B C / sqrt m.
    chosen = c.regularisation(2.0, 5.0, 50, 3.0)
    assert chosen * 25 + 2 * 4 * 9 / (chosen * 50) == pytest.approx(excess - 3)


@pytest.mark.parametrize("name", ["sphere", "coordinate", "direction", "sphere in the plane"])
def test_no_feature_exceeds_the_norm(name):
    skeleton, x, _ = CASES[name]
    size = np.abs(c.draw(skeleton, 2000, np.random.default_rng(0)).psi([x]))
    assert size.max() <= skeleton.norm * (1 + 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_deduplication_leaves_the_estimate_unchanged(name):
    skeleton, x, y = CASES[name]
    features = c.draw(skeleton, 3000, np.random.default_rng(2))
    merged, first = c.deduplicate(features)
    assert merged.draws == 3000
    assert len(merged) == len(first) <= 3000
    whole, short = features.embed([x, y]), merged.embed([x, y])
    assert short[0] @ short[1] == pytest.approx(whole[0] @ whole[1], rel=1e-12, abs=1e-14)
    assert whole[0] @ whole[1] == pytest.approx(products(features, x, y).mean(), rel=1e-12)


def test_equal_features_are_merged_and_budgets_are_of_distinct_ones():
    # Two circles under r^2: 1, z0^2, z1^2, z0 z1 and z0 / z1, signs apart.
    skeleton = Skeleton(circles(0, 1), {"v": Internal(("x0", "x1"), Polynomial((0, 0, 1)))})
    draws = 40_000
    merged, _ = c.deduplicate(c.draw(skeleton, draws, np.random.default_rng(0)))
    assert len(merged) == 5
    # P = 1/8 for each of z0^2 and z1^2, 1/4 for each of the other three.
    shares = np.sort(merged.multiplicity) / draws
    assert_allclose(shares, [1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 4], atol=0.01)
    skeleton, x, y = CASES["layered"]
    rng = np.random.default_rng(0)
    features = c.draw_distinct(skeleton, 200, rng)
    assert len(features) == 200
    assert features.draws > 400
    assert len(c.deduplicate(features)[0]) == 200
    z = features.embed([x, y])
    spread = math.sqrt(float(c.variance(skeleton, x, y, features.draws)))
    assert abs(z[0] @ z[1] - skeleton.kernel(x, y)) < 5 * spread
    few = c.draw_distinct(single(Circle((0,))), 10, rng, max_draws=1000)
    assert (len(few), few.draws) == (1, 1000)
    gaussian = c.draw_distinct(single(Gaussian((0,)), Exponential(1.0)), 50, rng)
    assert len(gaussian) == 50
    assert gaussian.degrees().sum() == 49
    # Two of three equally likely features: the draws before the third kind appears.
    three = single(Coordinate((0, 1, 2)))
    rng = np.random.default_rng(0)
    runs = [c.draw_distinct(three, 2, rng).draws for _ in range(1000)]
    # Waiting for the third coupon takes 1 + 3/2 + 3 draws in the mean; the last is not counted.
    assert abs(np.mean(runs) - 4.5) < 4 * np.std(runs) / math.sqrt(1000)


@pytest.mark.parametrize(
    ("base", "distinct"),
    [
        (Sign((0,)), 1),
        (Circle((0,)), 2),
        (Categorical((0,), n=5), 3),
        # Of the 21 products of two of six slots, conjugate pairs fall together.
        (Sphere((0, 1, 2)), 12),
        (Coordinate((0, 1, 2)), 6),
        (Gaussian((0,)), 500),
        (Direction((0, 1)), 500),
    ],
    ids=lambda value: value.kind if isinstance(value, c.Base) else "",
)
def test_products_of_two_of_a_base(base, distinct):
    skeleton = single(base, Polynomial((0, 0, 1)))
    merged, _ = c.deduplicate(c.draw(skeleton, 500, np.random.default_rng(0)))
    assert len(merged) == distinct


def test_layouts():
    skeleton, x, y = CASES["layered"]
    rng = np.random.default_rng(0)
    draws = 20_000
    features = c.draw(skeleton, draws, rng)
    offsets = c.phase_offsets(rng, draws)
    assert set(offsets) == {0, math.pi / 2}
    assert abs((offsets > 0).mean() - 0.5) < 0.015
    z = features.embed([x, y], layout="phase", offsets=offsets)
    assert z.shape == (2, features.output_dim("phase")) == (2, draws)
    terms = z[0] * z[1] * draws
    assert abs(terms.mean() - skeleton.kernel(x, y)) < 4 * terms.std() / math.sqrt(draws)
    psi = features.psi([x])[0]
    expected = math.sqrt(2 / draws) * np.abs(psi) * np.cos(np.angle(psi) + offsets)
    assert_allclose(z[0], expected, atol=1e-14)
    pairs = features.embed([x, y])
    assert pairs.shape == (2, 2 * draws) == (2, features.output_dim())
    assert_allclose(np.square(pairs).sum(-1), 1, rtol=1e-12)
    real = c.draw(CASES["coordinate"][0], 10, rng)
    assert real.embed([UNIT_X]).shape == (1, real.output_dim()) == (1, 10)


def test_blocks_and_plain_data(monkeypatch):
    skeleton, x, y = CASES["mixed"]
    features = c.draw(skeleton, 50, np.random.default_rng(0))
    points = [x, y, x, x, y]
    psi, gram = features.psi(points), skeleton.gram(points, points[:2])
    monkeypatch.setattr("attention.compositional.features._BLOCK_ENTRIES", 100)
    monkeypatch.setattr("attention.compositional.skeleton._GRAM_ENTRIES", 4)
    assert_allclose(features.psi(points), psi, rtol=1e-13)
    np.testing.assert_array_equal(skeleton.gram(points, points[:2]), gram)
    assert gram[0, 1] == skeleton.kernel(x, y)
    assert skeleton.gram(np.zeros((0, 8))).shape == (0, 0)
    np.testing.assert_array_equal(skeleton.gram(points)[:, :2], gram)
    skeleton = mixed()
    data = json.loads(json.dumps(skeleton.to_dict()))
    assert Skeleton.from_dict(data) == skeleton
    assert Skeleton.from_dict(yaml.safe_load(yaml.safe_dump(data))) == skeleton
    short = {"inputs": {"x": {"kind": "circle", "columns": [0]}},
             "nodes": {"v": {"inputs": ["x"], "activation": "relu"}}}  # fmt: skip
    assert Skeleton.from_dict(short) == single(Circle((0,)), ReLU())
    assert Skeleton.from_dict({"inputs": short["inputs"]}) == single(Circle((0,)))


X = {"x": {"kind": "circle", "columns": [0]}}
POLYNOMIAL = {"kind": "polynomial"}


def node(*inputs: str, activation: Any = "relu") -> dict[str, Any]:
    return {"inputs": list(inputs), "activation": activation}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "skeleton must be a mapping, got"),
        ({}, "skeleton: key 'inputs' is missing"),
        ({"inputs": X, "layers": {}}, "skeleton: unknown key 'layers', allowed are inputs, nodes"),
        ({"inputs": [1]}, "inputs must be a mapping, got"),
        ({"inputs": {1: {}}}, "inputs must have names as keys, got 1"),
        ({"inputs": {}}, "inputs must hold at least one input node, got none"),
        ({"inputs": {"x": {"kind": "os.system"}}}, "input node 'x': kind must be one of sign, c"),
        ({"inputs": {"x": {"kind": ["sign"]}}}, "input node 'x': kind must be one of sign, circ"),
        ({"inputs": {"x": {"kind": "circle"}}}, "input node 'x': key 'columns' is missing"),
        ({"inputs": {"x": {**X["x"], "n": 2}}}, "input node 'x': unknown key 'n', allowed are c"),
        ({"inputs": {"x": {**X["x"], "scale": 0}}}, "input node 'x': scale must be a positive"),
        ({"inputs": {"x": {**X["x"], "scale": "1"}}}, "input node 'x': scale must be a positive"),
        ({"inputs": {"x": {"kind": "circle", "columns": 0}}}, "'x': columns must be a list of int"),
        ({"inputs": {"x": {"kind": "circle", "columns": [-1]}}}, "'x': columns must be a list of"),
        ({"inputs": {"x": {"kind": "gaussian", "columns": [1, 1]}}}, "name at least one"),
        ({"inputs": {"x": {"kind": "gaussian", "columns": []}}}, "columns must name at least one"),
        ({"inputs": {"x": {"kind": "sign", "columns": [0, 1]}}}, "columns must name one column"),
        ({"inputs": {"x": {"kind": "sphere", "columns": [0]}}}, "at least two columns"),
        ({"inputs": {"x": {"kind": "categorical", "columns": [0], "n": 1}}}, "n must be an integ"),
        ({"inputs": {"x": {"kind": "gaussian", "columns": [0], "a": -1}}}, "a must be a positive"),
        ({"inputs": X, "nodes": {"x": node("x")}}, "node 'x' must be under inputs or under nodes"),
        ({"inputs": X, "nodes": {"v": {"inputs": ["x"]}}}, "node 'v': key 'activation' is missing"),
        ({"inputs": X, "nodes": {"v": {**node("x"), "bias": 1}}}, "node 'v': unknown key 'bias'"),
        ({"inputs": X, "nodes": {"v": node("y")}}, "node 'v': inputs names 'y', but the nodes are"),
        ({"inputs": X, "nodes": {"v": node()}}, "node 'v': inputs must name at least one node"),
        ({"inputs": X, "nodes": {"v": node("x", "x")}}, "each once, got"),
        ({"inputs": X, "nodes": {"v": {**node(), "inputs": "x"}}}, "inputs must be a list of nod"),
        ({"inputs": X, "nodes": {"v": node("x", activation="tanh")}},
         "node 'v', activation: kind must be one of identity, relu, exponential, polynomial, got"),
        ({"inputs": X, "nodes": {"v": node("x", activation={"kind": "exponential", "c": 0})}},
         "node 'v', activation: c must be a positive finite number, got 0"),
        ({"inputs": X, "nodes": {"v": node("x", activation={"kind": "relu", "c": 1})}},
         "node 'v', activation: unknown key 'c'"),
        ({"inputs": X, "nodes": {"v": node("x", activation="polynomial")}},
         "node 'v', activation: key 'a' is missing"),
        ({"inputs": X, "nodes": {"v": node("x", activation=POLYNOMIAL | {"a": [0.5, 1]})}},
         "a must hold coefficients that are at least 0 and sum to 1"),
        ({"inputs": X, "nodes": {"v": node("x", activation=POLYNOMIAL | {"a": [2, -1]})}},
         "a must hold coefficients that are at least 0 and sum to 1"),
        ({"inputs": X, "nodes": {"v": node("x", activation=POLYNOMIAL | {"a": 1})}},
         "a must be a list of coefficients, got 1"),
        ({"inputs": X, "nodes": {"u": node("x", "v"), "v": node("u")}},
         "nodes must form no cycle, got "),
        ({"inputs": X, "nodes": {"u": node("x"), "v": node("x")}},
         "exactly one node, the output, must not be an input of another node, got u, v"),
    ],
)  # fmt: skip
def test_bad_plain_data(data, message):
    rejects(message.replace("[", r"\["), Skeleton.from_dict, data)


def _features() -> Features:
    return c.draw(layered(), 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layered().kernel([0, 0, 0], [0, 0, 0]), "x must have at least 4 columns, got sh"),
        (lambda: layered().kernel([0] * 4, 0), "y must have at least 4 columns, got shape"),
        (lambda: layered().gram([[0, 0, 0, math.nan]]), "at input node 'x3': values must be fin"),
        (lambda: single(Sign((0,))).kernel([1], [0]), "y at input node 'x': values must be -1 or"),
        (lambda: single(Categorical((0,), 3)).kernel([3], [0]), "must be integers from 0 to 2"),
        (lambda: single(Categorical((0,), 3)).kernel([0.5], [0]), "must be integers from 0 to 2"),
        (lambda: single(Sphere((0, 1))).kernel([1, 1], [0, 0]), "must have a length of at most 1"),
        (lambda: _features().psi([0, 0, 0, 0]), "x must have two dimensions"),
        (lambda: _features().embed([[0] * 4], layout="both"), "layout must be one of pairs, phase"),
        (lambda: _features().embed([[0] * 4], layout="phase"), r"offsets must have shape \(3,\)"),
        (lambda: c.draw(layered(), 0, np.random.default_rng(0)), "count must be at least 1, got 0"),
        (lambda: c.draw(single(Circle((0,)), Exponential(1e9)), 1, np.random.default_rng(0)),
         "mean number of calls must be at most 2e"),
        (lambda: c.draw_distinct(layered(), 5, np.random.default_rng(0), max_draws=4),
         "max_draws must be at least count = 5, got 4"),
        (lambda: c.variance(layered(), [0] * 4, [0] * 4, 0), "num_features must be at least 1"),
        (lambda: c.sufficient_features(0, 0.1), "epsilon must be a positive finite number, got 0"),
        (lambda: c.sufficient_features("a", 0.1), "epsilon must be a positive .* got 'a'"),
        (lambda: c.sufficient_features(0.1, 1), "delta must lie between 0 and 1, got 1"),
        (lambda: c.regularisation(1, -1, 10), "radius must be a positive finite number, got -1"),
        (lambda: c.excess_loss(1, 1, 0, 10), "examples must be a positive finite number, got 0"),
        (lambda: c.function_error(1, 0), "num_features must be a positive finite number, got 0"),
        (lambda: c.image_skeleton(0, 4, [], ReLU()), "height, width and channels must be at"),
        (lambda: c.image_skeleton(4, 4, [(5, 1, ReLU())], ReLU()), "convolution 1: window must li"),
        (lambda: c.image_skeleton(4, 4, [(2, 0, ReLU())], ReLU()), "stride be at least 1"),
        (lambda: c.image_skeleton(4, 4, [], ReLU(), channels=0), "channels must be at least 1"),
        (lambda: c.image_skeleton(4, 4, [], ReLU(), components=2), "2 with 0 convolutions"),
        (lambda: c.image_skeleton(4, 4, [(2, 2, ReLU())], ReLU(), components=0), "got 0 with 1"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 2, 1, 5), "1 and the 4 numbers .* got 5"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 5, 1, 1), "window must lie between 1 and"),
        (lambda: PatchComponents.fit(pictures(2, 4), 2, 1, 1), r"images must have .*\(2, 4\)"),
        (lambda: PatchComponents.fit(np.ones((2, 4, 4)), 2, 1, 1), "got identical ones"),
        (lambda: PatchComponents.fit(pictures(2, 4, 4), 2, 1, 1).transform(pictures(1, 4, 4, 3)),
         "patches of 4 numbers, got 12"),
        (lambda: c.CompositionalFeatures(layout="x").fit([[0.0]]), "layout must be one of pairs"),
        (lambda: c.CompositionalFeatures(budget="x").fit([[0.0]]), "budget must be one of draws"),
        (lambda: c.CompositionalFeatures(n_components=0).fit([[0.0]]), "n_components must be at l"),
        (lambda: c.CompositionalFeatures({"inputs": {}}).fit([[0.0]]), "inputs must hold at least"),
        (lambda: c.CompositionalFeatures(layered()).fit([[0.0]]), "X must have at least 4 columns"),
    ],
)  # fmt: skip
def test_bad_arguments(call, message):
    rejects(message, call)


def test_products_beyond_the_range_are_an_error():
    skeleton = single(Coordinate(tuple(range(10_000))), Exponential(3000.0))
    x = np.zeros((1, 10_000))
    features = c.draw(skeleton, 2, np.random.default_rng(0))
    assert (features.psi(x) == 0).all()
    wide = single(Coordinate((0, 1)), Exponential(5000.0))
    diagonal = [[math.sqrt(0.5), math.sqrt(0.5)]]
    assert_allclose(c.draw(wide, 2, np.random.default_rng(0)).psi(diagonal), 1, rtol=1e-9)
    with pytest.raises(ValueError, match="a product of base features beyond the range of float64"):
        c.draw(single(Coordinate((0, 1)), Polynomial((0,) * 3000 + (1,))), 1,
               FixedSlots()).psi([[1.0, 0.0]])  # fmt: skip


class FixedSlots(np.random.Generator):
    """A generator whose integers are all 0: every base feature is the first column."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def integers(self, *args: Any, size: Any = None, **kwargs: Any) -> Any:
        return np.zeros(size, np.int64)


def test_importing_attention_loads_neither_it_nor_scikit_learn():
    """It is imported on first access, also by `attention.compositional`."""
    code = (
        "import sys, attention\n"
        "assert not any(name.startswith('attention.compositional') for name in sys.modules)\n"
        "assert attention.compositional.Skeleton.__name__ == 'Skeleton'\n"
        "assert 'compositional' in attention.__all__\n"
        "assert 'sklearn' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).random((n, *shape))


def test_image_skeletons():
    """A patch averages all channels; its components are the inputs of its node alone."""
    images = pictures(5, 4, 5, 3)
    skeleton = c.image_skeleton(4, 5, [(2, 1, Exponential(0.25))], ReLU(), scale=2.0, channels=3)
    assert skeleton.num_columns == len(skeleton.inputs) == 60
    angles = 2.0 * images
    cosines = np.cos(angles[:, None] - angles[None])
    windows = [cosines[:, :, i : i + 2, j : j + 2] for i in range(3) for j in range(4)]
    patches = [np.exp((window.mean((2, 3, 4)) - 1) / 4) for window in windows]
    exact = ReLU().value(np.mean(patches, axis=0))
    assert_allclose(skeleton.gram(images.reshape(5, -1)), exact, atol=1e-12)
    skeleton = c.image_skeleton(
        24, 24, [(4, 2, ReLU()), (5, 2, ReLU())], ReLU(), components=10, channels=3
    )
    assert len(skeleton.nodes["layer1_10_10"].inputs) == 10
    assert len(skeleton.nodes["layer2_0_0"].inputs) == 25
    assert skeleton.num_columns == len(skeleton.inputs) == 11 * 11 * 10
    columns = [skeleton.inputs[n].columns[0] for n in skeleton.nodes["layer1_1_2"].inputs]
    assert columns == [*range(130, 140)]
    deep = c.image_skeleton(
        24, 24, [(5, 2, Exponential(0.25)), (4, 2, ReLU())], ReLU(), scale=math.pi / 2
    )
    layers = [sum(name.startswith(f"layer{i}") for name in deep.nodes) for i in (1, 2)]
    assert layers == [100, 16]
    assert len(deep.inputs) == 23 * 23  # the last row and column are in no window
    assert deep.complexity == pytest.approx(0.25)
    assert deep.expected_calls == pytest.approx(1 + 1 + 1 + 0.25)


def test_components_are_the_directions_of_most_variance():
    images = pictures(40, 7, 9, 2)
    found = PatchComponents.fit(images, 3, 2, 5)
    patches = np.array([
        image[i : i + 3, j : j + 3].ravel()
        for image in images for i in (0, 2, 4) for j in (0, 2, 4, 6)
    ])  # fmt: skip
    assert_allclose(found.mean, patches.mean(0), atol=1e-12)
    _, sizes, rows = np.linalg.svd(patches - patches.mean(0), full_matrices=False)
    assert_allclose(np.abs(np.sum(rows[:5] * found.directions.T, axis=1)), 1, atol=1e-9)
    projected = found.transform(images)
    assert projected.shape == (40, 12 * 5)
    assert_allclose(np.square(projected).mean(), 1)
    by_component = np.square(projected.reshape(-1, 5)).mean(0)
    assert_allclose(by_component / by_component[0], (sizes[:5] / sizes[0]) ** 2)
    assert found.transform(images.astype(np.float32)).dtype == np.float32
    one = (patches[7] - found.mean) @ found.directions / found.size
    assert_allclose(projected[0, 35:40], one)


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize("options", [{}, {"layout": "phase", "budget": "distinct"}], ids=str)
def test_check_estimator(options):
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(c.CompositionalFeatures(n_components=20, **options))


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def digits_skeleton() -> Skeleton:
    return c.image_skeleton(
        8, 8, [(3, 1, Exponential(0.25)), (2, 2, ReLU())], ReLU(), scale=math.pi / 32
    )


def test_transformer(digits):
    x = digits[0][:100]
    model = c.CompositionalFeatures(n_components=20_000, random_state=0).fit(x)
    z = model.transform(x)
    exact = model.skeleton_.gram(x)
    assert len(model.skeleton_.inputs) == 8
    assert np.abs(z @ z.T - exact).max() < 0.05
    block = model.skeleton_.inputs["columns_0_7"]
    assert isinstance(block, Gaussian)
    assert block.a**-2 == pytest.approx(x[:, :8].var(0).sum())
    x = digits[0][:50]
    data = digits_skeleton().to_dict()
    model = c.CompositionalFeatures(data, n_components=300, random_state=3).fit(x)
    again = c.CompositionalFeatures(digits_skeleton(), n_components=300, random_state=3).fit(x)
    z = model.transform(x)
    np.testing.assert_array_equal(z, again.transform(x))
    assert not np.array_equal(z[:, :5], again.set_params(random_state=4).fit_transform(x)[:, :5])
    single_precision = model.transform(x.astype(np.float32))
    assert single_precision.dtype == np.float32
    np.testing.assert_allclose(single_precision, z, atol=1e-5)
    names = model.get_feature_names_out()
    assert len(names) == z.shape[1] == 2 * len(model.features_)
    assert names[0] == "compositionalfeatures0"
    assert model.n_features_in_ == 64
    whole = c.CompositionalFeatures(data, n_components=300, random_state=3, deduplicate=False)
    long = whole.fit_transform(x)
    assert long.shape[1] == 600 > z.shape[1]
    np.testing.assert_allclose(long @ long.T, z @ z.T, rtol=1e-12)
