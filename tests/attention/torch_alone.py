"""Use `attention` where nothing but PyTorch is installed; run by `.ci/run` and by a test.

    python tests/attention/torch_alone.py

Fails where something needs more, unless it says in a sentence what to install.
"""

from collections.abc import Callable

import torch
from torch import nn

import attention
from attention import *  # noqa: F403
from attention import compositional, integrations, theory

SKLEARN = 'pip install "foveate[sklearn]"'


def use_every_map() -> None:
    x, y, v = torch.rand(3, 2, 9, 4, generator=torch.Generator().manual_seed(0)) / 2
    omega = [[0.1 * i - 0.3 * j for j in range(4)] for i in range(5)]
    for name in attention.available():
        fm = attention.feature_map(name, 4, 5, heads=2)
        if name != "clustered_hybrid":
            fm.fit(x, y)
        assert fm.attend(x, y, v).isfinite().all()
        assert fm.attend(x, y, v, causal=True).isfinite().all()
        assert fm.token_scores(x, y).shape == (2, 9)
        fm.reset_parameters()
        attention.diagnose(fm, x, y)
        attention.attention_matrix(fm, x, y)
    attention.feature_map("positive", 4, 5, projection=omega).queries(x)
    attention.feature_map("oprf", 4, 5, heads=2, A=[-0.1, -0.2]).queries(x)
    attention.feature_map("complex_exponential", 4, 5, A=[1, 2j, 1, -1]).queries(x)
    attention.feature_map("clustered_hybrid", 4, 5, query_centers=omega[:2], key_centers=omega[2:4])
    for name in attention.available_projections():
        assert attention.projection(name, 6, 4).shape == (6, 4)


def use_modules() -> None:
    tokens = torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))
    softmax = nn.MultiheadAttention(8, 2, batch_first=True)
    layer = attention.RandomFeatureAttention.from_multihead(softmax).fit(tokens, tokens)
    layer(tokens, tokens, tokens, is_causal=True)[0].sum().backward()
    token = tokens[:, 0]
    layer.step(token, token, token, layer.initial_state(batch=2))
    for rule in ("sum", "delta"):
        memory = attention.LinearMemory(8, 8, "trig", 6, rule=rule)
        memory.unroll(memory.initial_state(), tokens, tokens, tokens)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    integrations.replace(decoder, "trig", num_features=6)(tokens, tokens)
    integrations.restore(decoder)
    attention.ExactSoftmax(8).attend(tokens, tokens, tokens)
    attention.softmax_token_scores(tokens, tokens)


def use_theory() -> None:
    x, y = [0.3, -0.2], [0.1, 0.4]
    options = {
        "clustered_hybrid": {"query_centers": [x], "key_centers": [y]},
        "complex_exponential": {"A": [1.0, 2j]},
        "geometric_plus": {"shift": [-1, -1]},
        "poisson_plus": {"shift": -1.0},
    }
    for name in set(attention.available()) - {"elu", "harmonic", "relu"}:
        error = theory.mse(name, x, y, 8, **options.get(name, {}))
        assert error.dtype == torch.float64
        assert error >= 0
    for coupling in ("iid", "orthogonal", "simplex"):
        assert theory.rf_conformity(coupling, 1.0, 8) > 1
    assert 0 < theory.harmonic_rms_error(5) < theory.harmonic_tail(5) < 1e-2
    theory.expected_max_error_bound("trig", 3, 2.0, 100)


def use_compositional_bounds() -> None:
    assert compositional.sufficient_features(0.1, 0.05) > 700
    assert compositional.excess_loss(1.0, 1.0, 100, 100) > 0


def says_what_to_install(use: Callable[[], object], sentence: str) -> None:
    said = None
    try:
        use()
    except ImportError as error:
        said = str(error)
    assert said == sentence, f"{sentence!r} expected, got {said!r}"


def refuse_in_a_sentence() -> None:
    x = torch.rand(9, 4)
    fit = attention.feature_map("clustered_hybrid", 4, 5).fit
    says_what_to_install(
        lambda: fit(x, x), f"fit of clustered_hybrid without centres needs scikit-learn: {SKLEARN}"
    )
    for use in (lambda: attention.RandomFeatures, lambda: __import__("attention.estimators")):
        says_what_to_install(use, f"RandomFeatures needs scikit-learn: {SKLEARN}")
    says_what_to_install(
        lambda: compositional.CompositionalFeatures,
        f"CompositionalFeatures needs scikit-learn: {SKLEARN}",
    )
    for use in (
        lambda: compositional.Skeleton,
        lambda: compositional.skeleton,
        lambda: __import__("attention.compositional.sampling"),
    ):
        says_what_to_install(use, f"attention.compositional needs NumPy: {SKLEARN}")


if __name__ == "__main__":
    use_every_map()
    use_modules()
    use_theory()
    use_compositional_bounds()
    refuse_in_a_sentence()
