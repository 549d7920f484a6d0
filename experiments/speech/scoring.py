"""Decoding of a speech model and its word error rate."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from experiments.speech.model import BLANK

__all__ = ["edit_distance", "greedy", "word_errors"]


def greedy(scores: Tensor, counts: Tensor) -> list[list[int]]:
    """Digits of (batch, tokens, 11) scores, of which each string has counts (batch,): the best
    class of each token, runs of one class taken as one, without blanks (Graves et al. 2006)."""
    best = scores.argmax(-1).cpu()
    return [
        [digit for digit in own[:count].unique_consecutive().tolist() if digit != BLANK]
        for own, count in zip(best, counts.tolist(), strict=True)
    ]


def edit_distance(said: Sequence[int], heard: Sequence[int]) -> int:
    """Fewest words put in, left out or changed that make one sequence the other (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            changed = before + (word != other)
            before = row[j]
            row[j] = min(changed, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def word_errors(said: Sequence[Sequence[int]], heard: Sequence[Sequence[int]]) -> float:
    """Word error rate, %: all edits, by all words that were said. It can exceed 100."""
    pairs = zip(said, heard, strict=True)
    return 100 * sum(edit_distance(a, b) for a, b in pairs) / sum(map(len, said))
