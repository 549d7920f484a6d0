"""Two tasks of language models: training with a few sampled words per token, and the error of
random features' softmax over all words relative to a model's exact softmax.
"""

from collections.abc import Callable

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments.data.words import Corpus
from experiments.fitting import Fit, fit, load_model
from experiments.language.model import (
    LanguageConfig,
    LanguageModel,
    check_text,
    columns_of,
    full_loss,
    length_penalty,
    perplexity,
    queries_over,
    span_of,
    text_of,
)
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

_MEASURED = 500
"""Test queries whose distributions are compared."""
_QUERIES_AT_ONCE = 500
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, kw_only=True, config=STRICT)
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


@dataclass(frozen=True, kw_only=True, config=STRICT)
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
        tokens, targets, anew = span_of(columns, step, settings.span)
        return loss(model.read_on(tokens, anew), targets.flatten(), step)

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
        for part in chosen.split(_QUERIES_AT_ONCE):
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
