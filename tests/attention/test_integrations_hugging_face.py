"""Hugging Face models with linear attention; models have random weights."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from attention import integrations
from tests.attention.cases import rejects

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library, about its own names
SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {**SMALL, "intermediate_size": 64}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("LMHeadModel", {**SMALL, "n_positions": 64, "scale_attn_by_inverse_layer_idx": True}),
    "Llama": ("ForCausalLM", {**WIDE, "num_key_value_heads": 2}),
    "GPTNeoX": ("ForCausalLM", WIDE),
    "Mistral": ("ForCausalLM", {**WIDE, "num_key_value_heads": 1, "sliding_window": 40}),
    "Gemma3": ("ForCausalLM", {**WIDE, "num_key_value_heads": 2, "head_dim": 8}),
    "OPT": ("ForCausalLM", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
}
BART = {"vocab_size": 50, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2}
BART |= {f"{part}_{size}": n for part in ("encoder", "decoder") for size, n in
         (("attention_heads", 4), ("ffn_dim", 64))}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("Model", WIDE),
    "DistilBert": ("Model", {"vocab_size": 50, "dim": 32, "n_layers": 2, "n_heads": 4}),
    "Bart": ("ForConditionalGeneration", BART),
}
IDS = torch.randint(3, 49, (3, 20), generator=torch.Generator().manual_seed(0))
LEFT = (torch.arange(20) >= torch.tensor([[7], [3], [0]])).long()
GREEDY = {
    "max_new_tokens": 6,
    "do_sample": False,
    "pad_token_id": 0,
    "eos_token_id": None,
    "return_dict_in_generate": True,
    "output_scores": True,
}


def model(name: str, **options: Any) -> Any:
    kind, settings = (DECODERS | OTHERS)[name]
    config_class = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, config_class)(**settings, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = getattr(transformers, name + kind)(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2)  # weights of larger scores
    return made


def logits(made: nn.Module, **inputs: Any) -> Tensor:
    with torch.no_grad():
        return made(**inputs)[0]


@pytest.mark.parametrize("name", [*DECODERS, *OTHERS])
def test_exact_attention_in_its_place_is_the_model(name: str) -> None:
    """With padding on the left and right: scale, masks and heads are those of the library."""
    original = model(name)
    exact = integrations.replace(copy.deepcopy(original), "softmax")
    for padding in (LEFT, LEFT.flip(1), None):
        inputs = {"input_ids": IDS, "attention_mask": padding}
        shown = torch.ones(3, 20, dtype=torch.bool) if padding is None else padding.bool()
        expected = logits(original, **inputs)
        assert_close(logits(exact, **inputs)[shown], expected[shown], rtol=1e-4, atol=1e-4)
    if name not in ("Bert", "DistilBert"):
        inputs = {"inputs": IDS, "attention_mask": LEFT, **GREEDY}
        assert torch.equal(
            exact.generate(**inputs).sequences, original.generate(**inputs).sequences
        )


@pytest.mark.parametrize("name", [*DECODERS, "Bart"])
@pytest.mark.parametrize("feature_map", ["positive", "trig"])
def test_generate_with_a_state_equals_full_attention(name: str, feature_map: str) -> None:
    made = integrations.replace(model(name), feature_map, num_features=32)
    inputs = {"attention_mask": LEFT.flip(1) if name == "Bart" else LEFT, **GREEDY}
    stepped = made.generate(IDS, **inputs)
    whole = made.generate(IDS, use_cache=False, **inputs)
    assert torch.equal(stepped.sequences, whole.sequences)
    for step, full in zip(stepped.scores, whole.scores, strict=True):
        assert_close(step, full, rtol=0, atol=1e-4)
    cache = getattr(stepped, "cache", None) or stepped.past_key_values
    cache = getattr(cache, "self_attention_cache", cache)
    for layer in cache.layers:
        assert layer.get_seq_length() == (6 if name == "Bart" else 25)
        assert layer.keys is None
        assert layer.state.sums.values.shape[-2:] == (32 if feature_map == "positive" else 64, 8)
    beams = [made.generate(IDS, num_beams=3, use_cache=use, **inputs) for use in (True, False)]
    assert torch.equal(beams[0].sequences, beams[1].sequences)


@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_packed_sequences_do_not_see_each_other(name: str) -> None:
    places = torch.cat((torch.arange(8), torch.arange(12))).expand(3, -1)
    inputs = {"input_ids": IDS, "position_ids": places, "use_cache": False}
    original = model(name)
    exact = integrations.replace(copy.deepcopy(original), "softmax")
    assert_close(logits(exact, **inputs), logits(original, **inputs), rtol=1e-4, atol=1e-4)
    linear = integrations.replace(original, "positive", num_features=16)
    packed = logits(linear, **inputs)
    for part in (slice(0, 8), slice(8, 20)):
        alone = logits(linear, input_ids=IDS[:, part], use_cache=False)
        assert_close(packed[:, part], alone, rtol=1e-4, atol=1e-5)


def test_a_vision_transformer() -> None:
    config = transformers.ViTConfig(**WIDE, image_size=16, patch_size=4)
    original = transformers.ViTModel(config).eval()
    image = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = logits(original, pixel_values=image)
    exact = integrations.replace(copy.deepcopy(original), "softmax")
    assert_close(logits(exact, pixel_values=image), expected, rtol=1e-4, atol=1e-5)
    integrations.replace(original, "trig", num_features=4096)
    assert_close(logits(original, pixel_values=image), expected, rtol=0.02, atol=0.02)


def test_weights_go_both_ways_and_restore(tmp_path: Path) -> None:
    config = transformers.GPT2Config(**DECODERS["GPT2"][1])
    softmax, other = (transformers.GPT2LMHeadModel(config).eval() for _ in range(2))
    linear = integrations.replace(other, "oprf", num_features=16)
    before = logits(softmax, input_ids=IDS)
    linear.load_state_dict(softmax.state_dict())
    softmax.load_state_dict(linear.state_dict())
    assert torch.equal(logits(softmax, input_ids=IDS), before)  # of the same configuration
    maps = integrations.feature_maps(linear)
    assert list(maps) == ["transformer.h.0.attn", "transformer.h.1.attn"]
    first, second = maps.values()
    assert not torch.equal(first.omega, second.omega)
    unfitted = logits(linear, input_ids=IDS)
    assert integrations.fit(linear, IDS) is linear
    fitted = logits(linear, input_ids=IDS)
    assert not torch.allclose(fitted, unfitted)
    again = integrations.replace(copy.deepcopy(softmax), "oprf", num_features=16)
    for name, part in integrations.feature_maps(again).items():
        part.load_state_dict(maps[name].state_dict())
    assert torch.equal(logits(again, input_ids=IDS), fitted)
    linear.save_pretrained(tmp_path)
    stored = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    assert_close(logits(stored, input_ids=IDS), before, rtol=1e-4, atol=1e-5)
    for made in (copy.deepcopy(linear), linear):
        assert integrations.restore(made) is made
        assert_close(logits(made, input_ids=IDS), before, rtol=1e-4, atol=1e-5)
        assert integrations.feature_maps(made) == {}
        assert list(made.state_dict()) == list(softmax.state_dict())


def test_fit_leaves_out_padding() -> None:
    made = [integrations.replace(model("Bert"), "oprf", num_features=16) for _ in range(2)]
    integrations.fit(made[0], IDS[:1, :13])
    integrations.fit(made[1], IDS[:1], attention_mask=(torch.arange(20) < 13).long()[None])
    for one, other in zip(*(integrations.feature_maps(m).values() for m in made), strict=True):
        assert_close(one.A, other.A, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["GPT2", "Llama"])
def test_training(name: str) -> None:
    """Gradients, in bfloat16 too, with dropout of attention and checkpoints of activations."""
    dropout = {"attn_pdrop": 0.5} if name == "GPT2" else {"attention_dropout": 0.5}
    made = integrations.replace(model(name, **dropout), "positive", num_features=16).train()
    inputs = {"input_ids": IDS, "attention_mask": LEFT, "labels": IDS}
    outputs = []
    for _ in range(2):
        loss = made(**inputs).loss
        loss.backward()
        outputs.append(float(loss))
    assert outputs[0] != outputs[1]
    weight = "transformer.h.0.attn.c_attn" if name == "GPT2" else "model.layers.0.self_attn.k_proj"
    assert made.get_parameter(f"{weight}.weight").grad.abs().max() > 0
    made.gradient_checkpointing_enable()
    made(**inputs).loss.backward()
    low = made.eval().to(torch.bfloat16)
    assert low(**inputs).logits.dtype == torch.bfloat16
    assert next(iter(integrations.feature_maps(low).values())).omega.dtype == torch.float32


def test_it_compiles() -> None:
    made = model("Bert")
    made.encoder.layer = made.encoder.layer[:1]  # half the time
    integrations.replace(made, "positive", num_features=16)
    torch.compiler.reset()
    compiled = torch.compile(made, backend="aot_eager")
    assert_close(logits(compiled, input_ids=IDS), logits(made, input_ids=IDS))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {**SMALL, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    t5 = transformers.T5Model(transformers.T5Config(**sizes))
    rejects("must add no bias to its scores, .*relative_attention_bias", integrations.replace, t5)
    falcon = transformers.FalconConfig(**SMALL, alibi=True)
    rejects("got alibi=True", integrations.replace, transformers.FalconForCausalLM(falcon))
    bloom = transformers.BloomModel(
        transformers.BloomConfig(vocab_size=50, hidden_size=32, n_head=4)
    )
    rejects("must have attention of Hugging Face.*, got BloomModel", integrations.replace, bloom)
    neo = transformers.GPTNeoConfig(
        vocab_size=50, hidden_size=32, num_layers=1, num_heads=4, attention_types=[[["global"], 1]]
    )
    rejects("GPTNeoModel does not support", integrations.replace, transformers.GPTNeoModel(neo))
    made = model("GPT2")
    rejects("oprf takes the options A, .*got 'depth'", integrations.replace, made, depth=3)
    assert made.config._attn_implementation != "foveate"
    integrations.replace(made, "positive", num_features=8)
    rejects("must be softmax: call restore first", integrations.replace, made)
    square = torch.zeros(3, 1, 20, 20)
    rejects(r"attention_mask must be .*, got torch.float32 of shape \(3, 1, 20, 20\)", made,
            IDS, attention_mask=square)  # fmt: skip
    rejects("cache_implementation must be None", made.generate, IDS, cache_implementation="static",
            **GREEDY)  # fmt: skip
    window = integrations.replace(model("Mistral"), "positive", num_features=8)
    window.config.sliding_window = 12
    rejects("got another, such as a sliding window shorter than the sequence", window, IDS)
    gemma = {**WIDE, "num_key_value_heads": 2, "head_dim": 8}
    capped = transformers.Gemma2Model(transformers.Gemma2Config(**gemma)).eval()
    integrations.replace(capped, "positive", num_features=8)
    rejects("must use no softcap, .* got a cap of the scores in Gemma2Attention", capped, IDS)
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    rejects("version 5.5 or later, got 4.57.6", integrations.replace, model("GPT2"))
