"""Meta-training of networks as memories of what was felt.

    python -m experiments.felt_ground.felt_networks --out FOLDER [--record]

A GRU and a small Transformer learn over episodes of all worlds of the comparison at d = 16, with
kinds and labels drawn at random, to tell what gives way after a random number of samples. FOLDER
then holds their weights for `experiments.felt_ground.felt_memories --networks FOLDER`. Printed is
the loss by tenths of the training, from which one sees whether it is still falling.
"""

import math
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from experiments import figure
from experiments.felt_ground.worlds import World, draw
from experiments.figure import Arguments, Lines
from policies.felt_ground.memories import FeltMemory, felt_memory
from policies.felt_ground.memory_config import FeltMemoryConfig
from training.io.config import UserError

DIM, BATCH = 16, 32
NETWORKS = {
    "gru": FeltMemoryConfig(kind="gru", hidden=256),
    "transformer": FeltMemoryConfig(kind="transformer", hidden=64, capacity=256),
}
STEPS = {"gru": 3000, "transformer": 2500}
RATE = {"gru": 2e-3, "transformer": 1e-3}
_TIMES = 6  # in an episode at which the GRU is asked
_LONGEST = 192


def world(step: float, generator: torch.Generator) -> World:
    """A random world; at the start of training (step 0 of 1) those with few kinds."""

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand(1, generator=generator))

    sort = uniform(0, 1)
    most = 8 * 8 ** min(1.0, 2 * step)
    kinds = round(math.exp(uniform(math.log(4), math.log(most))))
    samples = min(uniform(1, 6), _LONGEST / kinds)
    if sort < 0.2:
        count = round(uniform(50, _LONGEST))
        return World(0, DIM, count, noise=0.2, factors=round(uniform(2.5, 6.5)))
    if sort < 0.4:
        return World(16 if step < 0.5 else 64, DIM, 3.0, noise=0.3, pairs=True)
    if sort < 0.6:
        return World(min(kinds, 32), DIM, min(samples, 3), uniform(0.2, 1), later=uniform(1, 3))
    return World(kinds, DIM, samples, uniform(0.2, 1))


def loss_of(
    memory: FeltMemory, kind: str, step: float, generator: torch.Generator
) -> tuple[Tensor, float]:
    """Mean cross entropy of answers about samples that come at, or after, a random time, and the
    share of right ones."""
    drawn = world(step, generator)
    keys, values, queries, truth = draw(drawn, BATCH, generator)
    network: Any = memory
    if kind == "transformer" or drawn.later:
        times = torch.full((queries.shape[1],), keys.shape[1])
        asked, wanted = queries, truth
    else:  # the meaning is the same at all times: the GRU learns from several at once
        at = torch.randint(1, keys.shape[1] + 1, (_TIMES,), generator=generator)
        each = queries.shape[1] // _TIMES
        times = at.repeat_interleave(each)
        asked, wanted = queries[:, : len(times)], truth[:, : len(times)]
    odds = network.logits(keys, values, times, asked)
    loss = nn.functional.binary_cross_entropy_with_logits(odds, (wanted + 1) / 2)
    return loss, float(((odds > 0) == (wanted > 0)).float().mean())


def cooled(share: float) -> float:
    """Factor of the learning rate after a share of the training: a cosine from 1 to 0.02."""
    return 0.02 + 0.98 * (1 + math.cos(math.pi * share)) / 2


def trained(kind: str, steps: int, seed: int) -> tuple[FeltMemory, dict[str, Any]]:
    """A trained network, and its losses and shares of right answers by tenths of the training."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    memory = felt_memory(NETWORKS[kind], DIM)
    adam = torch.optim.Adam(memory.parameters(), RATE[kind])
    started, found = time.process_time(), []
    for i in range(steps):
        share = i / steps
        warm = min(1, (i + 1) / 100) * cooled(share)
        adam.param_groups[0]["lr"] = RATE[kind] * warm
        loss, right = loss_of(memory, kind, share, generator)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(memory.parameters(), 1.0)
        adam.step()
        found.append((float(loss.detach()), right))
    tenths = torch.tensor(found).tensor_split(min(10, steps))
    losses, rights = zip(*(part.mean(0).tolist() for part in tenths), strict=True)
    return memory.eval(), {
        "steps": steps,
        "parameters": sum(p.numel() for p in memory.parameters()),
        "core_s": time.process_time() - started,
        "losses": list(losses),
        "right": list(rights),
    }


def load(kind: str, folder: str) -> FeltMemory:
    """A network that `main` saved. Raises UserError for a missing or unsuitable file."""
    memory, path = felt_memory(NETWORKS[kind], DIM), Path(folder) / f"{kind}.safetensors"
    try:
        memory.load_state_dict(load_file(path))
    except (OSError, RuntimeError) as error:
        raise UserError(f"--networks needs {path}: {error}") from None
    return memory.eval()


def measure(arguments: Arguments) -> dict[str, Any]:
    """Train both, and save their weights."""
    results = {}
    for kind in NETWORKS:
        steps = 10 if arguments.quick else STEPS[kind]
        memory, results[kind] = trained(kind, steps, arguments.seed)
        if arguments.out:
            folder = Path(arguments.out)
            folder.mkdir(parents=True, exist_ok=True)
            save_file(memory.state_dict(), folder / f"{kind}.safetensors")
    return results


def show(results: dict[str, Any]) -> Lines:
    """Losses by tenths."""
    for kind, row in results.items():
        yield f"{kind}: {row['parameters']:,} parameters, {row['core_s']:.0f} s of one core"
        for label in ("losses", "right"):
            yield f"  {label:<8}" + " ".join(f"{number:.3f}" for number in row[label])


main = figure.command(measure, show)
