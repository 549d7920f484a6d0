"""Training of a language model with a few sampled words per token, by sampling method."""

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments.data.words import Corpus
from experiments.fitting import fit, load_model
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
    draw,
    make_proposal,
    sampled_loss,
    shares,
)
from experiments.learning import FLOPS, flops_of
from experiments.task import STRICT, Learning, Measure, Task

_MEASURED = 500
"""Test queries whose distributions are compared."""


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


class Sampling(nn.Module):
    """A model and the proposal that samples its negatives."""

    def __init__(self, settings: SampledSoftmaxConfig, text: Corpus, seed: int) -> None:
        super().__init__()
        self.settings = settings
        self.model = LanguageModel(settings, len(text.words), seed)
        self.proposal: Proposal | None = None
        if settings.proposal is not None:
            counts = text.counts()
            self.proposal = make_proposal(settings.proposal, settings.width, counts, seed)

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


def check(settings: SampledSoftmaxConfig, data: str | None) -> None:
    """UserError where the text is not found, ValueError where settings do not fit."""
    text = check_text(settings, data)
    if settings.proposal is not None:
        make_proposal(settings.proposal, settings.width, text.counts(), 0)


def learn(learning: Learning) -> dict[str, float]:
    """Train a model and measure it with the full softmax."""
    settings: SampledSoftmaxConfig = learning.settings
    text = text_of(settings, learning.data, learning.device)
    whole = Sampling(settings, text, learning.seed).to(learning.device)
    model = whole.model
    if learning.start is not None:
        load_model(learning.start, whole, lambda name: name.startswith("proposal."))
    columns = columns_of(text.train, settings.batch)

    def loss(step: int) -> Tensor:
        tokens, targets, anew = span_of(columns, step, settings.span)
        generator = torch.Generator(learning.device).manual_seed(learning.seed * 1_000_003 + step)
        return whole.loss(model.read_on(tokens, anew), targets.flatten(), generator)

    def before(step: int) -> None:
        if step == settings.fit_at and whole.proposal is not None:
            with torch.no_grad():
                queries = queries_over(model, text.valid[: settings.valid])[0]
                whole.proposal.fit(whole.seen(queries), whole.seen(model.keys))

    def measure() -> dict[str, float]:
        return {"perplexity": perplexity(model, *queries_over(model, text.valid[: settings.valid]))}

    done = fit(whole, loss, learning, measure, before)
    return _measured(whole, text) | {"valid_perplexity": done.rows[-1]["perplexity"]}


@torch.no_grad()
def _measured(whole: Sampling, text: Corpus) -> dict[str, float]:
    queries, targets = queries_over(whole.model, text.test[: whole.settings.test])
    places = torch.linspace(0, len(queries) - 1, min(_MEASURED, len(queries))).long()
    some = queries[places]
    exact = whole.model.logits(some).softmax(-1)
    away = 0.5 * (exact - shares(whole.weights(some))).abs().sum(-1).mean()
    proposal = whole.proposal
    return {
        "perplexity": perplexity(whole.model, queries, targets),
        "distance": float(away),
        "features": whole.settings.width if proposal is None else proposal.features,
        "flops": flops_of(lambda: whole.weights(some))[0] / len(some),
    }


SAMPLED_SOFTMAX = Task(
    name="sampled_softmax",
    settings=SampledSoftmaxConfig,
    learn=learn,
    check=check,
    measures=(
        Measure("perplexity", "test perplexity", form=".1f"),
        Measure("valid_perplexity", "validation perplexity", form=".1f"),
        Measure("distance", "from the softmax", "total variation"),
        Measure("features", "numbers a vector", "F", ",.0f"),
        Measure("flops", "weights of all words, FLOPs", "a token", FLOPS),
    ),
)
