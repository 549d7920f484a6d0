"""Settings and measures of language models and of softmax sampling."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from experiments.fitting import Fitting
from experiments.task import Measure, Task

__all__ = [
    "SAMPLED_SOFTMAX", "SOFTMAX_ERRORS", "LanguageConfig", "ProposalSettings",
    "SampledSoftmaxConfig", "SoftmaxErrorsConfig",
]  # fmt: skip

_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ProposalSettings:
    """The approximation of the softmax over all words."""

    feature_map: str = "softmax"
    """One of `attention.available()`; softmax: the exact kernel; uniform: all words alike; unigram:
    words as often as in the text."""
    num_features: int = Field(default=64, ge=1)
    """Random vectors m."""
    num_lambda_features: int | None = Field(default=None, ge=1)
    """Random vectors n of a hybrid's coefficient."""
    projection: str = "iid"
    """Coupling of the random vectors: iid, orthogonal, simplex, ..."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Other options of the feature map."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class LanguageConfig:
    """An LSTM whose word vectors are tied to its softmax."""

    corpus: Literal["wikitext2", "ptb"] = "wikitext2"
    """Which text."""
    vocabulary: int | None = Field(default=10_000, ge=2)
    """The most frequent words that are kept; the others become <unk>; null: all."""
    width: int = Field(default=200, ge=1)
    """Numbers of a word's vector, of the LSTM's state and of its output."""
    layers: int = Field(default=2, ge=1)
    """Of the LSTM."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of activations left out in training, before, within and after the LSTM."""
    temperature: float = Field(default=1.0, gt=0)
    """tau: logits are tau q.k."""
    length_penalty: float = Field(default=0.0, ge=0)
    """lambda of equation 105, which draws lengths of queries and keys to 1."""
    batch: int = Field(default=20, ge=1)
    """Stretches of the text that are read at the same time."""
    span: int = Field(default=35, ge=1)
    """Tokens of each that a step reads."""
    valid: int = Field(default=10_000, ge=100)
    """Validation tokens, the first."""
    test: int = Field(default=20_000, ge=100)
    """Test tokens, the first."""
    fitting: Fitting = Fitting(steps=1000, learning_rate=3e-3, warmup_steps=50)
    """How it is fitted."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SoftmaxErrorsConfig(LanguageConfig):
    """The error of an approximate softmax relative to the exact one of the same model."""

    proposal: ProposalSettings = ProposalSettings()
    """What approximates it."""
    queries: int = Field(default=500, ge=1)
    """Outputs for test tokens that are measured, evenly spaced."""
    length: float | None = Field(default=None, gt=0)
    """Queries and keys are brought to this length before; null: as they are."""
    draws: int = Field(default=10, ge=1)
    """Of the random vectors; errors are means over them."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SampledSoftmaxConfig(LanguageConfig):
    """Training with a few sampled words in place of all."""

    proposal: ProposalSettings | None = None
    """Which words; null: all, the full softmax."""
    negatives: int = Field(default=40, ge=1)
    """Words drawn for a token beside the true one."""
    correct_true: bool = True
    """Whether the true word's logit is corrected for its chance too (Jean et al. 2015), or the
    drawn words' alone (Rawat et al. 2019)."""
    uniform_share: float = Field(default=0.01, gt=0, le=1)
    """Of the words drawn, those that are drawn from all alike: so each has a chance."""
    sampling_temperature: float | None = Field(default=1.0, gt=0)
    """Words are drawn in proportion to exp(this times the cosine of q and k); null: in proportion
    to exp(tau q.k), as the softmax has them."""
    fit_at: int = Field(default=1, ge=1)
    """Step before which a map with parameters of its own is fitted to queries and keys, once."""


SOFTMAX_ERRORS = Task(
    name="softmax_errors",
    settings=SoftmaxErrorsConfig,
    module="experiments.language.softmax_errors",
    measures=(
        Measure("wasserstein", "1d-Wasserstein", "classes", higher_is_better=False, form=".1f"),
        Measure("ks", "Kolmogorov-Smirnov", "", higher_is_better=False, form=".4f"),
        Measure("negative", "negative", "share of estimates", higher_is_better=False),
        Measure("features", "numbers a vector", "F", higher_is_better=False, form=",.0f"),
        Measure("flops", "features, FLOPs", "a query", higher_is_better=False, form=",.0f"),
        Measure("perplexity", "the model's perplexity", "test", higher_is_better=False, form=".1f"),
        Measure("query_length", "length of queries", "mean", form=".2f"),
        Measure("key_length", "length of keys", "mean", form=".2f"),
    ),
)
SAMPLED_SOFTMAX = Task(
    name="sampled_softmax",
    settings=SampledSoftmaxConfig,
    module="experiments.language.sampled_softmax",
    measures=(
        Measure("perplexity", "test perplexity", "", higher_is_better=False, form=".1f"),
        Measure("valid_perplexity", "validation perplexity", "", higher_is_better=False,
                form=".1f"),
        Measure("distance", "from the softmax", "total variation", higher_is_better=False),
        Measure("features", "numbers a vector", "F", higher_is_better=False, form=",.0f"),
        Measure("flops", "weights of all words, FLOPs", "a token", higher_is_better=False,
                form=",.0f"),
    ),
)  # fmt: skip
