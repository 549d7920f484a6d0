"""Language models with random features in place of their softmax over all words.

A model is an LSTM whose outputs are queries and whose word vectors are the keys. It reads the same
vectors (tied: Inan et al. 2017; Press and Wolf 2017), and no bias is added: the softmax is one of
dot products alone (Hybrid Random Features, appendix I). There are two tasks: training with a few
sampled words per token, and the error of random features relative to a model's exact softmax.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments.data import words
from experiments.data.words import Corpus, frequent
from experiments.fitting import Fit, Fitting, fit, load_model
from experiments.language.proposals import (
    Proposal,
    ProposalSettings,
    distances,
    draw,
    exact_weights,
    sampled_loss,
    shares,
)
from experiments.learning import FLOPS, flops_of
from experiments.task import STRICT, Learning, Measure, Task
from training.command.files import write_atomically

_AT_ONCE = 500
_COLUMNS, _SPAN = 10, 64
"""How a text is read to measure, as the published code does."""
_MEASURED = 500
"""Test queries whose distributions are compared."""
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LanguageConfig:
    """An LSTM whose word vectors are tied to its softmax."""

    corpus: Literal["wikitext2", "ptb"] = "wikitext2"
    """The text."""
    vocabulary: int | None = Field(default=10_000, ge=2)
    """The most frequent words that are kept; the others become <unk>; null: all."""
    width: int = Field(default=200, ge=1)
    """Numbers of a word's vector, of the LSTM's state and of its output."""
    layers: int = Field(default=2, ge=1)
    """Layers of the LSTM."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of activations left out in training, before, within and after the LSTM."""
    temperature: float = Field(default=1.0, gt=0)
    """tau: logits are tau q.k."""
    length_penalty: float = Field(default=0.0, ge=0)
    """lambda of equation 105, which draws lengths of queries and keys to 1."""
    batch: int = Field(default=20, ge=1)
    """Segments of the text that are read in parallel."""
    span: int = Field(default=35, ge=1)
    """Tokens of each segment that a step reads."""
    valid: int = Field(default=10_000, ge=100)
    """Number of validation tokens, from the first."""
    test: int = Field(default=20_000, ge=100)
    """Number of test tokens, from the first."""
    fitting: Fitting = Fitting(steps=1000, learning_rate=3e-3, warmup_steps=50)
    """How it is fitted."""


class LanguageModel(nn.Module):
    """It keeps the LSTM's state between steps, so that each step continues the text."""

    memory: Tensor
    """(2, layers, batch, width): h and c after the last step."""

    def __init__(self, settings: LanguageConfig, words: int, seed: int) -> None:
        """`seed` is the seed of the initial weights."""
        super().__init__()
        width, self.layers = settings.width, settings.layers
        self.temperature = settings.temperature
        between = settings.dropout if settings.layers > 1 else 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(words, width)
            nn.init.uniform_(self.embed.weight, -0.1, 0.1)
            self.lstm = nn.LSTM(width, width, settings.layers, dropout=between)
        self.dropout = nn.Dropout(settings.dropout)
        self.register_buffer("memory", self.blank(settings.batch))

    @property
    def keys(self) -> Tensor:
        """Vectors of all words, (words, width)."""
        return self.embed.weight

    def blank(self, batch: int) -> Tensor:
        """The initial memory, (2, layers, batch, width)."""
        size = (2, self.layers, batch, self.lstm.hidden_size)
        return torch.zeros(size, device=self.keys.device)

    def forward(self, tokens: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(span, batch) and a memory -> queries (span, batch, width) and the memory after them."""
        found, state = self.lstm(self.dropout(self.embed(tokens)), (memory[0], memory[1]))
        return self.dropout(found), torch.stack(state)

    def read_on(self, tokens: Tensor, at_start: bool) -> Tensor:
        """The next tokens (span, batch) -> queries (span * batch, width), starting from the last
        memory or from the initial one.
        """
        before = torch.zeros_like(self.memory) if at_start else self.memory
        queries, after = self(tokens, before)
        self.memory = after.detach()
        return queries.flatten(0, 1)

    def logits(self, queries: Tensor) -> Tensor:
        """tau q.k: (n, width) -> (n, words)."""
        return self.temperature * queries @ self.keys.mT


def columns_of(text: Tensor, batch: int) -> Tensor:
    """A text (tokens,) as `batch` parallel segments: (tokens / batch, batch)."""
    length = len(text) // batch
    return text[: length * batch].view(batch, length).mT


def span_of(columns: Tensor, step: int, span: int) -> tuple[Tensor, Tensor, bool]:
    """The input of a step (span, batch), counted from 1, the next words, and whether the text
    starts there.
    """
    place = (step - 1) % ((len(columns) - 1) // span) * span
    return columns[place : place + span], columns[place + 1 : place + span + 1], place == 0


@torch.no_grad()
def queries_over(model: LanguageModel, text: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (n, width) over a text (tokens,) and the next words (n,), in order."""
    columns = columns_of(text, min(_COLUMNS, len(text) // 2))
    memory, found = model.blank(columns.shape[1]), []
    for part in columns[:-1].split(_SPAN):
        queries, memory = model(part, memory)
        found.append(queries)
    return torch.cat(found).transpose(0, 1).flatten(0, 1), columns[1:].mT.flatten()


def length_penalty(settings: LanguageConfig, queries: Tensor, keys: Tensor) -> Tensor:
    """lambda E(|q| - 1)^2 + lambda E(|k| - 1)^2 (Hybrid Random Features, eq 105)."""
    away = [(torch.linalg.vector_norm(u, dim=-1) - 1).square().mean() for u in (queries, keys)]
    return settings.length_penalty * (away[0] + away[1])


def full_loss(
    settings: LanguageConfig, model: LanguageModel, queries: Tensor, targets: Tensor
) -> Tensor:
    """Cross-entropy of the softmax over all words plus the length penalty."""
    loss = functional.cross_entropy(model.logits(queries), targets.flatten())
    if settings.length_penalty:
        loss = loss + length_penalty(settings, queries, model.keys)
    return loss


@torch.no_grad()
def perplexity(model: LanguageModel, queries: Tensor, targets: Tensor) -> float:
    """exp of the cross-entropy in nats."""
    total = torch.zeros((), dtype=torch.float64, device=queries.device)
    for part, own in zip(queries.split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
        total += functional.cross_entropy(model.logits(part), own, reduction="sum").double()
    return math.exp(min(float(total) / len(targets), 700.0))


def text_of(settings: LanguageConfig, data: str | None, device: str = "cpu") -> Corpus:
    """Load the text without its rare words. Raises UserError if it is not found, or damaged."""
    return frequent(words.load(settings.corpus, data), settings.vocabulary).to(device)


def check_text(settings: LanguageConfig, data: str | None) -> Corpus:
    """Load the text. Raises ValueError if it is too short for a step."""
    text = text_of(settings, data)
    least = settings.batch * (settings.span + 1)
    if len(text.train) < least:
        raise ValueError(
            f"batch times span + 1 must be at most the {len(text.train)} tokens of the text, "
            f"got {settings.batch} times {settings.span} + 1 = {least}"
        )
    return text


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SampledSoftmaxConfig(LanguageConfig):
    """Training with a few sampled words in place of all."""

    proposal: ProposalSettings | None = None
    """Sampling of words; null: no sampling, the full softmax."""
    negatives: int = Field(default=40, ge=1)
    """Words drawn for a token beside the true one."""
    correct_true: bool = True
    """Whether the true word's logit is corrected for its chance too (Jean et al. 2015), or the
    drawn words' alone (Rawat et al. 2019)."""
    uniform_share: float = Field(default=0.01, gt=0, le=1)
    """Share of the words that are drawn uniformly, so that each has a positive probability."""
    sampling_temperature: float | None = Field(default=1.0, gt=0)
    """Words are drawn in proportion to exp(this times the cosine of q and k); null: in proportion
    to exp(tau q.k), as in the softmax."""
    fit_at: int = Field(default=1, ge=1)
    """Step before which a map with fitted parameters is fitted to queries and keys, once."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SoftmaxErrorsConfig(LanguageConfig):
    """The error of an approximate softmax relative to the exact one of the same model."""

    proposal: ProposalSettings = ProposalSettings()
    """The approximation."""
    queries: int = Field(default=500, ge=1)
    """Outputs for test tokens that are measured, evenly spaced."""
    length: float | None = Field(default=None, gt=0)
    """Length that queries and keys are scaled to; null: unchanged."""
    draws: int = Field(default=10, ge=1)
    """Draws of the random vectors; errors are means over them."""


def _fit(
    learning: Learning, whole: nn.Module, model: LanguageModel, text: Corpus,
    loss: Callable[[Tensor, Tensor, int], Tensor],
    before: Callable[[int], object] = lambda step: None,
) -> Fit:  # fmt: skip
    """Train a module with a language model; `loss` is of queries (n, d), true words (n,) and the
    step."""
    settings: LanguageConfig = learning.settings
    columns = columns_of(text.train, settings.batch)

    def loss_of(step: int) -> Tensor:
        tokens, targets, at_start = span_of(columns, step, settings.span)
        return loss(model.read_on(tokens, at_start), targets.flatten(), step)

    def measure() -> dict[str, float]:
        return {"perplexity": perplexity(model, *queries_over(model, text.valid[: settings.valid]))}

    return fit(whole, loss_of, learning, measure, before)


class Sampling(nn.Module):
    """A model and the proposal that samples its negatives."""

    def __init__(self, settings: SampledSoftmaxConfig, text: Corpus, seed: int) -> None:
        super().__init__()
        self.settings = settings
        self.model = LanguageModel(settings, len(text.words), seed)
        self.proposal: Proposal | None = None
        if settings.proposal is not None:
            self.proposal = Proposal(settings.proposal, settings.width, text.counts(), seed)

    def seen(self, vectors: Tensor) -> Tensor:
        """Queries or keys (n, d) scaled for the proposal: exp of their product is its kernel."""
        own = self.settings.sampling_temperature
        if own is None:
            return vectors * self.settings.temperature**0.5
        return functional.normalize(vectors, dim=-1) * own**0.5

    @torch.no_grad()
    def weights(self, queries: Tensor) -> Tensor:
        """Weights of all words for queries (n, d): (n, words)."""
        if self.proposal is None:
            return self.model.logits(queries).softmax(-1)
        return self.proposal.weights(self.seen(queries), self.seen(self.model.keys))

    def loss(self, queries: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        """The loss for queries (n, d) and true words (n,)."""
        if self.proposal is None:
            return full_loss(self.settings, self.model, queries, targets)
        own, keys = self.settings, self.model.keys
        drawn = draw(
            self.weights(queries), targets, own.negatives, generator, own.uniform_share,
            among_all=own.correct_true,
        )  # fmt: skip
        loss = sampled_loss(queries, keys, targets, drawn, own.temperature, own.correct_true)
        if own.length_penalty:
            loss = loss + length_penalty(own, queries, keys)
        return loss


def check_sampled_softmax(settings: SampledSoftmaxConfig, data: str | None) -> None:
    """UserError where the text is not found, ValueError where settings do not fit."""
    text = check_text(settings, data)
    if settings.proposal is not None:
        Proposal(settings.proposal, settings.width, text.counts(), 0)


def learn_sampled_softmax(learning: Learning) -> dict[str, float]:
    """Train a model and measure it with the full softmax."""
    settings: SampledSoftmaxConfig = learning.settings
    text = text_of(settings, learning.data, learning.device)
    whole = Sampling(settings, text, learning.seed).to(learning.device)
    model, proposal = whole.model, whole.proposal
    if learning.start is not None:
        load_model(learning.start, whole, lambda name: name.startswith("proposal."))

    def loss(queries: Tensor, targets: Tensor, step: int) -> Tensor:
        generator = torch.Generator(learning.device).manual_seed(learning.seed * 1_000_003 + step)
        return whole.loss(queries, targets, generator)

    def before(step: int) -> None:
        if step == settings.fit_at and proposal is not None:
            with torch.no_grad():
                queries = queries_over(model, text.valid[: settings.valid])[0]
                proposal.fit(whole.seen(queries), whole.seen(model.keys))

    done = _fit(learning, whole, model, text, loss, before)
    queries, targets = queries_over(model, text.test[: settings.test])
    places = torch.linspace(0, len(queries) - 1, min(_MEASURED, len(queries))).long()
    some = queries[places]
    with torch.no_grad():
        exact = model.logits(some).softmax(-1)
        away = 0.5 * (exact - shares(whole.weights(some))).abs().sum(-1).mean()
    return {
        "perplexity": perplexity(model, queries, targets),
        "valid_perplexity": done.rows[-1]["perplexity"],
        "distance": float(away),
        "features": settings.width if proposal is None else proposal.features,
        "flops": flops_of(lambda: whole.weights(some))[0] / len(some),
    }


def check_softmax_errors(settings: SoftmaxErrorsConfig, data: str | None) -> None:
    """UserError where the text is not found, ValueError where settings do not fit."""
    Proposal(settings.proposal, settings.width, check_text(settings, data).counts(), 0)


@torch.no_grad()
def learn_softmax_errors(learning: Learning) -> dict[str, float]:
    """Measure the model from which the variant starts, or train it with the full softmax first.

    `lengths.csv` in the variant's folder has quantiles of the lengths of its queries and keys
    (figures 7 and 9 of Hybrid Random Features). Errors are means over queries and draws.
    """
    settings: SoftmaxErrorsConfig = learning.settings
    text = text_of(settings, learning.data, learning.device)
    model = LanguageModel(settings, len(text.words), learning.seed).to(learning.device)
    if learning.start is not None:
        load_model(learning.start, model)
        model.eval()
    else:
        with torch.enable_grad():
            _fit(
                learning, model, model, text,
                lambda queries, targets, _: full_loss(settings, model, queries, targets),
            )  # fmt: skip
    queries, targets = queries_over(model, text.test[: settings.test])
    lengths = [torch.linalg.vector_norm(vectors, dim=-1) for vectors in (queries, model.keys)]
    quantiles = [own.cpu().quantile(torch.tensor(_QUANTILES)).tolist() for own in lengths]
    lines = [f"{at:g},{q:.6g},{k:.6g}" for at, q, k in zip(_QUANTILES, *quantiles, strict=True)]
    table = "\n".join(["quantile,queries,keys", *lines, ""])
    write_atomically(learning.folder / "lengths.csv", table.encode())

    proposal = Proposal(settings.proposal, settings.width, text.counts(), learning.seed)
    proposal = proposal.to(learning.device)
    keys = _scaled(model.keys, settings)
    fitted_to = queries_over(model, text.valid[: settings.valid])[0]
    proposal.fit(_scaled(fitted_to, settings), keys)
    places = torch.linspace(0, len(queries) - 1, min(settings.queries, len(queries))).long()
    chosen = _scaled(queries[places], settings)
    features, draws = proposal.feature_map, 1 if proposal.feature_map is None else settings.draws
    generator = torch.Generator().manual_seed(learning.seed)
    sums = torch.zeros(3, dtype=torch.float64, device=queries.device)
    for _ in range(draws):
        if features is not None:
            features.redraw(generator)
        for part in chosen.split(_AT_ONCE):
            weights = proposal.weights(part, keys)
            far, farthest = distances(shares(exact_weights(part, keys)), shares(weights))
            negative = (weights < 0).double().mean(-1)
            sums += torch.stack([found.sum() for found in (far, farthest, negative)])
    wasserstein, ks, negative = (sums / (draws * len(chosen))).tolist()
    return {
        "wasserstein": wasserstein, "ks": ks, "negative": negative,
        "features": proposal.features,
        "flops": flops_of(lambda: features and features.scaled_queries(chosen[:1]))[0],
        "perplexity": perplexity(model, queries, targets),
        "query_length": float(lengths[0].mean()), "key_length": float(lengths[1].mean()),
    }  # fmt: skip


def _scaled(vectors: Tensor, settings: SoftmaxErrorsConfig) -> Tensor:
    """Queries or keys (n, d) times the root of tau, so that their products are the logits."""
    if settings.length is not None:
        vectors = settings.length * functional.normalize(vectors, dim=-1)
    return settings.temperature**0.5 * vectors


SAMPLED_SOFTMAX = Task(
    name="sampled_softmax",
    settings=SampledSoftmaxConfig,
    learn=learn_sampled_softmax,
    check=check_sampled_softmax,
    measures=(
        Measure("perplexity", "test perplexity", form=".1f"),
        Measure("valid_perplexity", "validation perplexity", form=".1f"),
        Measure("distance", "from the softmax", "total variation"),
        Measure("features", "numbers a vector", "F", ",.0f"),
        Measure("flops", "weights of all words, FLOPs", "a token", FLOPS),
    ),
)
SOFTMAX_ERRORS = Task(
    name="softmax_errors",
    settings=SoftmaxErrorsConfig,
    learn=learn_softmax_errors,
    check=check_softmax_errors,
    measures=(
        Measure("wasserstein", "1d-Wasserstein", "classes", ".1f"),
        Measure("ks", "Kolmogorov-Smirnov", form=".4f"),
        Measure("negative", "negative", "share of estimates"),
        Measure("features", "numbers a vector", "F", ",.0f"),
        Measure("flops", "features, FLOPs", "a query", FLOPS),
        Measure("perplexity", "the model's perplexity", "test", ".1f"),
        Measure("query_length", "length of queries", "mean", ".2f", higher_is_better=True),
        Measure("key_length", "length of keys", "mean", ".2f", higher_is_better=True),
    ),
)
