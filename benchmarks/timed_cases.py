"""The process of one checkout that `benchmarks.before_after` times.

Reads "name calls" a line, runs the case so often, writes the CPU milliseconds of a call. This file
uses only what both checkouts have: it is run by its path, and imports from PYTHONPATH."""

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

import attention

Call = Callable[[], Any]
HEADS, DIM = 8, 64
FAVOR, HYBRID = "FAVOR+ m=256", "hybrid m=n=8"
MAPS: dict[str, dict[str, Any]] = {
    FAVOR: {"name": "positive", "num_features": 256},
    HYBRID: {"name": "angular_hybrid", "num_features": 8, "num_lambda_features": 8},
    "OPRF m=256": {"name": "oprf", "num_features": 256},
    "trig m=128": {"name": "trig", "num_features": 128},
    "Gaussian hybrid m=n=8": {
        "name": "gaussian_hybrid", "num_features": 8, "num_lambda_features": 8,
    },
    "elu": {"name": "elu", "num_features": 1},
}  # fmt: skip
EXACT, PEER = "exact, fused", "performer_pytorch"
DECISIONS = 250
"""Before `act` is timed: then it may be compiled."""


@cache
def _map(name: str, dim: int) -> attention.FeatureMap:
    return attention.feature_map(dim=dim, **MAPS[name])


@cache
def _tokens(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Normal ones, scaled as in Transformers."""
    generator = torch.Generator().manual_seed(1000)
    q, k, v = torch.randn(3, 1, HEADS, length, DIM, generator=generator)
    return q * DIM**-0.25, k * DIM**-0.25, v


def attends(kind: str, name: str, length: str) -> Call:
    """Attention of 8 heads with values of 64."""
    x, y, v = _tokens(int(length))
    if name == EXACT:
        fused = nn.functional.scaled_dot_product_attention
        return partial(fused, x, y, v, is_causal=kind == "causal", scale=1.0)
    if name == PEER:
        library: Any = import_module(PEER)
        return partial(library.FastAttention(DIM, 256, causal=kind == "causal"), x, y, v)
    return partial(_map(name, DIM).attend, x, y, v, causal=kind == "causal")


def _with_gradients(attend: Call) -> Call:
    def step() -> None:
        with torch.enable_grad():
            attend().sum().backward()

    return step


def scores(name: str, length: str) -> Call:
    """Token scores of unit queries and keys, d = 4."""
    generator = torch.Generator().manual_seed(1000)
    x, y = torch.randn(2, 1, int(length), 4, generator=generator)
    x, y = (nn.functional.normalize(u, dim=-1) for u in (x, y))
    return partial(_map(name, 4).token_scores, x, y)


def trains(kind: str, name: str, length: str) -> Call:
    """Attention of 8 heads with values of 64, and its gradients."""
    x, y, v = (t.clone().requires_grad_() for t in _tokens(int(length)))
    return _with_gradients(partial(_map(name, DIM).attend, x, y, v, causal=kind == "causal"))


def heads(kind: str, name: str, n: str) -> Call:
    """Attention of 4 narrow heads over 101 tokens, d = dv = m = 16: 64 sequences with gradients,
    or one without."""
    training = kind == "training"
    generator = torch.Generator().manual_seed(1000)
    x, y, v = torch.randn(3, 64 if training else 1, 4, 101, 16, generator=generator)
    x, y = ((t / t.norm(dim=-1, keepdim=True)).requires_grad_(training) for t in (x, y))
    features = attention.feature_map(name, 16, 16, num_lambda_features=int(n), heads=4)
    attend = partial(features.attend, x, y, v)
    return _with_gradients(attend) if training else attend


def batch(name: str) -> Call:
    """Attention of 64 frames, 4 heads and 101 tokens each, d = dv = 16, and its gradients."""
    generator = torch.Generator().manual_seed(1000)
    x, y, v = (t.requires_grad_() for t in torch.randn(3, 64, 4, 101, 16, generator=generator))
    return _with_gradients(lambda: _map(name, 16).attend(0.5 * x, 0.5 * y, v))


def acts(name: str) -> Call:
    """A decision of a shipped policy, by `act`."""
    from training.analysis.agents import EVALUATION_SEED, find_agents

    (agent,) = find_agents([name], [], None, [])
    env = agent.make_env()
    policy = agent.make_policy(env)
    observation, _ = env.reset(seed=EVALUATION_SEED)
    policy.reset()
    for _ in range(DECISIONS):
        policy.act(observation)
    return partial(policy.act, observation)


CASES: dict[str, Callable[..., Call]] = {
    function.__name__: function for function in (attends, scores, trains, heads, batch, acts)
}


@cache
def case(words: str) -> Call:
    """Return a case by its name, "kind|argument|...", after a warm-up."""
    kind, *arguments = words.split("|")
    call = CASES[kind](*arguments)
    with torch.no_grad():
        for _ in range(3):
            call()
    return call


def main() -> None:
    """Answer lines of standard input until it ends."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        words, calls = line.rstrip("\n").rsplit(" ", 1)
        call = case(words)
        with torch.no_grad():
            start = time.process_time()
            for _ in range(int(calls)):
                call()
            spent = time.process_time() - start
        print(1e3 * spent / int(calls), file=answers, flush=True)


if __name__ == "__main__":
    main()
