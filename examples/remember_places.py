"""A robot remembers the holes that it walks over: attention as a memory, and nothing else.

    python examples/remember_places.py [PICTURE.png]

It walks 6 m along a strip, 2.5 cm a step. At each step it sees 48 points of the ground, 19 to 77 cm
ahead, hole or not, and one in twenty wrongly. It writes them: places are keys, holes are values.
Then it asks what lies from 50 cm behind it to 10 cm ahead, where it no longer looks.
"""

import sys

import torch

import attention

STEPS, STEP_M, KEPT = 240, 0.025, 0.97  # a step forgets 3 % of the weight of what was written
PERIOD_M, KAPPA = 2.0, 112.0  # places on a circle of 2 m; those closer than 3 cm count as one

random = torch.Generator().manual_seed(0)
gaps_m = 0.35 * torch.arange(24) + 0.15 * torch.rand(24, generator=random)  # where they begin


def holes(places_m):
    """1 in a gap, which is 10 cm long, else 0: (n, 1) -> (n, 1)."""
    past_m = places_m - gaps_m
    return ((past_m > 0) & (past_m < 0.1)).any(-1, keepdim=True).float()


memory = attention.LinearMemory(
    1, 1, "harmonic", num_features=26, kappa=KAPPA, period=PERIOD_M, decay=KEPT
)
state = memory.initial_state()
keys, values, weights = torch.zeros(3, 0, 1)  # what exact attention keeps: every point ever seen

answers = []
for here_m in STEP_M * torch.arange(STEPS):
    seen_m = here_m + 0.19 + 0.58 * torch.rand(48, 1, generator=random)
    wrong = (torch.rand(48, 1, generator=random) < 0.05).float()
    seen = (holes(seen_m) - wrong).abs()
    asked_m = here_m + torch.linspace(-0.5, 0.1, 61).unsqueeze(-1)

    state = memory.write(state, seen_m, seen)
    linear = memory.read(state, asked_m)

    keys, values = torch.cat((keys, seen_m)), torch.cat((values, seen))
    weights = torch.cat((KEPT * weights, torch.ones(48, 1)))
    kernel = attention.kernels.von_mises(asked_m.unsqueeze(1), keys, KAPPA, PERIOD_M)
    exact = kernel @ (weights * values) / (kernel @ weights)

    if here_m > 0.7:  # from then on it has seen all that it asks for
        answers.append(torch.cat((holes(asked_m), exact, linear), -1))

truth, exact, linear = torch.stack(answers).unbind(-1)


def right(found):
    """Share of places that are recalled correctly, hole or not, percent."""
    return 100 * ((found > 0.5) == (truth > 0.5)).float().mean()


kept = sum(part.numel() for part in state)
print(f"exact attention: {right(exact):.1f} % right, {3 * len(keys):,} numbers and growing")
print(f"linear attention: {right(linear):.1f} % right, {kept} numbers, always")
print(f"linear to exact attention: error {(linear - exact).square().mean().sqrt():.3f}")

if sys.argv[1:]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
    axes.plot(asked_m - here_m, truth[-1], "k:", label="holes")
    axes.plot(asked_m - here_m, exact[-1], "-", label="exact attention")
    axes.plot(asked_m - here_m, linear[-1], "--", label="linear attention")
    axes.set(xlabel="metres ahead of the robot", ylabel="remembered")
    axes.legend()
    figure.savefig(sys.argv[1])
