"""Keys learned from patches of images, by predicting what gives way through a memory.

    python -m experiments.felt_ground.felt_patches [--record] [--quick]

Kinds of ground are textures: three waves between two colours, cut at random places, in light of
random strength and with noisy pixels. A small convolution (`policies.felt_ground.patches`) learns
keys on 96 textures, through linear attention with the delta rule or through exact attention, from
the cross entropy of what is asked at the end of episodes. Judged are 24 textures never seen: 8
kinds an episode with 3 samples each on average. Controls are keys without training, mean colours,
and whole patches of pixels. Intervals are 95 %, over 256 episodes.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from experiments import figure
from experiments.felt_ground.felt_networks import cooled
from experiments.felt_ground.worlds import ASKED, mislabelled, right
from experiments.figure import Arguments, Lines, Row, Rows
from policies.felt_ground.memories import felt_memory
from policies.felt_ground.memory_config import FeltMemoryConfig
from policies.felt_ground.patches import PatchKeys
from training.analysis.intervals import mean_interval

SIDE, DIM, KINDS, SAMPLES = 16, 16, 8, 24
TRAINING, UNSEEN, STEPS, BATCH = 96, 24, 300, 16
NOISE = 0.1
"""Standard deviation of a pixel."""
TRAINED_BY = {
    "linear, delta": FeltMemoryConfig(feature_map="quadratic", num_features=10_000, kappa=4.0),
    "exact": FeltMemoryConfig(kind="exact", capacity=SAMPLES, kappa=8.0),
}
"""Memories through which keys are learned."""
JUDGED_BY = {
    **TRAINED_BY,
    "leader": FeltMemoryConfig(kind="leader", capacity=32),
    "nearest": FeltMemoryConfig(kind="nearest", capacity=SAMPLES),
}
KAPPAS, RATES = (2.0, 4.0, 8.0, 32.0, 128.0), (0.3, 0.6, 1.0)
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
Keys = Callable[[Tensor], Tensor]


class Textures(NamedTuple):
    """A set of textures, (textures, ...)."""

    waves: Tensor
    """Three wave vectors each, radians a pixel, (., 3, 2)."""
    phases: Tensor
    """(., 3)"""
    heights: Tensor
    """(., 3)"""
    sharpness: Tensor
    colours: Tensor
    """(., 2, 3)"""


class Tiles(NamedTuple):
    """Episodes of patches; see `worlds.Episodes`."""

    patches: Tensor
    """(episodes, SAMPLES + ASKED, 3, SIDE, SIDE)"""
    values: Tensor
    """(episodes, SAMPLES, 1)"""
    truth: Tensor
    """(episodes, ASKED)"""


def textures(count: int, seed: int) -> Textures:
    """Draw textures; those of different seeds have nothing in common."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    angles, lengths = uniform(0, math.pi, 3), uniform(3, 12, 3)
    waves = torch.stack((angles.cos(), angles.sin()), -1) * (2 * math.pi / lengths).unsqueeze(-1)
    colours = (0.5 + 0.15 * torch.randn(count, 2, 3, generator=generator)).clamp(0.1, 0.9)
    heights = uniform(0, 1, 3).square()
    return Textures(waves, uniform(0, 2 * math.pi, 3), heights, uniform(1, 6), colours)


def cut(of: Textures, which: Tensor, generator: torch.Generator) -> Tensor:
    """A patch of each texture `which` (...), at a random place: (..., 3, SIDE, SIDE)."""
    waves, phases, heights, sharpness, colours = (part[which] for part in of)
    place = 100 * torch.rand(*which.shape, 1, 2, generator=generator)
    phases = phases + (waves * place).sum(-1)
    axis = torch.arange(float(SIDE))
    rows, columns = waves[..., 0, None, None], waves[..., 1, None, None]
    angles = rows * axis[:, None] + columns * axis + phases[..., None, None]
    level = (angles.cos() * heights[..., None, None]).sum(-3)
    share = (sharpness[..., None, None] * level).sigmoid().unsqueeze(-3)
    first, second = colours[..., 0, :, None, None], colours[..., 1, :, None, None]
    light = 0.8 + 0.4 * torch.rand(*which.shape, 1, 1, 1, generator=generator)
    seen = light * (share * first + (1 - share) * second)
    return seen + NOISE * torch.randn(seen.shape, generator=generator)


def draw(of: Textures, episodes: int, generator: torch.Generator) -> Tiles:
    """Draw episodes of KINDS different textures."""
    count = len(of.sharpness)
    chosen = torch.rand(episodes, count, generator=generator).argsort(1)[:, :KINDS]
    labels = torch.randint(0, 2, (episodes, KINDS), generator=generator) * 2.0 - 1
    kinds = torch.randint(0, KINDS, (episodes, SAMPLES + ASKED), generator=generator)
    meaning = labels.gather(1, kinds)
    values, truth = meaning.split([SAMPLES, ASKED], 1)
    values = mislabelled(values, generator).unsqueeze(-1)
    return Tiles(cut(of, chosen.gather(1, kinds), generator), values, truth)


def recalled(config: FeltMemoryConfig, keys: Tensor, values: Tensor) -> Tensor:
    """What a memory reads at the keys (episodes, SAMPLES + ASKED, d) after the first SAMPLES."""
    written, asked = keys.split([SAMPLES, ASKED], 1)
    memory = felt_memory(config, keys.shape[-1])
    state = memory.write(memory.initial_state(len(keys)), written, values)
    return memory.read(state, asked).squeeze(-1)


def learned(config: FeltMemoryConfig, steps: int, seed: int) -> tuple[PatchKeys, float]:
    """Keys that were trained through a memory, and seconds of one core."""
    torch.manual_seed(seed)
    generator, started = torch.Generator().manual_seed(seed + 1), time.process_time()
    keys, of = PatchKeys(DIM), textures(TRAINING, seed)
    sharpness = nn.Parameter(torch.tensor(3.0))
    adam = torch.optim.Adam([*keys.parameters(), sharpness], 2e-3)
    for i in range(steps):
        adam.param_groups[0]["lr"] = 2e-3 * cooled(i / steps)
        tiles = draw(of, BATCH, generator)
        odds = sharpness * recalled(config, keys(tiles.patches), tiles.values)
        wanted = (tiles.truth + 1) / 2
        loss = nn.functional.binary_cross_entropy_with_logits(odds, wanted)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return keys.eval(), time.process_time() - started


def answered(config: FeltMemoryConfig, keys: Tensor, tiles: Tiles) -> Tensor:
    """Share of right answers of each episode."""
    return right(recalled(config, keys, tiles.values), tiles.truth)


def mean_colour(patches: Tensor) -> Tensor:
    """The mean colour and a constant, as a unit key."""
    colour = 4 * (patches.mean((-2, -1)) - 0.5)
    return normalize(torch.cat((colour, torch.ones_like(colour[..., :1])), -1), dim=-1)


def pixels(patches: Tensor) -> Tensor:
    """All pixels, as a unit key."""
    return normalize(patches.flatten(-3) - 0.5, dim=-1)


def tuned(label: str) -> list[FeltMemoryConfig]:
    """Settings from which a memory's are chosen."""
    plain = JUDGED_BY[label]
    key, values = ("threshold", THRESHOLDS) if label == "leader" else ("kappa", KAPPAS)
    if label == "nearest":  # which has no setting
        return [plain]
    options: list[dict[str, Any]] = [{key: value} for value in values]
    found = [dataclasses.replace(plain, **option) for option in options]
    if plain.kind == "linear":
        found = [dataclasses.replace(one, rate=rate) for one in found for rate in RATES]
    return found


@torch.no_grad()
def judged(label: str, keys: Keys, tuning: Tiles, tests: Tiles) -> Rows:
    """A row for each memory over the keys, whose settings are chosen on training textures."""
    known, new = keys(tuning.patches), keys(tests.patches)
    if new.shape[-1] > 100:  # keys of pixels: products of them all would be 300,000 numbers
        chosen = [name for name in JUDGED_BY if name != "linear, delta"]
    else:
        chosen = [*JUDGED_BY]
    rows: Rows = []
    for name in chosen:
        shares = [answered(config, known, tuning).mean() for config in tuned(name)]
        best = tuned(name)[int(torch.stack(shares).argmax())]
        found = answered(best, new, tests)
        low, high = mean_interval(np.asarray(found.double())[None])
        facts: Row = {"keys": label, "memory": name, "training": float(max(shares))}
        rows.append({**facts, "right": float(found.mean()), "low": low, "high": high})
    return rows


def measure(arguments: Arguments) -> dict[str, Any]:
    """Train through both memories, and judge all keys."""
    seed, steps = arguments.seed, 20 if arguments.quick else STEPS
    generator = torch.Generator().manual_seed(seed + 500)
    count = 32 if arguments.quick else 256
    tuning = draw(textures(TRAINING, seed), 128, generator)
    tests = draw(textures(UNSEEN, seed + 1_000_000), count, generator)
    torch.manual_seed(seed)
    ways: dict[str, Keys] = {
        "mean colour": mean_colour, "pixels": pixels, "untrained": PatchKeys(DIM),
    }  # fmt: skip
    core_s = {}
    for name, config in TRAINED_BY.items():
        ways[f"trained through {name}"], core_s[name] = learned(config, steps, seed)
    rows = [row for label, keys in ways.items() for row in judged(label, keys, tuning, tests)]
    return {"rows": rows, "core_s": core_s}


def show(results: dict[str, Any]) -> Lines:
    """A row for the keys and each memory."""
    rows = [
        {**row, **{key: 100 * row[key] for key in ("right", "low", "high", "training")}}
        for row in results["rows"]
    ]
    columns = {"keys": "{keys}", "memory": "{memory}", "unseen, %": "{right:.1f}",
               "interval": "{low:.1f} to {high:.1f}", "training, %": "{training:.1f}"}  # fmt: skip
    yield from figure.table(rows, columns, 30, -16, 11, 15, 12)
    for name, seconds in results["core_s"].items():
        yield f"Training through {name}: {seconds:.0f} s of one core"


main = figure.command(measure, show)
