"""Half precision, autocast and large inputs, for every map."""

from functools import partial

import pytest
import torch
from torch import Tensor

import attention
from attention import RandomFeatureAttention, precision
from tests.attention.cases import relative_error
from tests.attention.cases import tokens as drawn
from tests.pairwise import pairwise

LENGTH, DIM = 96, 64
tokens = partial(drawn, dtype=torch.float64)


def on_sphere(norm: float, *shape: int, seed: int) -> Tensor:
    return norm * torch.nn.functional.normalize(tokens(*shape, seed=seed), dim=-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_precision_are_in_float32(dtype: torch.dtype, causal: bool) -> None:
    """4,000 ones do not fit bfloat16's 8 bits, and their sum of products not float16's range."""
    length = 4000
    phi = torch.full((length, 8), 8.0, dtype=dtype)
    v = torch.ones(length, 1, dtype=dtype)
    computed = attention.linear_attention(phi, phi, v, causal=causal)
    assert computed.dtype == dtype
    assert torch.equal(computed, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "trig", "angular_hybrid"])
def test_autocast_changes_nothing(name: str, causal: bool) -> None:
    fm = attention.feature_map(name, DIM, 8)
    x, y, v = (0.3 * tokens(LENGTH, DIM, seed=s).float() for s in range(3))
    expected = fm.attend(x, y, v, causal=causal)
    matrix = attention.attention_matrix(fm, x, y, causal=causal)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fm.attend(x, y, v, causal=causal), expected)
        assert torch.equal(attention.attention_matrix(fm, x, y, causal=causal), matrix)
        low = fm.attend(x.bfloat16(), y.bfloat16(), v.bfloat16(), causal=causal)
    assert low.dtype == torch.bfloat16
    low_expected = fm.attend(*(t.bfloat16().float() for t in (x, y, v)), causal=causal)
    assert relative_error(low, low_expected.double()) < 0.01


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "exact"])
def test_tokens_of_several_dtypes_are_attended_in_float32(name: str, causal: bool) -> None:
    kernel = attention.ExactSoftmax(DIM) if name == "exact" else attention.feature_map(name, DIM, 8)
    mask = torch.arange(LENGTH) < LENGTH - 9
    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    for own in (dtypes, dtypes[::-1], (torch.float16, torch.float16, torch.float32)):
        x, y, v = (0.3 * tokens(LENGTH, DIM, seed=s).to(dtype) for s, dtype in enumerate(own))
        for key_mask in (None, mask):
            computed = kernel.attend(x, y, v, causal=causal, key_mask=key_mask)
            single = kernel.attend(
                x.float(), y.float(), v.float(), causal=causal, key_mask=key_mask
            )
            assert computed.dtype == v.dtype
            assert torch.equal(computed, single.to(v.dtype))


@pytest.mark.parametrize(
    ("dtype", "causal", "name"),
    pairwise([torch.float32, torch.bfloat16], [False, True], attention.available()),
)
def test_large_inputs_are_finite_and_bounded(name: str, causal: bool, dtype: torch.dtype) -> None:
    """|q| = |k| = 30 at d = 64, scaled by d**-0.25: exact logits reach 112."""
    x, y = (on_sphere(30 * DIM**-0.25, LENGTH, DIM, seed=s) for s in (0, 1))
    if name in ("geometric", "poisson"):
        x, y = x.abs(), y.abs()
    v = tokens(LENGTH, 4, seed=2).tanh()
    fm = attention.feature_map(name, DIM, 16).fit(x.float(), y.float())
    computed = fm.attend(x.to(dtype), y.to(dtype), v.to(dtype), causal=causal)
    assert computed.dtype == dtype
    assert computed.isfinite().all()
    assert computed.abs().max() <= 1 + 1e-2
    if not fm.signed:
        found = attention.diagnose(fm, x.float(), y.float(), causal=causal)
        assert found.negative_estimates == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["positive", "hyperbolic", "oprf"])
def test_large_inputs_equal_float64_in_float32(name: str, causal: bool) -> None:
    """Nothing is lost to under- or overflow: the scales carry what float32 could not."""
    x, y = (on_sphere(30 * DIM**-0.25, LENGTH, DIM, seed=s) for s in (0, 1))
    v = tokens(LENGTH, 4, seed=2)
    fm = attention.feature_map(name, DIM, 64, dtype=torch.float64).fit(x, y)
    expected = fm.attend(x, y, v, causal=causal)
    single = fm.float().attend(x.float(), y.float(), v.float(), causal=causal)
    assert relative_error(single, expected) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["trig", "angular_hybrid", "gaussian_hybrid"])
def test_large_inputs_keep_their_attention(name: str, dtype: torch.dtype) -> None:
    """Each query equals one key: exact attention picks its value, and uniform attention is 0.

    These maps are exact at equal vectors and their error elsewhere is about 1/sqrt(m) of that, so
    that with the other 7 keys' values averaging out the right value stands out.
    """
    y = on_sphere(30 * DIM**-0.25, 8, DIM, seed=1).to(dtype)
    v = torch.eye(8, dtype=dtype)
    fm = attention.feature_map(name, DIM, 512)
    exact = attention.ExactSoftmax(DIM).attend(y.float(), y.float(), v.float()).double()
    assert relative_error(exact, torch.eye(8, dtype=torch.float64)) < 1e-3
    computed = fm.attend(y, y, v)
    assert relative_error(computed, exact) < 0.35
    uniform = torch.full_like(exact, 1 / 8)
    assert relative_error(uniform, exact) > 0.9


@pytest.mark.parametrize("name", ["positive", "angular_hybrid", "oprf"])
def test_products_in_bfloat16_add_little_to_the_error_of_the_estimate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, without gradients. FAVOR+ and OPRF of m = 256, hybrid 8 x 8."""
    fm = attention.feature_map(name, DIM, 8 if name == "angular_hybrid" else 256)
    x, y = (on_sphere(1.0, 1, 2, 300, DIM, seed=seed).bfloat16() for seed in (0, 1))
    v = tokens(1, 2, 300, DIM, seed=2).float()
    exact = attention.ExactSoftmax(DIM).attend(x, y, v)
    expected = fm.attend(x, y, v)
    monkeypatch.setattr(precision, "LOW_DEVICES", ("cpu",))
    assert torch.equal(fm.attend(x, y, v), expected)  # gradients are enabled
    with torch.no_grad():
        assert relative_error(fm.attend(x.float(), y, v), expected) < 1e-5
        rounding = relative_error(fm.attend(x, y, v), expected)
    assert 0.0005 < rounding < 0.005
    assert rounding < 0.04 * relative_error(expected, exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_module_in_low_precision_and_under_autocast(dtype: torch.dtype) -> None:
    module = RandomFeatureAttention(16, 2, batch_first=True)
    x = tokens(2, 9, 16, seed=1).float()
    expected = module(x, x, x)[0].detach().double()
    low = RandomFeatureAttention(16, 2, batch_first=True).to(dtype)
    low.load_state_dict(module.state_dict())
    computed = low(x.to(dtype), x.to(dtype), x.to(dtype))[0]
    assert computed.dtype == dtype
    assert relative_error(computed, expected) < 0.1
    with torch.autocast("cpu", dtype=dtype):
        mixed = module(30 * x, 30 * x, x, need_weights=True)
    assert all(t is not None and t.isfinite().all() for t in mixed)
    with torch.autocast("cpu", dtype=dtype):
        assert relative_error(module(x, x, x)[0], expected) < 0.1


@pytest.mark.parametrize("name", ["positive", "trig", "harmonic"])
def test_sums_of_many_tokens_keep_five_digits(name: str) -> None:
    count = 5 * 10**4
    fm = attention.feature_map(name, 2, 4)
    keys, values = torch.zeros(1, count, 2), torch.full((1, count, 1), 0.7)
    memory = attention.LinearMemory(2, 1, fm)
    with torch.no_grad():
        outputs = [fm.attend(keys[:, :3], keys, values)]
        outputs += [fm.attend(keys, keys, values, causal=True)]
        outputs += [memory.read(memory.write(memory.initial_state(1), keys, values), keys[:, :1])]
        phi = fm.keys(keys)
        outputs += [attention.linear_attention(phi, phi, values, causal=True)]
    for output in outputs:
        assert relative_error(output, torch.full_like(output, 0.7)) < 1e-5


@pytest.mark.parametrize(("dim", "kappa"), [(350, 20.0), (500, 4.0), (980, 1.0)])
def test_harmonics_of_hundreds_of_axes_are_numbers(dim: int, kappa: float) -> None:
    """Every coefficient of the kernel is smaller than the smallest float64."""
    fm = attention.feature_map("harmonic", dim, 16, kappa=kappa)
    phi = fm.queries(tokens(5, dim).float())
    torch.testing.assert_close((phi * phi).sum(-1), torch.ones(5))
    error = attention.theory.harmonic_rms_error(16, kappa=kappa, dim=dim)
    assert 0 < error < 1
