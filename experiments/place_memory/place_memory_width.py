"""How wide should the kernel of a memory of places be? By held-out cloning loss, map by map.

    python -m experiments.place_memory.place_memory_width

The variants are those of a study whose memory is linear attention over places of given geometry.
Walks of the disturbed expert on validation terrains are collected once; every fourth is held out.
Each variant is cloned from the others with each width, with fewer gradient steps than the study
takes. Chosen, for the study's `policy.width_m`, is the widest whose held-out loss is at most 1 %
above the least: so few rollouts cannot distinguish closer losses, and wide kernels need fewer
    features.
"""

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch

from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from policies.place_memory.config import PlaceMemoryConfig
from training.algorithms.bc_config import BCConfig
from training.algorithms.dagger import fit, validate
from training.algorithms.labelled_rollouts import Demonstrations, LabellingWorker, Task
from training.analysis.arguments import positive
from training.collect.seeds import VALIDATION_SEEDS_FROM
from training.compare.config import load_config, study_file
from training.compare.runs import load_jobs
from training.io import config as configuration
from training.io.config import UserError
from training.runner import build_policy

STUDY = "configs/studies/remembered_terrain.yaml"
WIDTHS_M = (0.02, 0.03, 0.042, 0.06, 0.09, 0.16)
HELD_OUT = 0.25
TIED = 0.01


def jobs(study: str, wanted: Sequence[str]) -> dict[str, BCConfig]:
    """Cloning runs of the variants with linear attention over given places, by name, without
    repeated policies; either the wanted ones or all. Raises UserError if a wanted one does not
    exist."""
    path = study_file(study)
    config = load_config(path)
    found: dict[str, BCConfig] = {}
    for variant in config.arms:
        job = load_jobs(config, path, variant, config.seeds[0])[0]
        policy, known = job.policy, [other.policy for other in found.values()]
        if not isinstance(policy, PlaceMemoryConfig) or policy in known:
            continue
        if (policy.memory, policy.keys) == ("linear", "geometry"):
            found[variant.name] = job
    for name in wanted:
        if name not in found:
            raise UserError(f"--variants must be of {', '.join(found)}, got {name}")
    return {name: found[name] for name in found if not wanted or name in wanted}


def collected(job: BCConfig, walks: int) -> Demonstrations:
    """Rollouts of the expert with noise on validation terrains."""
    seeds = range(VALIDATION_SEEDS_FROM, VALIDATION_SEEDS_FROM + walks)
    tasks = [Task(seed, job.disturbance, job.disturbance_steps) for seed in seeds]
    plain = configuration.dump(job)["policy"]
    with closing(LabellingWorker(job.env_id, job.env, plain)) as worker:
        return Demonstrations.of([worker.run(task) for task in tasks], HELD_OUT, True)


def loss(job: BCConfig, data: Demonstrations, width_m: float, updates: int) -> float:
    """Held-out loss of a variant cloned with a width."""
    assert isinstance(job.policy, PlaceMemoryConfig)
    settings = dataclasses.replace(job.policy, width_m=width_m)
    job = dataclasses.replace(job, policy=settings, updates=updates)
    policy: Any = build_policy(job.env_id, job.env, settings)
    train, held_out = data.prepared(policy).split()
    policy.set_statistics(train.observations)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=job.learning_rate)
    generator = torch.Generator().manual_seed(job.seed)
    fit(policy, optimiser, train, job, 1, generator, part_size=job.batch_size)
    return validate(policy, held_out, job.speed_weight)[0]


def chosen(widths_m: Sequence[float], losses: Sequence[float]) -> float:
    """The widest that is as good as the best, by held-out loss."""
    enough = (1 + TIED) * min(losses)
    return max(width for width, loss in zip(widths_m, losses, strict=True) if loss <= enough)


def draw(rows: Rows) -> Any:
    """Held-out loss by width, one line per variant."""
    return figure.plot(rows, "widths_m", "losses", "arm", scales=("log", "linear"))


def measure(arguments: Arguments) -> Rows:
    """One entry per variant: losses by width and the chosen width. Raises UserError."""
    if arguments.walks < 2:
        raise UserError(f"--walks must be at least 2, one of them held out, got {arguments.walks}")
    widths_m = WIDTHS_M[1::2] if arguments.quick else WIDTHS_M
    updates = min(arguments.updates, 20) if arguments.quick else arguments.updates
    variants = jobs(arguments.study, arguments.variants)
    if not variants:
        raise UserError(f"{arguments.study} has no variant with linear memory of given places")
    data: dict[str, Demonstrations] = {}
    rows: Rows = []
    for name, job in variants.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        job = dataclasses.replace(job, seed=arguments.seed)
        key = repr(job.env)
        if key not in data:
            data[key] = collected(job, arguments.walks)
        losses = [loss(job, data[key], width_m, updates) for width_m in widths_m]
        chosen_m = chosen(widths_m, losses)
        rows.append({"arm": name, "widths_m": widths_m, "losses": losses, "chosen_m": chosen_m})
    return rows


def show(rows: Rows) -> Lines:
    """Held-out losses by variant and width, and the chosen width, in cm."""
    table = [
        (row["arm"], *(f"{loss:.3f}" for loss in row["losses"]), f"{100 * row['chosen_m']:g}")
        for row in rows
    ]
    widths = (f"{100 * width:g}" for width in rows[0]["widths_m"])
    yield from figure.lines(("held-out loss, width (cm)", *widths, "chosen"), table, 34, 8)


main = figure.command(
    measure, show, draw,
    figure.option("--study", default=STUDY, help="default %(default)s"),
    figure.option("--variants", "--arms", nargs="+", default=[], metavar="VARIANT",
                  dest="variants", help="default: all"),
    figure.option("--walks", type=positive, default=16, help="default %(default)s"),
    figure.option("--updates", type=positive, default=400, help="default %(default)s"),
)  # fmt: skip
