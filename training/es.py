"""Train a policy by evolution strategies: `python -m training.es` (README, "Train")."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: more threads slow the simulator

import argparse
import dataclasses
import math
import time
from contextlib import closing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np
import torch

import policies
from policies import ImplicitAttentionPolicy as Policy
from training import checkpoint, run_log, searchers
from training import config as configuration
from training.config import UserError
from training.es_config import FREE_ON_RESUME, ESConfig, describe, load_config
from training.workers import (
    EVALUATION_SEEDS_FROM,
    Outcome,
    Pool,
    Setup,
    Task,
    get_parameters,
    open_pool,
    set_parameters,
)

__all__ = ["ESConfig", "load_config", "main", "train"]

COLUMNS = (
    "iteration", "env_steps", "episodes", "reward_mean", "reward_max", "center_reward",
    "center_distance_m", "center_success", "success_rate", "fall_rate", "distance_m_mean",
    "level", "sigma", "wall_s",
)  # fmt: skip


@dataclass
class Progress:
    """Counters of a run; with the policy and the searcher, all that a checkpoint holds."""

    iteration: int = 0
    env_steps: int = 0
    episodes: int = 0
    level: int = 0
    recent_success: list[float] = field(default_factory=list)
    """Population's success rates at this level, the last `advance_window` of them."""

    def advance(self, config: ESConfig, success_rate: float) -> None:
        """Go to the next level of the curriculum when this one is mastered."""
        self.recent_success = [*self.recent_success, success_rate][-config.advance_window :]
        mastered = (
            len(self.recent_success) == config.advance_window
            and float(np.mean(self.recent_success)) >= config.advance_at
        )
        if mastered and self.level + 1 < len(config.curriculum):
            self.level += 1
            self.recent_success = []


def derived_seeds(run_seed: int, iteration: int, group: int, count: int) -> list[int]:
    """Episode seeds below those for evaluation, a function of these numbers alone."""
    sequence = np.random.SeedSequence(run_seed, spawn_key=(iteration, group))
    return [int(word) % EVALUATION_SEEDS_FROM for word in sequence.generate_state(count, np.uint64)]


_SEARCH, _CENTER, _POPULATION, _FIRST_PAIR = 0, 1, 2, 3


def make_tasks(
    config: ESConfig, progress: Progress, center: torch.Tensor, population: torch.Tensor,
    statistics: policies.RunningStatistics,
) -> list[Task]:  # fmt: skip
    """The iteration's episodes: the centre's, then every candidate's, terrain by terrain."""
    options = dict(config.curriculum[progress.level]) if config.curriculum else {}

    def seeds(group: int, count: int) -> list[int]:
        return derived_seeds(config.seed, progress.iteration, group, count)

    pairs = config.common_terrains == "pair"
    tasks = [Task(center, statistics, s, options) for s in seeds(_CENTER, config.center_terrains)]
    for index, candidate in enumerate(population):
        group = _FIRST_PAIR + index // 2 if pairs else _POPULATION
        tasks += [Task(candidate, statistics, s, options) for s in seeds(group, config.terrains)]
    return tasks


def merge_statistics(policy: Policy, outcomes: list[Outcome]) -> None:
    """Add the proprioception of all episodes, in order, to the policy's normaliser."""
    total = policy.normaliser.statistics
    for outcome in outcomes:
        total = total.merge(outcome.statistics)
    policy.normaliser.statistics = total


def build_policy(config: ESConfig) -> tuple[Policy, float]:
    """The initial policy, and the simulated seconds that a step lasts (NaN if unknown)."""
    with checkpoint.make_env(config.env_id, config.env) as env:
        try:
            policy = policies.build(config.policy, env.observation_space, env.action_space)
        except ValueError as error:
            raise UserError(f"cannot build the policy for {config.env_id}: {error}") from None
        step_s = 1 / env.metadata["render_fps"] if "render_fps" in env.metadata else math.nan
    return policy, step_s


def save(
    run: Path, policy: Policy, searcher: searchers.Searcher, progress: Progress,
    config: ESConfig,
) -> None:  # fmt: skip
    """Write the iteration's checkpoint (the policy at the search's centre); drop old ones."""
    set_parameters(policy, searcher.center)
    tensors, numbers = searcher.state()
    state = {"progress": dataclasses.asdict(progress), "search": numbers}
    path = run / run_log.CHECKPOINTS / f"{progress.iteration:06d}.safetensors"
    checkpoint.save(path, policy.state_dict(), tensors, configuration.dump(config), state)
    for old in checkpoint.in_run(run)[1 : -config.checkpoints_kept]:
        old.unlink()


def train(config: ESConfig, run: Path, start: checkpoint.Checkpoint | None = None) -> None:
    """Train in the run directory `run`, from the beginning or from the checkpoint `start`."""
    policy, step_s = build_policy(config)
    if start is None and config.init_from is not None:
        checkpoint.load_into(policy, checkpoint.load(checkpoint.resolve(config.init_from)))
    try:
        searcher = searchers.build(config.searcher, get_parameters(policy), config.popsize)
    except ValueError as error:
        raise UserError(str(error)) from None
    progress = Progress()
    if start is None:
        save(run, policy, searcher, progress, config)
    else:
        checkpoint.load_into(policy, start)
        searcher.load_state(start.search, start.state["search"])
        progress = Progress(**start.state["progress"])
    print(f"{len(searcher.center)} parameters, {config.searcher.name}, in {run}", flush=True)
    if progress.iteration >= config.iterations:
        return
    if config.workers > 1 or config.ray_address:
        where = config.ray_address or "this machine"
        print(f"starting {config.workers} Ray workers on {where} ...", flush=True)
    plain = configuration.dump(config)
    setup = Setup(config.env_id, config.env, plain["policy"], policy.state_dict())
    with (
        closing(open_pool(setup, config.workers, config.ray_address)) as pool,
        closing(
            run_log.RunLog(run, COLUMNS, iteration=progress.iteration, total=config.iterations)
        ) as log,
    ):
        learn(config, run, policy, searcher, progress, pool, log, step_s)


def learn(
    config: ESConfig, run: Path, policy: Policy, searcher: searchers.Searcher,
    progress: Progress, pool: Pool, log: run_log.RunLog, step_s: float,
) -> None:  # fmt: skip
    """The training loop: ask, evaluate, tell, log, save."""
    earlier_s = float(log.last.get("wall_s", 0.0))
    began = time.perf_counter()
    while progress.iteration < config.iterations:
        lap = time.perf_counter()
        progress.iteration += 1

        population = searcher.ask(derived_seeds(config.seed, progress.iteration, _SEARCH, 1)[0])
        statistics = policy.normaliser.statistics
        tasks = make_tasks(config, progress, searcher.center, population, statistics)

        outcomes = pool.run(tasks)
        center = [outcome.episode for outcome in outcomes[: config.center_terrains]]
        candidates = [outcome.episode for outcome in outcomes[config.center_terrains :]]
        rewards = np.array([e.reward for e in candidates]).reshape(config.popsize, -1)
        returns = torch.from_numpy(rewards.mean(1))

        searcher.tell(population, returns)
        merge_statistics(policy, outcomes)

        now = time.perf_counter()
        steps = sum(outcome.episode.steps for outcome in outcomes)
        success_rate = float(np.mean([e.success for e in candidates]))
        progress.env_steps += steps
        progress.episodes += len(outcomes)
        row = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "episodes": progress.episodes,
            "reward_mean": float(returns.mean()),
            "reward_max": float(returns.max()),
            "center_reward": float(np.mean([e.reward for e in center])),
            "center_distance_m": float(np.mean([e.distance_m for e in center])),
            "center_success": float(np.mean([e.success for e in center])),
            "success_rate": success_rate,
            "fall_rate": float(np.mean([e.fell for e in candidates])),
            "distance_m_mean": float(np.mean([e.distance_m for e in candidates])),
            "level": progress.level,
            "sigma": searcher.sigma,
            "wall_s": round(earlier_s + now - began, 3),
        }
        progress.advance(config, success_rate)
        speed = steps / (now - lap)
        rate = f"{speed:.0f} steps/s" if math.isnan(step_s) else f"{speed * step_s:.1f} sim-s/s"
        log.row(row, f"reward {row['center_reward']:.3g}, level {row['level']}, {rate}")
        save(run, policy, searcher, progress, config)


def start_run(args: argparse.Namespace) -> tuple[ESConfig, Path, checkpoint.Checkpoint | None]:
    """What the command line asks for: configuration, run directory, checkpoint to go on from."""
    if args.resume is None:
        packaged = resources.files("configs") / "stepping_stones.yaml"
        config = load_config(args.config or Path(str(packaged)), args.set)
        run = Path(args.out) if args.out else run_log.new_directory(config.env_id)
        if config.init_from is not None:
            checkpoint.load(checkpoint.resolve(config.init_from))
        run_log.create(run, configuration.dump(config))
        return config, run, None
    run = Path(args.resume)
    if args.out is not None and Path(args.out) != run:
        raise UserError(f"--resume {run} writes there, so --out {args.out} cannot be given too")
    saved = run / run_log.CONFIG
    if not saved.is_file():
        raise UserError(f"{run} holds no run to resume: there is no {saved}")
    config = load_config(args.config or saved, args.set)
    before, after = configuration.dump(load_config(saved, [])), configuration.dump(config)
    changed = [key for key in before if before[key] != after[key] and key not in FREE_ON_RESUME]
    if changed:
        raise UserError(
            f"{changed[0]} = {after[changed[0]]!r} differs from {before[changed[0]]!r} in {saved}; "
            f"a resumed run may change {', '.join(FREE_ON_RESUME)} alone"
        )
    paths = checkpoint.in_run(run)
    return config, run, checkpoint.load(paths[-1]) if paths else None


def main(argv: list[str] | None = None) -> int:
    """Command line of `python -m training.es` and `foveate-es`; returns the exit status."""
    return configuration.exit_status(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    torch.set_num_threads(1)
    parser = configuration.ArgumentParser(
        prog="python -m training.es",
        description="Train a policy by evolution strategies.",
        epilog=f"fields of the configuration, for --set and --config, with defaults:\n{describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML (default: stepping_stones.yaml)")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/<env>-<time>)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        help="set fields of the configuration, dotted where nested",
    )  # fmt: skip
    args = parser.parse_args(argv)
    config, run, start = start_run(args)
    try:
        with run_log.lock(run):
            if args.resume is not None:
                iteration = start.state["progress"]["iteration"] if start else 0
                run_log.record_resume(run, iteration, configuration.dump(config))
            train(config, run, start)
    except KeyboardInterrupt:
        latest = checkpoint.in_run(run)
        at = f"{latest[-1].stem} is saved" if latest else "nothing was trained yet"
        print(f"\ninterrupted; iteration {at}; go on with: python -m training.es --resume {run}")
        return 130
    print(
        f"done: {config.iterations} iterations in {run}; next:\n"
        f"  python -m training.rollout {run} --video walk.mp4     see it\n"
        f"  python -m training.evaluate {run} --out evaluation     measure it on unseen terrain\n"
        f"  tensorboard --logdir {run}                       the curves\n"
        f"  python -m training.es --resume {run} --set iterations={2 * config.iterations}"
        "     train on"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
