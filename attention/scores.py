"""Token scores of Implicit Attention Policies: column sums of the attention matrix.

score_j = sum_i kernel(q_i, k_j), is the attention that token j receives before rows are normalised
(Hybrid Random Features, appendix K.1). From features it costs O(L F) without an L x L matrix; the
exact score is summed in blocks of queries.
"""

from torch import Tensor

from attention.components import EXPONENTIALS, SCORE, component
from attention.precision import full_precision, working_dtype
from attention.token_checks import check_features

CPU_BLOCK = 2**16
"""Number of entries computed at once on a CPU: 256 KiB in float32, within a core's L2 cache."""
ACCELERATOR_BLOCK = 2**24
"""Number of entries computed at once on other devices, where kernel launches cost more than caches
save."""


def block_rows(width: int, like: Tensor) -> int:
    """Return the number of tokens to process at once if each needs `width` numbers."""
    block = CPU_BLOCK if like.device.type == "cpu" else ACCELERATOR_BLOCK
    return max(1, block // max(width, 1))


def token_scores(phi_q: Tensor, phi_k: Tensor) -> Tensor:
    """Compute scores from features: phi_q (..., L, F), phi_k (..., S, F) -> (..., S).

    float16 and bfloat16 are computed in float32, with or without autocast."""
    check_features(phi_q, phi_k)
    phi_q, phi_k = (phi.to(working_dtype(phi.dtype)) for phi in (phi_q, phi_k))
    with component(SCORE), full_precision(phi_k):
        return (phi_k @ phi_q.sum(-2).unsqueeze(-1)).squeeze(-1)


def softmax_token_scores(q: Tensor, k: Tensor) -> Tensor:
    """Compute the exact scores sum_i exp(q_i.k_j): q (..., L, d), k (..., S, d) -> (..., S).

    exp(q.k) must be representable: in float32 q.k must be below 88. float16 and bfloat16 are
    computed in float32, with or without autocast."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k must have the same last dimension d, got {q.shape[-1]} and {k.shape[-1]}"
        )
    q, k = (tokens.to(working_dtype(tokens.dtype)) for tokens in (q, k))
    transposed = k.mT
    scores: Tensor | None = None
    for rows in q.split(block_rows(k.shape[-2], k), -2):
        with component(SCORE), full_precision(k):
            products = rows @ transposed
        with component(EXPONENTIALS):
            kernel = products.exp_()
        with component(SCORE):
            partial = kernel.sum(-2)
            scores = partial if scores is None else scores + partial
    assert scores is not None
    return scores
