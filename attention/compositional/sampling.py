"""Algorithm 1, RFSS: random features of a skeleton, with all features of a node drawn at once.

Random Features for Compositional Kernels, section 5. An internal node draws a degree l from its
activation's coefficients and returns the product of l independent features, each of an input drawn
uniformly (l = 0: the constant 1); an input node draws a base feature. Each call belongs to one
feature, its owner. Since products are commutative, the order of the calls does not matter, and the
calls of a node can be made after those of all nodes above it.
"""

from attention.compositional.activations import Integers
from attention.compositional.arrays import np
from attention.compositional.dedup import deduplicate
from attention.compositional.features import Features, concatenate
from attention.compositional.skeleton import Skeleton

MAX_CALLS = 2e8
"""Largest allowed mean number of calls of one draw, at 8 bytes or more each."""


def draw(skeleton: Skeleton, count: int, rng: np.random.Generator) -> Features:
    """Draw `count` independent random features, unbiased for the kernel of the skeleton.

    Raises ValueError for count < 1 and if count features would need more than 2e8 calls.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if count * skeleton.expected_calls > MAX_CALLS:
        raise ValueError(
            f"count times the skeleton's mean number of calls must be at most {MAX_CALLS:.0e}, "
            f"got {count} * {skeleton.expected_calls:.3g}"
        )
    calls: dict[str, list[Integers]] = {name: [] for name in skeleton.order}
    calls[skeleton.output].append(np.arange(count))
    terms = {}
    for name in reversed(skeleton.order):
        owner = np.concatenate(calls.pop(name)) if calls[name] else np.zeros(0, np.int64)
        if name in skeleton.inputs:
            if len(owner):
                terms[name] = skeleton.inputs[name].draw(rng, owner)
            continue
        node = skeleton.nodes[name]
        owner = np.repeat(owner, node.activation.sample(rng, len(owner)))
        chosen = rng.integers(len(node.inputs), size=len(owner))
        ends = np.cumsum(np.bincount(chosen, minlength=len(node.inputs)))
        parts = np.split(owner[np.argsort(chosen, kind="stable")], ends[:-1])
        for source, part in zip(node.inputs, parts, strict=True):
            calls[source].append(part)
    return Features(skeleton, np.ones(count, np.int64), terms)


def draw_distinct(
    skeleton: Skeleton, count: int, rng: np.random.Generator, *, max_draws: int = 1_000_000
) -> Features:
    """Draw up to `count` distinct features with their multiplicities.

    Features are drawn until the next would be the (count + 1)-th distinct one, or max_draws are
    made. The number of draws is a stopping time, so the kernel estimate has a small bias, unlike a
    fixed number of draws, `deduplicate(draw(...))`. This is useful if few features are likely: the
    same number of columns then represents many more draws.

    Raises ValueError as `draw` does, and for max_draws < count.
    """
    if max_draws < count:
        raise ValueError(f"max_draws must be at least count = {count}, got {max_draws}")
    found, _ = deduplicate(draw(skeleton, count, rng))
    while found.draws < max_draws:
        new = draw(skeleton, min(found.draws, max_draws - found.draws), rng)
        merged, first = deduplicate(concatenate(found, new))
        if len(merged) > count:
            end = first[count] - len(found)
            return deduplicate(concatenate(found, new.take(np.arange(end))))[0]
        found = merged
    return found
