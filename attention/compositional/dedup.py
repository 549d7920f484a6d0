"""De-duplication: equal features are merged into one with a multiplicity.

Random Features for Compositional Kernels, sections 1 and 6. A feature is a product of base
features after cancellation (z times 1/z), so it is the multiset of its terms. A feature and its
complex conjugate give the same Re psi(x) conj(psi(y)), so they are merged too. The weights
sqrt(c_j / N) leave the kernel estimate unchanged.
"""

from dataclasses import replace

from attention.compositional.activations import Integers
from attention.compositional.arrays import NDArray, np
from attention.compositional.features import Features


def deduplicate(features: Features) -> tuple[Features, Integers]:
    """Return the distinct features in the order of their first draw, and the index of that draw
    (q',).

    The multiplicities of equal features add up.
    """
    keys, conjugates = _keys(features, conjugate=False), _keys(features, conjugate=True)
    length = np.bincount(keys[:, 0], minlength=len(features))
    start = np.concatenate(([0], np.cumsum(length)[:-1]))
    group = np.empty(len(features), np.int64)
    firsts: list[Integers] = []
    found = 0
    for size in np.unique(length):
        members = np.flatnonzero(length == size)
        rows = start[members, None] + np.arange(size)
        key = keys[rows, 1:].reshape(len(members), -1)
        other = conjugates[rows, 1:].reshape(len(members), -1)
        distinct, first, inverse = np.unique(
            _smaller(key, other), axis=0, return_index=True, return_inverse=True
        )
        firsts.append(members[first])
        group[members] = found + inverse.ravel()
        found += len(distinct)
    first = np.concatenate(firsts)
    multiplicity = np.bincount(group, weights=features.multiplicity, minlength=found)
    order = np.argsort(first)
    kept = features.take(first[order])
    return replace(kept, multiplicity=multiplicity[order].astype(np.int64)), first[order]


def _keys(features: Features, conjugate: bool) -> NDArray[np.int64]:
    """Return rows (owner, node, slot, exponent) of all terms, (t, 4), sorted by owner."""
    parts = [np.zeros((0, 4), np.int64)]
    for number, (name, terms) in enumerate(features.terms.items()):
        if conjugate:
            terms = features.skeleton.inputs[name].conjugate(terms)
        node = np.full(len(terms.owner), number)
        parts.append(np.stack((terms.owner, node, terms.slot, terms.exponent), 1))
    keys = np.concatenate(parts)
    return keys[np.argsort(keys[:, 0], kind="stable")]


def _smaller(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, row by row, the lexicographically smaller of a and b."""
    if not a.shape[1]:
        return a
    place = np.argmax(a != b, axis=1)
    rows = np.arange(len(a))
    return np.where((b[rows, place] < a[rows, place])[:, None], b, a)
