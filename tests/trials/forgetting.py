"""Forgetting from 0 to 1 and states in slots, against exact sums in float64 with their gradients.

    python -m tests.trials.forgetting --count 300 --seed 0 --out sums

Each case draws a form (`prefill`, `step`, `LinearMemory.unroll` or single writes, the delta rule),
a type of numbers, a length and decays, from 0 over the smallest numbers to 1 - 1e-7 and 1, and
compares outputs and gradients with the recursion as it is written. Its states are then copied into
slots of a larger one, which must go on bit for bit as the state itself, and whose entries share no
memory.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import attention
from attention import recurrent
from tests.trials.many import Found, many

FORMS = ("prefill", "step", "sum unrolled", "sum written", "delta unrolled", "delta written")
EDGES = (
    0.0,
    5e-324,
    1e-310,
    1e-45,
    1e-39,
    1.2e-38,
    1e-30,
    1e-10,
    1e-6,
    1e-3,
    0.5,
    0.9,
    0.999999,
    1 - 1e-7,
    1.0,
)
F, DV, D = 6, 3, 2
TOLERANCE = {torch.float64: (1e-11, 1e-9), torch.float32: (2e-5, 2e-3)}
"""Of outputs and of gradients, as a share of the largest."""


def leaves(state: Any) -> list[Tensor]:
    """Tensors of a state."""
    return [state] if isinstance(state, Tensor) else [t for part in state for t in leaves(part)]


def like(state: Any, tensors: list[Tensor]) -> Any:
    """A state with other tensors, in the order of `leaves`."""
    if isinstance(state, Tensor):
        return tensors.pop(0)
    return type(state)(*(like(part, tensors) for part in state))


def exact(delta: bool, q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """The recursion of one token a step: features (B, T, F), values (B, T, DV), decay (B, T)."""
    sums, weights, outputs = q.new_zeros(len(q), F, DV), q.new_zeros(len(q), F), []
    if delta:
        q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
    for i in range(q.shape[1]):
        sums = decay[:, i, None, None] * sums
        weights = decay[:, i, None] * weights + k[:, i]
        new = v[:, i]
        if delta:
            new = new - (k[:, i, None] @ sums)[:, 0]
        sums = sums + k[:, i, :, None] * new[:, None]
        answer = (q[:, i, None] @ sums)[:, 0]
        outputs.append(answer if delta else answer / (q[:, i] * weights).sum(-1, keepdim=True))
    return torch.stack(outputs, 1)


class Case:
    """Tokens and decays, and a form with its memory."""

    def __init__(self, chance: random.Random) -> None:
        self.form = chance.choice(FORMS)
        self.dtype = chance.choice((torch.float32, torch.float64))
        self.length = chance.choice((1, 2, 7, 63, 64, 65, 100))
        self.batch = chance.choice((1, 3))
        generator = torch.Generator().manual_seed(chance.randrange(2**31))

        def rand(*shape: int) -> Tensor:
            drawn = torch.rand(
                self.batch, self.length, *shape, generator=generator, dtype=torch.float64
            )
            return drawn.to(self.dtype)

        self.v, self.weights, decay = rand(DV) - 0.5, rand(DV), rand()
        self.q, self.k = (0.1 + rand(F) for _ in range(2))
        if self.form not in ("prefill", "step"):
            self.q, self.k = (2 * rand(D) - 1 for _ in range(2))
            rule = self.form.split()[0]
            self.memory = attention.LinearMemory(D, DV, "relu", F, rule=rule, dtype=self.dtype)
        edges = chance.sample(EDGES, chance.randrange(1, 4))
        kind = chance.randrange(3)  # drawn ones, some edges among them, or edges alone
        for i in range(self.length) if kind else ():
            if kind == 2 or chance.random() < 0.3:
                decay[:, i] = torch.tensor(chance.choice(edges), dtype=torch.float64).to(self.dtype)
        self.decay, self.edges = decay.requires_grad_(), edges if kind else []

    def start(self, batch: int) -> Any:
        """An empty state."""
        if self.form in ("prefill", "step"):
            return recurrent.initial_state((batch,), F, DV, dtype=self.dtype)
        return self.memory.initial_state(batch)

    def run(self, state: Any, part: slice) -> tuple[Tensor, Any]:
        """Outputs of some tokens (B, T, DV), and the next state."""
        q, k, v, decay = (t[:, part] for t in (self.q, self.k, self.v, self.decay))
        if self.form == "prefill":
            return recurrent.prefill(state, q, k, v, decay=decay[..., None])
        if self.form.endswith("unrolled"):
            q, k, v = (t.unsqueeze(-2) for t in (q, k, v))
            output, state = self.memory.unroll(state, q, k, v, decay=decay)
            return output.squeeze(-2), state
        outputs = []
        for i in range(q.shape[1]):
            if self.form == "step":
                output, state = recurrent.step(
                    state, q[:, i], k[:, i], v[:, i], decay=decay[:, i, None]
                )
            else:
                state = self.memory.write(state, k[:, i, None], v[:, i, None], decay=decay[:, i])
                output = self.memory.read(state, q[:, i, None])[:, 0]
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def expected(self) -> tuple[Tensor, Tensor]:
        """Outputs and the gradient by the decay, in float64."""
        q, k, v, decay = (t.detach().double() for t in (self.q, self.k, self.v, self.decay))
        if self.form not in ("prefill", "step"):
            exact_map = attention.feature_map("relu", D, F, dtype=torch.float64)
            exact_map.load_state_dict(self.memory.feature_map.state_dict())
            q, k = exact_map.queries(q), exact_map.keys(k)
        decay.requires_grad_()
        output = exact(self.form.startswith("delta"), q, k, v, decay)
        (gradient,) = torch.autograd.grad((output * self.weights.double()).sum(), decay)
        return output.detach(), gradient


def try_one(number: int, seed: int, materials: Path, folder: Path) -> Found:
    """Compare one case with exact sums."""
    case = Case(random.Random(f"{seed} {number}"))
    output, _ = case.run(case.start(case.batch), slice(None))
    (gradient,) = torch.autograd.grad((output * case.weights).sum(), case.decay)
    faults = []
    for name, found, right, tolerance in zip(
        ("outputs", "gradients"),
        (output.detach(), gradient),
        case.expected(),
        TOLERANCE[case.dtype],
        strict=True,
    ):
        error = (found.double() - right).abs().max().item()
        largest = right.abs().max().item()
        if not error <= tolerance * largest + 1e-12:
            faults.append(f"{name}: {error:.2g} off, of {largest:.2g}")
    with torch.no_grad():
        faults += slots(case)
    said = f"{case.dtype}, {case.batch} x {case.length}, decays {case.edges}"
    return Found(case.form, faults, case.form, said)


def slots(case: Case) -> list[str]:
    """Copy states into slots of a larger one and go on there."""
    half, found = case.length // 2, []
    _, state = (
        case.run(case.start(case.batch), slice(0, half)) if half else (0, case.start(case.batch))
    )
    pool = [torch.cat((t, t)).flip(0).clone() for t in leaves(state)]
    for slot, entry in zip(pool, leaves(state), strict=True):
        slot[: case.batch].copy_(entry)
    for name, one in (("the state", leaves(state)), ("a new state", leaves(case.start(2)))):
        places = [t.untyped_storage().data_ptr() for t in one if t.numel()]
        if len(set(places)) < len(places):
            found.append(f"entries of {name} share memory")
    one = like(state, [t[: case.batch] for t in pool])
    before = [t.clone() for t in leaves(one)]
    (expected, last), (output, moved) = (case.run(s, slice(half, None)) for s in (state, one))
    same: Callable[[Tensor, Tensor], bool] = torch.equal
    if not (same(expected, output) and all(map(same, leaves(last), leaves(moved)))):
        found.append("a state in a slot goes on otherwise")
    if not all(map(same, before, leaves(one))):
        found.append("a state was changed in place")
    return found


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where sums are not exact."""
    return many("forgetting", lambda materials: None, try_one, 300, argv)


if __name__ == "__main__":
    sys.exit(main())
