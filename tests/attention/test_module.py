"""RandomFeatureAttention beside nn.MultiheadAttention."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import attention
from attention import RandomFeatureAttention
from tests.attention.cases import Calls, rejects, relative_error, tokens
from tests.pairwise import pairwise

EMBED, HEADS = 8, 2


def softmax_module(**options: Any) -> nn.MultiheadAttention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.MultiheadAttention(EMBED, HEADS, **options)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.25)
    return module


def close(computed: Tensor, expected: Tensor, tolerance: float = 0.1) -> None:
    """With thousands of features the estimate is good, not exact."""
    assert computed.shape == expected.shape
    assert relative_error(computed, expected) < tolerance


@pytest.mark.parametrize(
    ("batch_first", "sizes", "bias"),
    pairwise([False, True], [{}, {"kdim": 6, "vdim": 5}], [False, True]),
)
def test_exact_attention_by_name_is_pytorchs(bias, sizes, batch_first):
    """With masks, cross-attention of other sizes and weights: all as PyTorch returns them."""
    exact = softmax_module(bias=bias, batch_first=batch_first, **sizes)
    ours = RandomFeatureAttention.from_multihead(exact, "softmax")
    query = tokens(3, 4, EMBED)
    key = tokens(3, 5, sizes.get("kdim", EMBED), seed=1)
    value = tokens(3, 5, sizes.get("vdim", EMBED), seed=2)
    if not batch_first:
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    for mask in (None, padding, torch.zeros(3, 5).masked_fill(padding, -torch.inf)):
        options: dict[str, Any] = {"key_padding_mask": mask, "need_weights": True}
        for average in (True, False):
            expected = exact(query, key, value, average_attn_weights=average, **options)
            computed = ours(query, key, value, average_attn_weights=average, **options)
            assert_close(computed, expected)
    assert ours(query, key, value)[1] is None
    assert set(ours.state_dict()) == set(exact.state_dict())
    rejects("feature_map must have random features for step, got softmax", ours.initial_state, 2)
    message, options = "feature_map softmax takes no options, got base", {"base": ("trig", "trig")}
    rejects(message, RandomFeatureAttention, EMBED, HEADS, "softmax", **options)


def test_masks():
    exact = softmax_module(batch_first=True)
    ours = RandomFeatureAttention.from_multihead(exact, "hyperbolic", 2048)
    x = tokens(2, 5, EMBED)
    later = torch.ones(5, 5).triu(1).bool()
    expected = exact(x, x, x, attn_mask=later, is_causal=True, need_weights=False)[0]
    additive = nn.Transformer.generate_square_subsequent_mask(5)
    for mask, flag in ((None, True), (later, True), (later, False), (additive, False)):
        close(ours(x, x, x, attn_mask=mask, is_causal=flag)[0], expected)
    output, weights = ours(x[0], x[0], x[0], is_causal=True, need_weights=True)
    close(output, expected[0])
    assert weights.shape == (5, 5)
    assert torch.equal(weights, weights.tril())
    visible = exact(x[0], x[0], x[0], attn_mask=later, is_causal=True)[1]
    close(weights, visible)
    assert_close(ours(x, x.clone(), x, is_causal=True)[0][0], output)
    # Finite numbers for -inf, and masks that mask nothing.
    ours = RandomFeatureAttention(EMBED, HEADS, "positive", batch_first=True)
    plain, causal = ours(x, x, x)[0], ours(x, x, x, is_causal=True)[0]
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    padded = ours(x, x, x, key_padding_mask=padding)[0]
    for value in (-1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf):
        mask = torch.zeros(5, 5).masked_fill(later, value)
        for flag in (False, True):
            assert torch.equal(ours(x, x, x, attn_mask=mask, is_causal=flag)[0], causal)
        mask = torch.zeros(2, 5).masked_fill(padding, value)
        assert torch.equal(ours(x, x, x, key_padding_mask=mask)[0], padded)
    for mask in (torch.zeros(5, 5), torch.zeros(5, 5, dtype=torch.bool)):
        assert torch.equal(ours(x, x, x, attn_mask=mask)[0], plain)
        assert torch.equal(ours(x, x, x, attn_mask=mask, is_causal=True)[0], causal)
    other = ours(x[:, :3], x, x)[0]
    assert torch.equal(ours(x[:, :3], x, x, attn_mask=torch.zeros(3, 5))[0], other)


def test_states_travel_and_are_converted():
    exact = softmax_module()
    ours = RandomFeatureAttention(EMBED, HEADS, seed=1)
    vectors = {k: v.clone() for k, v in ours.feature_map.state_dict().items()}
    assert vectors
    ours.load_state_dict(exact.state_dict())
    for name, parameter in exact.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter)
    for name, value in ours.feature_map.state_dict().items():
        assert torch.equal(value, vectors[name])
    nested = nn.ModuleDict({"attention": RandomFeatureAttention(EMBED, HEADS, seed=2)})
    nested.load_state_dict({f"attention.{k}": v for k, v in ours.state_dict().items()})
    x = tokens(4, EMBED)
    assert torch.equal(nested["attention"](x, x, x)[0], ours(x, x, x)[0])
    incomplete = ours.state_dict()
    incomplete.pop(next(k for k in incomplete if k.startswith("feature_map.")))
    incomplete["feature_map.other"] = x
    with pytest.raises(RuntimeError, match="feature_map"):
        ours.load_state_dict(incomplete)
    exact_state = exact.state_dict()
    exact_state.pop("in_proj_weight")
    with pytest.raises(RuntimeError, match="in_proj_weight"):
        ours.load_state_dict(exact_state)
    assert ours.redraw(torch.Generator().manual_seed(3)) is None
    assert not torch.equal(nested["attention"](x, x, x)[0], ours(x, x, x)[0])
    exact.in_proj_weight.requires_grad_(False)
    exact.out_proj.bias.requires_grad_(False)
    ours = RandomFeatureAttention.from_multihead(exact)
    assert type(ours.feature_map).__name__ == "OprfFeatures"
    assert ours.feature_map.num_features == 256
    frozen = {name for name, p in ours.named_parameters() if not p.requires_grad}
    assert frozen == {"in_proj_weight", "out_proj.bias"}
    back = nn.MultiheadAttention(EMBED, HEADS)
    assert not back.load_state_dict(ours.state_dict(), strict=False).missing_keys
    for name, parameter in back.named_parameters():
        assert torch.equal(parameter, exact.get_parameter(name))


def test_initial_values_and_fit():
    """Initial values are those of PyTorch; `fit` sets the parameters of each head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = RandomFeatureAttention(64, 2, kdim=32, vdim=16)
        for name, fan_in in (("q", 64), ("k", 32), ("v", 16)):
            weight = ours.get_parameter(f"{name}_proj_weight").detach()
            assert weight.shape == (64, fan_in)
            assert weight.abs().max() <= (6 / (64 + fan_in)) ** 0.5
            assert weight.std() == pytest.approx((2 / (64 + fan_in)) ** 0.5, rel=0.1)
    assert not ours.in_proj_bias.any()
    assert not ours.out_proj.bias.any()
    ours = RandomFeatureAttention(EMBED, HEADS, "oprf", 4, batch_first=True)
    x, y = tokens(2, 5, EMBED), tokens(2, 6, EMBED, seed=1)
    before = ours(x, y, y)[0]
    assert ours.fit(x, y) is ours
    assert not torch.equal(ours(x, y, y)[0], before)
    q, k, _ = ours.project(x, y, y)
    direct = attention.feature_map("oprf", EMBED // HEADS, 4, heads=HEADS).fit(q, k)
    ours.feature_map.load_state_dict(direct.state_dict())
    assert_close(ours(x, y, y)[0], ours.fit(x, y)(x, y, y)[0])


def test_transformer_layers_use_it():
    # PyTorch's fast path would compute softmax from the weights, without calling forward.
    layer = nn.TransformerEncoderLayer(EMBED, HEADS, 16, dropout=0.0, batch_first=True)
    ours = RandomFeatureAttention.from_multihead(layer.self_attn, num_features=2, seed=5)
    layer.self_attn = ours
    x = tokens(2, 5, EMBED)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    for seed, options in enumerate(
        ({}, {"src_key_padding_mask": padding}, {"src_mask": mask, "is_causal": True})
    ):
        training = layer.train()(x, **options)
        with torch.no_grad():
            evaluation = layer.eval()(x, **options)
        assert_close(training, evaluation)
        ours.redraw(torch.Generator().manual_seed(seed))
        with torch.no_grad():
            assert not torch.allclose(layer(x, **options), evaluation)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        assert encoder(x, src_key_padding_mask=padding).isfinite().all()
    layer = nn.TransformerDecoderLayer(EMBED, HEADS, 16, dropout=0.0, batch_first=True).eval()
    x, memory = tokens(2, 5, EMBED), tokens(2, 7, EMBED, seed=1)
    expected = layer(x, memory, tgt_mask=mask, tgt_is_causal=True)
    for name in ("self_attn", "multihead_attn"):
        converted = RandomFeatureAttention.from_multihead(getattr(layer, name), "positive", 4096)
        setattr(layer, name, converted)
    close(layer(x, memory, tgt_mask=mask, tgt_is_causal=True), expected)


def test_dropout_takes_out_values():
    """Of one head with an identity for values: output entries are 0 or twice the undropped."""
    ours = RandomFeatureAttention(4, 1, "positive", 16, dropout=0.5, bias=False)
    with torch.no_grad():
        ours.in_proj_weight[8:] = torch.eye(4)
        ours.out_proj.weight.copy_(torch.eye(4))
    ours.requires_grad_(False)
    query, value = tokens(3, 4), torch.eye(4)
    plain = ours.eval()(query, tokens(4, 4, seed=1), value)[0]
    ours.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ratios = [ours(query, tokens(4, 4, seed=1), value)[0] / plain for _ in range(400)]
    ratios = torch.stack(ratios)
    assert_close(ratios, ratios[:, :1].expand_as(ratios))
    assert set(ratios.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    # Each of the four values falls out on its own; a pattern is missing once in 10^10 tries.
    assert len(ratios[:, 0].round().unique(dim=0)) == 2**4
    # 400 x 4 fair draws of 0 or 2: mean 1, standard error 0.025.
    assert ratios.mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", ["positive", "angular_hybrid"])
def test_a_prompt_then_steps_equal_the_causal_module(name, batch_first):
    """With padding on the left, as a batch of prompts of several lengths has it."""
    ours = RandomFeatureAttention(EMBED, HEADS, name, 4, kdim=6, vdim=5, batch_first=batch_first)
    inputs = [tokens(3, 90, size, seed=size) for size in (EMBED, 6, 5)]
    padding = torch.arange(90) < torch.tensor([[0], [7], [90]])
    whole = inputs if batch_first else [t.transpose(0, 1) for t in inputs]
    expected = ours(*whole, key_padding_mask=padding, is_causal=True)[0]
    expected = expected if batch_first else expected.transpose(0, 1)
    state = ours.initial_state(3)
    for part in (slice(0, 70), slice(70, 85)):
        prompt = [t[:, part] if batch_first else t[:, part].transpose(0, 1) for t in inputs]
        output, state = ours.prefill(*prompt, state, padding[:, part])
        output = output if batch_first else output.transpose(0, 1)
        assert_close(output, expected[:, part], rtol=1e-4, atol=1e-5)
    for i in range(85, 90):
        output, state = ours.step(*(t[:, i] for t in inputs), state, padding[:, i])
        assert_close(output, expected[:, i], rtol=1e-4, atol=1e-5)
    single, state = ours.prefill(*(t[0] for t in inputs), ours.initial_state(1))
    assert_close(single, expected[0], rtol=1e-4, atol=1e-5)
    empty = [t[:, :0] if batch_first else t[:0] for t in whole]
    output, same = ours.prefill(*empty, ours.initial_state(3))
    assert output.shape == (*empty[0].shape[:2], EMBED)
    message = r"key_padding_mask must have shape \(3,\), got \(3, 90\)"
    rejects(message, ours.step, *(t[:, 0] for t in inputs), same, padding)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.records), True])
def test_compiles_to_one_graph(causal):
    torch.compiler.reset()
    ours = RandomFeatureAttention(EMBED, HEADS, batch_first=True)
    x = tokens(3, 5, EMBED)
    padding = torch.tensor([[False] * 5, [True] * 2 + [False] * 3, [True] * 5])
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    results = []
    for run in (compiled, ours):
        leaf = x.clone().requires_grad_()
        output = run(leaf, leaf, leaf, key_padding_mask=padding, is_causal=causal)[0]
        results.append((output, *torch.autograd.grad(output.square().sum(), leaf)))
    assert_close(results[0][0], results[1][0])
    assert_close(results[0][1], results[1][1], rtol=1e-4, atol=1e-5)


@pytest.mark.records
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Inductor's own imports
@pytest.mark.parametrize("name", ["positive", "trig"])
def test_inductor_has_the_gradients_of_causal_attention(name):
    """Of more than one chunk, the last of which is padded."""
    torch.compiler.reset()
    ours = RandomFeatureAttention(EMBED, HEADS, name, 64, batch_first=True)
    gradients = []
    for run in (torch.compile(ours, fullgraph=True), ours):
        x = (0.3 * tokens(2, 100, EMBED)).requires_grad_()
        run(x, x, x, is_causal=True)[0].square().sum().backward()
        gradients.append(x.grad)
    assert_close(*gradients, rtol=1e-3, atol=1e-4)


def test_a_step_exports_with_its_state():
    """`tests/deploy/test_attention.py` exports the module for any length."""
    ours = RandomFeatureAttention(EMBED, HEADS, batch_first=True).eval()
    x = tokens(2, 6, EMBED)
    state = ours.initial_state(2)
    steps = Calls(ours, lambda ours, token, state: ours.step(token, token, token, state))
    stepper = torch.export.export(steps, (x[:, 0], state)).module()
    expected = ours(x, x, x, is_causal=True)[0]
    for i in range(6):
        output, state = stepper(x[:, i], state)
        assert_close(output, expected[:, i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_empty_sequences(batch_first):
    ours = RandomFeatureAttention(EMBED, HEADS, batch_first=batch_first)
    shape = (2, 0, EMBED) if batch_first else (0, 2, EMBED)
    empty = torch.zeros(shape, requires_grad=True)
    padding = torch.zeros(2, 0, dtype=torch.bool)
    for options in ({}, {"is_causal": True}, {"key_padding_mask": padding}):
        output, weights = ours(empty, empty, empty, need_weights=True, **options)
        assert output.shape == shape
        assert weights.shape == (2, 0, 0)
    output.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in ours.parameters())
    other = tokens(2, 3, EMBED) if batch_first else tokens(3, 2, EMBED)
    output, weights = ours(empty, other, other, need_weights=True)
    assert output.shape == shape
    assert weights.shape == (2, 0, 3)
    assert ours(empty[:0], empty[:0], empty[:0])[0].shape == (0, *shape[1:])


def test_errors():
    for options, message in (
        ({"embed_dim": 0}, "embed_dim must be at least 1, got 0"),
        ({"num_heads": 3}, "embed_dim must be a multiple of num_heads=3, got 8"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"dropout": "a"}, r"dropout must be in \[0, 1\), got 'a'"),
        ({"qk_length": "a"}, "qk_length must be above 0 and finite, or None, got 'a'"),
        ({"add_bias_kv": True}, "add_bias_kv must be False, got True"),
        ({"add_zero_attn": True}, "add_zero_attn must be False, got True"),
        ({"feature_map": "sofmax"}, "must be one of .*, got 'sofmax'"),
        ({"sharpness": 1}, "angular_hybrid takes the options .*, got 'sharpness'"),
        ({"heads": 2}, "those of the feature map, got 'heads', which follows num_heads"),
        ({"dim": 2}, "those of the feature map, got 'dim', which follows embed_dim"),
    ):
        sizes = {"embed_dim": EMBED, "num_heads": HEADS}
        rejects(message, RandomFeatureAttention, **(sizes | options))
    convert = RandomFeatureAttention.from_multihead
    rejects("'dtype', which follows multihead", convert, softmax_module(), dtype=torch.float64)
    rejects(r"must be an nn\.MultiheadAttention, got Linear", convert, nn.Linear(2, 2))
    rejects("add_bias_kv must be False", convert, softmax_module(add_bias_kv=True))
    ours = RandomFeatureAttention(EMBED, HEADS, batch_first=True)
    x = tokens(2, 5, EMBED)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    for options, message in (
        ({"attn_mask": hidden[:, :2]}, r"of shape \(5, 5\), got shape \(2, 2\); linear"),
        ({"attn_mask": hidden[0]}, r"causal mask of shape \(5, 5\), got shape \(5,\); linear"),
        ({"attn_mask": tokens(5, 5)}, "None or the causal mask, got another mask of shape"),
        ({"attn_mask": tokens(5, 5), "is_causal": True}, "None or the causal mask, got another"),
        ({"attn_mask": torch.eye(5) > 0, "is_causal": True}, "or the causal mask, got another"),
        ({"attn_mask": torch.zeros(5, 5).int()}, "a bool or float tensor, got torch.int32"),
        ({"key_padding_mask": hidden[:, :3]}, r"key_padding_mask must have shape \(2, 5\), got"),
        ({"key_padding_mask": hidden.int()}, "must be a bool or float tensor, got torch.int32"),
        ({"key_padding_mask": hidden + 0.5}, "must hold only 0 and values of at most -1e4"),
        (
            {"key_padding_mask": hidden.float() - 9999},
            "must hold only 0 and values of at most -1e4",
        ),
    ):
        rejects(message, ours, x, x, x, **options)
    for inputs, message in (
        ((x[..., :4], x, x), r"query must have 3 dimensions, the last of size 8, got shape"),
        ((x, x[0], x), "key must have 3 dimensions"),
        ((x[None], x, x), "query must have 2 or 3 dimensions"),
        ((x, x, x.to("meta")), "value must be on the module's device cpu, got meta"),
        ((x, x.double(), x), "key must have the module's dtype torch.float32, got torch.float64"),
        ((x, x[:1], x[:1]), "key must have the batch size of query, 2, got 1"),
        ((x, x, x[:1]), "value must have the batch size of query, 2, got 1"),
        ((x, x, x[:, :3]), "value must have as many tokens as key, 5, got 3"),
        ((x, x[:, :0], x[:, :0]), "key must have at least one token for 5 of query, got none"),
    ):
        rejects(message, ours, *inputs)
    nested = torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)
    rejects("query must not be a nested tensor", ours, nested, nested, nested)
    message = r"query must have shape \(batch, embed_dim\), got"
    rejects(message, ours.step, x, x, x, ours.initial_state(2))
    with torch.autocast("cpu"):
        rejects(r"got torch\.float64; cast either", ours, x.double(), x, x)
    assert "embed_dim=8, num_heads=2" in repr(ours)


def test_qk_length_scales_queries_and_keys():
    """To one length from any length, in `forward`, `step` and `fit`."""
    exact = softmax_module(batch_first=True)
    module = RandomFeatureAttention.from_multihead(exact, "hyperbolic", 4096, qk_length=0.5)
    plain = RandomFeatureAttention.from_multihead(exact, "hyperbolic", 4096)
    x = tokens(2, 5, EMBED)
    query, key, value = module.project(x, x, x)
    for projected, unscaled in zip((query, key), plain.project(x, x, x)[:2], strict=True):
        assert_close(projected, 0.5 * nn.functional.normalize(unscaled, dim=-1))
    expected = nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    close(module(x, x, x)[0], exact.out_proj(expected.transpose(1, 2).flatten(-2)), 0.02)
    assert_close(module(9 * x, x, x)[0], module(x, x, x)[0], rtol=0.1, atol=0.1)
    causal = module(x, x, x, is_causal=True)[0]
    state = module.initial_state(2)
    for i in range(5):
        output, state = module.step(x[:, i], x[:, i], x[:, i], state)
        assert_close(output, causal[:, i], rtol=1e-4, atol=1e-5)
    zeros = torch.zeros(2, 5, EMBED, requires_grad=True)
    module(zeros, zeros, zeros)[0].sum().backward()
    assert zeros.grad.isfinite().all()


@pytest.mark.parametrize("name", ["positive", "softmax"])
@pytest.mark.parametrize("length", [1.0, 8.0])
def test_qk_length_leaves_a_zero_token_as_it_is(length, name):
    """Padding has no direction: no NaN, and no gradient that would drown all others."""
    module = RandomFeatureAttention(EMBED, HEADS, name, 16, qk_length=length, batch_first=True)
    x = tokens(1, 4, EMBED)
    x[0, 1] = 0
    output = module(x, x, x)[0]
    output.square().sum().backward()
    assert output.isfinite().all()
    assert 0 < module.in_proj_bias.grad.abs().max() < 1e4
