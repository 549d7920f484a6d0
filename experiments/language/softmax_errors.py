"""The error of random features' softmax over all words relative to a model's exact softmax.

A variant with a model to start from is measured on it; one without trains it first, with the full
softmax. `lengths.csv` in a variant's folder has quantiles of the lengths of its queries and keys.
"""

from pathlib import Path

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional

from experiments.fitting import fit, load_model
from experiments.language.model import (
    LanguageConfig,
    LanguageModel,
    check_text,
    columns_of,
    full_loss,
    perplexity,
    queries_over,
    span_of,
    text_of,
)
from experiments.language.proposals import (
    ExactProposal,
    MapProposal,
    Proposal,
    ProposalSettings,
    distances,
    make_proposal,
    shares,
)
from experiments.learning import FLOPS, flops_of
from experiments.task import STRICT, Learning, Measure, Task
from training.command.files import write_atomically

_QUERIES_AT_ONCE = 500
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


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


def check(settings: SoftmaxErrorsConfig, data: str | None) -> None:
    """UserError where the text is not found, ValueError where settings do not fit."""
    make_proposal(settings.proposal, settings.width, check_text(settings, data).counts(), 0)


def learn(learning: Learning) -> dict[str, float]:
    """Train the model, or load the one from which the variant starts, and measure it."""
    settings: SoftmaxErrorsConfig = learning.settings
    text = text_of(settings, learning.data, learning.device)
    model = LanguageModel(settings, len(text.words), learning.seed).to(learning.device)
    if learning.start is not None:
        load_model(learning.start, model)
        model.eval()
    else:
        _fit(model, text.train, text.valid, learning)
    queries, targets = queries_over(model, text.test[: settings.test])
    _write_lengths(learning.folder / "lengths.csv", queries, model.keys.detach())
    fitted_to = queries_over(model, text.valid[: settings.valid])[0]
    proposal = make_proposal(settings.proposal, settings.width, text.counts(), learning.seed)
    proposal = proposal.to(learning.device)
    return _errors(model, queries, fitted_to, proposal, learning) | {
        "perplexity": perplexity(model, queries, targets),
        "query_length": float(_lengths(queries).mean()),
        "key_length": float(_lengths(model.keys.detach()).mean()),
    }


def _fit(model: LanguageModel, train: Tensor, valid: Tensor, learning: Learning) -> None:
    settings: SoftmaxErrorsConfig = learning.settings
    columns = columns_of(train, settings.batch)

    def loss(step: int) -> Tensor:
        tokens, targets, anew = span_of(columns, step, settings.span)
        return full_loss(settings, model, model.read_on(tokens, anew), targets)

    def measure() -> dict[str, float]:
        return {"perplexity": perplexity(model, *queries_over(model, valid[: settings.valid]))}

    fit(model, loss, learning, measure)


@torch.no_grad()
def _errors(
    model: LanguageModel, queries: Tensor, fitted_to: Tensor, proposal: Proposal,
    learning: Learning,
) -> dict[str, float]:  # fmt: skip
    """Means over queries and draws."""
    settings: SoftmaxErrorsConfig = learning.settings
    keys = _scaled(model.keys, settings)
    places = torch.linspace(0, len(queries) - 1, min(settings.queries, len(queries))).long()
    exact = ExactProposal(settings.width)
    sums = torch.zeros(3, dtype=torch.float64, device=queries.device)
    proposal.fit(_scaled(fitted_to, settings), keys)
    chosen = _scaled(queries[places], settings)
    draws = settings.draws if isinstance(proposal, MapProposal) else 1
    generator = torch.Generator().manual_seed(learning.seed)
    for _ in range(draws):
        proposal.redraw(generator)
        for part in chosen.split(_QUERIES_AT_ONCE):
            weights = proposal.weights(part, keys)
            far, farthest = distances(shares(exact.weights(part, keys)), shares(weights))
            negative = (weights < 0).double().mean(-1)
            sums += torch.stack([found.sum() for found in (far, farthest, negative)])
    wasserstein, ks, negative = (sums / (draws * len(chosen))).tolist()
    flops = flops_of(lambda: proposal.of_query(chosen[:1]))[0]
    return {
        "wasserstein": wasserstein, "ks": ks, "negative": negative,
        "features": proposal.features, "flops": flops,
    }  # fmt: skip


def _scaled(vectors: Tensor, settings: SoftmaxErrorsConfig) -> Tensor:
    """Queries or keys (n, d) times the root of tau, so that their products are the logits."""
    if settings.length is not None:
        vectors = settings.length * functional.normalize(vectors, dim=-1)
    return settings.temperature**0.5 * vectors


def _lengths(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1)


def _write_lengths(path: Path, queries: Tensor, keys: Tensor) -> None:
    """Figures 7 and 9 of Hybrid Random Features as quantiles."""
    at = torch.tensor(_QUANTILES)
    both = [_lengths(vectors).cpu().quantile(at).tolist() for vectors in (queries, keys)]
    rows = [
        f"{quantile:g},{query:.6g},{key:.6g}"
        for quantile, query, key in zip(_QUANTILES, *both, strict=True)
    ]
    write_atomically(path, ("\n".join(["quantile,queries,keys", *rows]) + "\n").encode())


SOFTMAX_ERRORS = Task(
    name="softmax_errors",
    settings=SoftmaxErrorsConfig,
    learn=learn,
    check=check,
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
