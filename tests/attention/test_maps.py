"""Properties of every feature map."""

import copy
import inspect
import pickle
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import attention
from attention import feature_map
from tests.attention import cases
from tests.attention.cases import DOUBLE, rejects

NAMES = attention.available()
COMPARISONS = ("elu", "harmonic", "quadratic", "relu")
"""Kernels of their own."""
DETERMINISTIC = ("elu", "harmonic")
"""Maps without random vectors; quadratic, which takes none, has its own tests."""
RANDOM = tuple(name for name in NAMES if name not in (*DETERMINISTIC, "quadratic"))
FIXED = ("angular_hybrid", "hyperbolic", "positive", "trig", "trig_phase", *COMPARISONS)
"""Maps without parameters to fit."""
SPELLED_OUT = [name for name in NAMES if not name.endswith("_plus")]
"""The others pass on what they do not know."""


def attention_case(name: str, *counts: int) -> tuple[attention.FeatureMap, Tensor, Tensor, Tensor]:
    """A map, and queries, keys and values for it.

    Signed maps get tokens so short, and so many features, that no denominator needs the policy of
    `attention.denominators`; signed powers get no negative entries, which they refuse.
    """
    probe = feature_map(name, 3, 1, **DOUBLE)
    fm = feature_map(name, 3, 40, **DOUBLE) if probe.signed else None
    fm = fm or feature_map(name, 3, 6, **DOUBLE)
    x, y = tokens(*counts[:-1], 3), tokens(*counts[:-2], counts[-1], 3, seed=1)
    if probe.signed:
        x, y = 0.4 * x, 0.4 * y
    if name in ("geometric", "poisson"):
        x, y = x.abs(), y.abs()
    return fm, x, y, tokens(*counts[:-2], counts[-1], 2, seed=2)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return 0.7 * cases.tokens(*shape, seed=seed, dtype=torch.float64)


def kernel_matrix(fm: attention.FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    return fm.queries(x) @ fm.keys(y).mT


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_scaled_features(name, kernel):
    fm = feature_map(name, 4, 6, kernel=kernel, **DOUBLE)
    x = tokens(2, 5, 4)
    for features, scaled in ((fm.queries, fm.scaled_queries), (fm.keys, fm.scaled_keys)):
        plain = features(x)
        assert plain.shape == (2, 5, fm.output_dim)
        assert features(x[0, 0]).shape == (fm.output_dim,)
        mantissa, log_scale = scaled(x)
        assert mantissa.shape == plain.shape
        assert log_scale.shape == (2, 5, 1)
        assert mantissa.abs().max() <= (2 if name.endswith("hybrid") else 1)
        assert_close(mantissa * log_scale.exp(), plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_gaussian_is_softmax_without_norms(name):
    """Maps for comparison have one custom kernel."""
    x, y = tokens(5, 4), tokens(6, 4, seed=1)
    maps = (feature_map(name, 4, 6, kernel=kernel, **DOUBLE) for kernel in ("softmax", "gaussian"))
    softmax, gaussian = (kernel_matrix(fm, x, y) for fm in maps)
    if name in COMPARISONS:
        assert torch.equal(softmax, gaussian)
    else:
        norms = 0.5 * (x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1))
        assert_close(gaussian, softmax * (-norms).exp(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_the_quadratic_form(name):
    fm, x, y, values = attention_case(name, 2, 5, 7)
    weights = kernel_matrix(fm, x, y)
    expected = weights / weights.sum(-1, keepdim=True) @ values
    assert_close(fm.attend(x, y, values), expected, rtol=1e-10, atol=1e-12)
    # The padding is larger than any real key, and not even finite in places.
    fm, x, y, values = attention_case(name, 5, 7)
    mask = torch.arange(7) < 5
    expected = fm.attend(x, y[:5], values[:5])
    y[5], y[6], values[5], values[6] = 20.0, torch.nan, 1e9, torch.inf
    assert_close(fm.attend(x, y, values, key_mask=mask), expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    fm, *leaves = attention_case(name, 3, 4)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(fm.attend, leaves)
    assert torch.autograd.gradcheck(fm.token_scores, leaves[:2])


@pytest.mark.parametrize("name", NAMES)
def test_state_travels(name):
    """A class has the defaults of the name."""
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    source = feature_map(name, 4, 6, seed=1, **DOUBLE)
    target = feature_map(name, 4, 6, seed=2, **DOUBLE)
    expected = kernel_matrix(source, x, y)
    assert torch.equal(kernel_matrix(target, x, y), expected) == (name in DETERMINISTIC)
    target.load_state_dict(source.state_dict())
    for same in (target, copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert torch.equal(kernel_matrix(same, x, y), expected)
    single = kernel_matrix(source.float(), x.float(), y.float())
    assert single.dtype == torch.float32
    assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)
    named = feature_map(name, 4, 6)
    made = type(named)(4, 6)
    x = tokens(3, 4).float()
    assert torch.equal(made.queries(x), named.queries(x))
    assert torch.equal(made.keys(x), named.keys(x))


COMPILED = ("angular_hybrid", "clustered_hybrid", "poisson_plus")
"""One of each kind: compiling takes half a second each."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in COMPILED else pytest.mark.slow) for n in NAMES]
)
def test_compiles_to_one_graph(name):
    # Each map is one more recompilation of the same code, and eight are the limit.
    torch._dynamo.reset()
    fm, x, y, values = attention_case(name, 9, 9)

    def both(x: Tensor, y: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return fm.attend(x, y, values), fm.token_scores(x, y)

    compiled = torch.compile(both, backend="eager", fullgraph=True)
    assert_close(compiled(x, y, values), both(x, y, values))


INDUCTOR = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of its own imports
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
]


@pytest.mark.parametrize(
    ("name", "causal", "dynamic", "backend"),
    [
        pytest.param("positive", True, True, "aot_eager", marks=pytest.mark.slow),
        pytest.param("positive", True, False, "aot_eager", marks=pytest.mark.records),
        pytest.param("hyperbolic", False, True, "aot_eager", marks=pytest.mark.records),
        pytest.param("oprf", True, False, "aot_eager", marks=pytest.mark.records),
        pytest.param("angular_hybrid", False, False, "aot_eager", marks=pytest.mark.records),
        pytest.param("angular_hybrid", True, True, "aot_eager", marks=pytest.mark.slow),
        pytest.param("angular_hybrid", False, False, "inductor", marks=INDUCTOR),
    ],
)
def test_attend_compiles_with_gradients(name, causal, dynamic, backend):
    """Causal attention of two chunks."""
    torch._dynamo.reset()
    fm = feature_map(name, 4, 6)
    given = [0.4 * cases.tokens(2, 70, 4, seed=seed) for seed in range(3)]
    compiled = torch.compile(fm.attend, backend=backend, fullgraph=True, dynamic=dynamic)
    results = []
    for run in (compiled, fm.attend):
        leaves = [leaf.clone().requires_grad_() for leaf in given]
        output = run(*leaves, causal=causal)
        results.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RANDOM)
def test_redraw_only_when_asked(name):
    x, y = tokens(3, 4), tokens(3, 4, seed=1)
    before = torch.random.get_rng_state()
    fm = feature_map(name, 4, 6, seed=1, **DOUBLE)
    first = kernel_matrix(fm, x, y)
    assert torch.equal(kernel_matrix(fm.train(), x, y), first)
    assert fm.fit(x, y) is fm
    if name in FIXED:
        assert torch.equal(kernel_matrix(fm, x, y), first)
    fm.redraw(torch.Generator().manual_seed(9))
    second = kernel_matrix(fm, x, y)
    assert not torch.equal(second, first)
    fm.redraw(torch.Generator().manual_seed(9))
    assert torch.equal(kernel_matrix(fm, x, y), second)
    assert torch.equal(torch.random.get_rng_state(), before)
    explicit = feature_map(name, 4, 6, projection=torch.zeros(6, 4))
    rejects(r"redraw needs .* by name", explicit.redraw, torch.Generator())
    for given in (0, None):  # None would be PyTorch's global generator
        rejects(f"^generator must be a torch.Generator.*, got {given}$", fm.redraw, given)


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_the_argument(name):
    fm = feature_map(name, 4, 6)
    rejects(r"last dimension 4, got shape \(2, 3\)", fm.queries, torch.zeros(2, 3))
    rejects(r"dtype torch.float32, got torch.float64", fm.token_scores, tokens(2, 4), tokens(2, 4))
    rejects("num_features must be at least 1, got 0", feature_map, name, 4, 0)
    rejects("dim must be at least 1, got 0", feature_map, name, 0, 4)
    with pytest.raises(ValueError, match="kernel must be one of softmax, gaussian, got 'laplace'"):
        feature_map(name, 4, 4, kernel="laplace")
    with pytest.raises(ValueError, match=f"{name} takes the options .*dtype.*, got 'sigmoid'"):
        feature_map(name, 4, 4, sigmoid=1)


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_a_class_tells_every_option_and_refuses_a_misspelled_one(name):
    """Also those that it passes on to its base, under its own name."""
    made = type(feature_map(name, 4, 6))
    told = inspect.signature(made).parameters
    settings = ("kernel", "projection", "seed", "heads", "dtype", "device")
    defaults = ("softmax", "orthogonal", 0, None, None, None)
    assert tuple(told[setting].default for setting in settings) == defaults
    arguments = ", ".join(sorted(told))
    message = f"^{made.__name__} takes the arguments {arguments}, got 's"
    with pytest.raises(TypeError, match=message):
        made(4, 6, sed=1)


def test_numbers_of_numpy_and_lists():
    four, six, seed = np.int64(4), np.int32(6), np.uint8(3)
    fm = feature_map("positive", four, six, heads=np.int64(2), seed=seed)
    assert type(fm.dim) is type(fm.num_features) is type(fm.heads) is int
    assert torch.equal(fm.omega, feature_map("positive", 4, 6, heads=2, seed=3).omega)
    rows = [[0.5, -0.25], [1.0, 2.0], [0.0, 1.5]]
    assert torch.equal(feature_map("positive", 2, 3, projection=rows).omega, torch.tensor(rows))
    double = feature_map("positive", 2, 3, projection=np.array(rows))
    assert torch.equal(double.omega, torch.tensor(rows, dtype=torch.float64))
    whole = feature_map("poisson", 2, 3, projection=[[0, 1], [2, 0], [1, 1]])
    assert torch.equal(whole.omega, torch.tensor([[0, 1], [2, 0], [1, 1]]))
    pair = ["iid", "halton"]
    build = partial(feature_map, "angular_hybrid", 2, 3, shared_projections=False)
    assert torch.equal(build(projection=pair).weight, build(projection=tuple(pair)).weight)


@pytest.mark.parametrize(
    ("name", "options", "heads"),
    [
        ("oprf", {"A": [-0.1, -0.2]}, 2),
        ("gerf", {"A": [-0.1j, 0.2]}, 2),
        ("complex_exponential", {"A": [1.0, 2.0, 1j, 0.5]}, None),
        ("trig_phase", {"phase": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]}, None),
        ("poisson", {"lam": [0.3, 0.7]}, 2),
        ("poisson_plus", {"shift": [-1.0, -2.0, 0.0, -0.5]}, None),
        ("clustered_hybrid", {"query_centers": [[1.0] * 4], "key_centers": [[1.0] * 4]}, None),
    ],
)
def test_lists_are_taken_as_tensors(name, options, heads):
    """Words are refused by the argument's name."""
    x = tokens(2, 3, 4).abs()
    wide = torch.complex128 if "j" in str(options) else torch.float64
    listed, *others = (
        feature_map(name, 4, 6, heads=heads, **DOUBLE, **{o: made(v) for o, v in options.items()})
        for made in (list, np.array, partial(torch.tensor, dtype=wide))
    )
    for other in others:
        assert torch.equal(listed.keys(x), other.keys(x))
        assert_close(list(listed.buffers()), list(other.buffers()), rtol=0, atol=0)
    for option in options:
        message = f"{option} must be made of .*numbers, got 'no'"
        rejects(message, feature_map, name, 4, 6, **{option: "no"})


def test_token_scores_export_with_any_number_of_tokens():
    """m = 256 cuts 512 tokens into blocks, whose number no exported graph could know."""
    fm = feature_map("positive", 4, 256, **DOUBLE)
    length = torch.export.Dim("length", min=2, max=4096)
    module = cases.Calls(fm, lambda fm, x, y: fm.token_scores(x, y))
    inputs = tokens(512, 4), tokens(512, 4, seed=1)
    shapes = (({0: length}, {0: length}),)
    exported = torch.export.export(module, inputs, dynamic_shapes=shapes).module()
    for count in (7, 512, 700):
        x, y = tokens(count, 4), tokens(count, 4, seed=1)
        assert_close(exported(x, y), fm.token_scores(x, y))
