"""A language model: an LSTM whose outputs are queries and whose word vectors are the keys.

The LSTM reads the same vectors (tied: Inan et al. 2017; Press and Wolf 2017), and no bias is added:
the softmax is one of dot products alone (Hybrid Random Features, appendix I).
"""

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional

from experiments.data import words
from experiments.data.words import Corpus, frequent
from experiments.fitting import Fitting
from experiments.task import STRICT

_AT_ONCE = 500
_COLUMNS, _SPAN = 10, 64
"""How a text is read to measure, as the published code does."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
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


class LanguageModel(nn.Module):
    """It keeps the LSTM's state between steps, so that reading continues."""

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

    def read_on(self, tokens: Tensor, anew: bool) -> Tensor:
        """The next tokens (span, batch) -> queries (span * batch, width), starting from the last
        memory or from the initial one.
        """
        before = torch.zeros_like(self.memory) if anew else self.memory
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
            f"batch and span must leave a step to a text of {len(text.train)} tokens, and "
            f"{settings.batch} times {settings.span} + 1 are {least}"
        )
    return text
