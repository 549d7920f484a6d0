"""Attention by other libraries, for timing beside ours; each is optional and absent by default.

performer-pytorch 1.1.4 (MIT): FAVOR+; its causal form without the CUDA extension.
pytorch-fast-transformers 0.4 (MIT): FAVOR+; its build needs a compiler.
flash-linear-attention 0.6 (MIT): Triton kernels for causal products, on a GPU.
"""

import contextlib
import io
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(batch, heads, L, d) each -> (batch, heads, L, d), with the d**-0.5 of Transformers."""

FEATURES = 256
"""Random features that both Performers are given."""


def peers(dim: int, causal: bool, device: str) -> tuple[dict[str, Attention], list[str]]:
    """Return the importable peers by name, and a note for each peer that cannot be imported."""
    found: dict[str, Attention] = {}
    notes = []
    builders: dict[str, Callable[[int, bool, str], Attention]] = {
        f"performer-pytorch m={FEATURES}": _performer_pytorch,
        f"fast-transformers m={FEATURES}": _fast_transformers,
    }
    if causal and torch.device(device).type == "cuda":
        builders["flash-linear-attention, ELU"] = _flash
    for name, build in builders.items():
        try:
            # Imported by name: their messages and deprecation warnings are not ours to print.
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                found[name] = build(dim, causal, device)
        except ImportError as error:
            notes.append(f"{name} is left out: {error}")
    found["scaled_dot_product_attention"] = lambda q, k, v: functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal
    )
    return found, notes


def _performer_pytorch(dim: int, causal: bool, device: str) -> Attention:
    library: Any = import_module("performer_pytorch")
    attention: Attention = library.FastAttention(dim, FEATURES, causal=causal).to(device)
    return attention


def _fast_transformers(dim: int, causal: bool, device: str) -> Attention:
    maps: Any = import_module("fast_transformers.feature_maps")
    masking: Any = import_module("fast_transformers.masking")
    attentions: Any = import_module("fast_transformers.attention")
    # It counts sines and cosines, or exp(+-), as two: 256 features either way.
    features = maps.Favor.factory(n_dims=FEATURES)
    kind = attentions.CausalLinearAttention if causal else attentions.LinearAttention
    module = kind(dim, feature_map=features).to(device).eval()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, length = q.shape[0], q.shape[-2]
        lengths = masking.LengthMask(torch.full((batch,), length, device=q.device), length)
        full = masking.TriangularCausalMask(length, device=q.device) if causal else (
            masking.FullMask(length, device=q.device)
        )  # fmt: skip
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        output: Tensor = module(q, k, v, full, lengths, lengths)
        return output.transpose(1, 2)

    return attend


def _flash(dim: int, causal: bool, device: str) -> Attention:
    """Features ELU(x) + 1 (Katharopoulos et al. 2020). Our maps use its kernels themselves in
    bfloat16 (`attention.flash`)."""
    chunked = import_module("fla.ops.linear_attn").chunk_linear_attn

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Its order is (batch, L, heads, d).
        given = (functional.elu(q) + 1, functional.elu(k) + 1, v)
        output: Tensor = chunked(*(t.transpose(1, 2).contiguous() for t in given), scale=1.0)[0]
        return output.transpose(1, 2)

    return attend
