"""Cases that hold every pair of values of any two parameters, in place of all combinations."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Tuples of one value of each sequence that hold every pair of values of two sequences.

    Deterministic: each next case is the first combination with the most pairs not yet held.
    """

    def pairs(case: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
        return {(i, j, case[i], case[j]) for i, j in combinations(range(len(case)), 2)}

    every = [(case, pairs(case)) for case in product(*(range(len(v)) for v in values))]
    missing = set().union(*(held for _, held in every))
    cases = []
    while missing:
        case, held = max(every, key=lambda one: len(one[1] & missing))
        missing -= held
        cases.append(tuple(v[i] for v, i in zip(values, case, strict=True)))
    return cases
