"""Walks on felt ground with every memory of what was felt.

    python -m experiments.robots.felt_ground --out runs/felt_ground

In each world (`felt_ground` of SteppingStones-v0) the settings of each memory are chosen on
terrains of training (`--tuning`): those of least log loss on the tiles beyond a trial strip, after
what was felt until then, with the two numbers that turn a read into a risk. Then every memory walks
the same unseen terrains; all else of the policy is equal. Controls: the oracle, which knows the
tiles; steps without an offset, all that depth says here; and random offsets, both steered by the
true position. On curves, noise, samples or the number of kinds change while memories keep the
settings tuned for that world; where labels change, they are tuned anew. Interrupted, the command
resumes at the next walk. Intervals are 95 %, over terrains.
"""

import dataclasses
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

import envs
import policies
from envs.stepping_stones.felt_config import FeltGroundConfig
from experiments import figure
from experiments.felt_ground import felt_memories, felt_networks
from experiments.felt_ground.felt_memories import grid_of
from experiments.felt_ground.worlds import Episodes
from experiments.figure import Arguments, Lines, Row, Rows
from policies.felt_ground.config import FeltGroundPolicyConfig
from policies.felt_ground.memories import FeltMemory, felt_memory
from policies.felt_ground.memory_config import FeltMemoryConfig
from policies.felt_ground.policy import key_dim
from training.analysis.arguments import EVALUATION_SEED, positive
from training.analysis.intervals import mean_interval, share_interval
from training.collect.episode import run_episode
from training.command.errors import did_you_mean
from training.command.files import read_bytes, writing
from training.io.config import UserError

SETTINGS: dict[str, Any] = {
    "cameras": ("front",),
    "front_camera": {"pitch_deg": 45},
}


def with_strip(tiles: int) -> Row:
    """Settings of a trial strip of so many tiles; its time is in proportion."""
    return {"strip_tiles": tiles, "strip_s": 7 / 32 * tiles - 0.5, "row_m": 8.0 + tiles / 4}


WORLDS: dict[str, Row] = {
    "vectors": {"world": "vectors", "kinds": 8, **with_strip(16)},
    "conjunctions": {"world": "conjunctions", "kinds": 16, **with_strip(32)},
    "pictures": {"world": "pictures", "kinds": 8, "textures": "unseen", **with_strip(16)},
    "smooth": {"world": "smooth", **with_strip(32)},
}
"""Two tiles of each kind lie on the trial strip."""
UNTOLD = "strip unknown"
"""Worlds where the policy has no `careful_m`, which comes from the length of the strip."""
CURVES: dict[str, Row] = {
    **{f"vectors, noise {noise}": {"tile_noise": noise} for noise in (0.5, 0.8)},
    **{f"vectors, {n} kinds": {"kinds": n, **with_strip(2 * n)} for n in (4, 16, 32)},
    **{f"conjunctions, {n} a kind": with_strip(16 * n) for n in (1, 4)},
    "labels change": {**WORLDS["vectors"], "labels_change": True, **with_strip(32)},
    **{f"{world}, {UNTOLD}": {} for world in WORLDS},
}
"""Worlds of curves: changes of the world before the comma, by whose tuning memories walk there."""
CURVE_TERRAINS = 30
CONTROLS = ("oracle", "depth only", "random")
_RATES = (0.5, 0.8, 1.0)
MEMORIES = {
    "none": grid_of(kind=("none",)),
    "exact": grid_of(kind=("exact",), kappa=(6.0, 12.0, 24.0, 48.0)),
    "leader": grid_of(kind=("leader",), capacity=(32,), threshold=(0.7, 0.8, 0.85, 0.9, 0.95)),
    "leader, 14 prototypes": grid_of(
        kind=("leader",), capacity=(14,), threshold=(0.7, 0.8, 0.85, 0.9, 0.95)
    ),
    "linear, delta, quadratic": grid_of(
        feature_map=("quadratic",), num_features=(10_000,), kappa=(4.0, 16.0, 64.0), rate=_RATES
    ),
    "linear, delta, trig": grid_of(num_features=(128,), kappa=(4.0, 6.0, 8.0, 12.0), rate=_RATES),
    "linear, delta, trig, 1,024": grid_of(
        num_features=(512,), kappa=(4.0, 6.0, 8.0, 12.0), rate=_RATES
    ),
    "raw keys, delta": grid_of(feature_map=("raw",), kappa=(1.0, 4.0), rate=(0.1, 0.3, 0.7)),
    "least squares": grid_of(
        kind=("least_squares",), feature_map=("raw",), kappa=(1.0, 10.0), ridge=(0.3, 1.0, 3.0)
    ),
    "linear, sum, trig": grid_of(num_features=(128,), kappa=(2.0, 4.0, 8.0), rule=("sum",)),
    "nearest": grid_of(kind=("nearest",)),
    "grid": grid_of(kind=("grid",), directions=(4, 8), bins=(2, 4), tables=(1, 4)),
}
"""Settings from which each memory's are chosen."""
_KEPT = (0.97, 0.9, 0.7)
FORGETTING = {
    f"{name}, forgetting": [
        dataclasses.replace(config, forgetting=kept)
        for config in MEMORIES[name]
        for kept in factors
    ]
    for name, factors in {
        "exact": _KEPT,
        "leader": (0.9, 0.7, 0.5, 0.3),
        "least squares": _KEPT,
        "linear, sum, trig": _KEPT,
    }.items()
}
"""Memories that discount earlier samples, for the world where labels change."""
ON_CURVES = ("linear, delta, trig", "leader", "leader, 14 prototypes", "exact", "least squares")
SEEDS = 3
"""Draws of random features, in turn over the terrains."""
GRU = "gru"
"""A network that `experiments.felt_ground.felt_networks` trained; `--networks` names its folder."""
ARMS = (*CONTROLS, *MEMORIES, GRU, *FORGETTING)
_EXPLORER = FeltMemoryConfig(kind="leader", capacity=32, threshold=0.9)
_AHEAD_M = 0.35  # of the base, where the fore feet land
_ODDS = 6.0  # log odds, at most, of a calibrated risk without any sample


class Stream(NamedTuple):
    """What was felt in a walk, and the tiles beyond the trial strip."""

    keys: Tensor
    """Appearances felt, (samples, d)."""
    values: Tensor
    """(samples, 1)"""
    asked: Tensor
    """Appearances of the tiles, as each comes within reach, (questions, d)."""
    truth: Tensor
    """(questions,), 1 for tiles that give way."""
    before: list[int]
    """Samples before each question, in order."""


def tiles_of(world: str, **changes: Any) -> Row:
    """Settings of a world's tiles, with changes."""
    return {**WORLDS.get(tuned_as(world), {}), **CURVES.get(world, {}), **changes}


def tuned_as(world: str) -> str:
    """The world for which memories that walk in this one are tuned."""
    return world.partition(",")[0]


def careful(world: str) -> Row:
    """Setting of the policy: the distance for which it steps on all ground, a little less than the
    strip, or none."""
    if world.endswith(UNTOLD):
        return {"careful_m": None}
    return {"careful_m": round(0.15 * tiles_of(world)["strip_tiles"] - 0.2, 2)}


def make(world: str, **changes: Any) -> gymnasium.Env[Any, Any]:
    """The environment of a world, with changes of its tiles."""
    felt = tiles_of(world, **changes)
    return gymnasium.make(envs.STEPPING_STONES, felt_ground=felt, **SETTINGS)


def recorded(world: str, seeds: Iterable[int]) -> Iterator[Stream]:
    """Streams of walks with prototypes as memory."""
    with make(world, textures="training") as env:
        own: Any = env.unwrapped
        config = FeltGroundPolicyConfig(felt=_EXPLORER, **careful(world))
        policy: Any = policies.build_for(config, env)
        kept: list[tuple[Tensor, Tensor]] = []
        write = policy.memory.write

        def noted(state: Any, keys: Tensor, values: Tensor, *, gates: Tensor) -> Any:
            taken = gates[0] > 0
            kept.extend(zip(keys[0, taken], values[0, taken], strict=True))
            return write(state, keys, values, gates=gates)

        policy.memory.write = noted
        for seed in seeds:
            kept.clear()
            observation, _ = env.reset(seed=seed)
            policy.reset()
            asked, truth, before, seen = [], [], list[int](), set[int]()
            done, row = False, own._stones
            middles = row.tiles_m.mean(1)
            while not done:
                action = policy.act(observation)
                memory = policy._memory.seen
                x = own._state.position_m[0]
                near = (middles > row.strip_end_m) & (middles < x + _AHEAD_M)
                for tile in set(np.flatnonzero(near).tolist()) - seen:
                    place = memory.odometry[0, 0] + float(middles[tile] - x)
                    key, tells = policy._remembered_looks(memory.written.places, place.view(1, 1))
                    if tells.any():
                        before.append(len(kept))
                        asked.append(key[0, 0])
                        truth.append(float(row.false[tile]))
                        seen.add(tile)
                observation, _, terminated, truncated, _ = env.step(action)
                done = terminated or truncated
            if asked:
                keys, values = (torch.stack(part) for part in zip(*kept, strict=True))
                yield Stream(keys, values, torch.stack(asked), torch.tensor(truth), before)


def memory_of(config: FeltMemoryConfig, dim: int, networks: str | None = None) -> FeltMemory:
    """A memory, with the weights of `networks` if it must be trained."""
    if config.kind == GRU:
        return felt_networks.load(GRU, networks or ".")
    return felt_memory(config, dim)


def scores(config: FeltMemoryConfig, streams: list[Stream], networks: str | None = None) -> Tensor:
    """What a memory answers to all questions, each after the samples before it, (questions,)."""
    found = []
    for stream in streams:
        memory = memory_of(config, stream.keys.shape[-1], networks)
        state, written = memory.initial_state(1), 0
        for asked, count in zip(stream.asked, stream.before, strict=True):
            keys, values = stream.keys[written:count], stream.values[written:count]
            state, written = memory.write(state, keys[None], values[None]), count
            found.append(memory.read(state, asked[None, None])[0, 0, 0])
    return torch.stack(found)


def calibrated(read: Tensor, truth: Tensor) -> tuple[float, float, float]:
    """Log loss, sharpness and prior risk of the best logistic regression of the truth by a read."""
    numbers = torch.tensor([1.0, 0.0], requires_grad=True)
    optimiser = torch.optim.LBFGS([numbers], max_iter=60)

    def loss() -> Tensor:
        odds = numbers[0] * read + numbers[1]
        penalty = 1e-3 * numbers.square().sum()
        return torch.nn.functional.binary_cross_entropy_with_logits(odds, truth) + penalty

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call, unused-ignore]
    sharpness, offset = numbers.detach().tolist()
    prior = 1 / (1 + np.exp(-np.clip(offset, -_ODDS, _ODDS)))
    return float(loss().detach()), float(np.clip(sharpness, 1e-3, 100)), float(prior)


def tuned(
    world: str, walks: int, names: Iterable[str], networks: str | None = None
) -> dict[str, Row]:
    """The chosen settings of memories."""
    streams = [*recorded(world, range(walks))]
    truth = torch.cat([stream.truth for stream in streams])
    found = {}
    for name in names:
        known = {**MEMORIES, **FORGETTING, GRU: [felt_networks.NETWORKS[GRU]]}
        configs, fits = known[name], []
        for config in configs:
            with torch.no_grad():
                read = scores(config, streams, networks)
            fits.append((*calibrated(read, truth), dataclasses.asdict(config)))
        loss, sharpness, prior, felt = min(fits, key=lambda fit: fit[0])
        own = {"felt": felt, "sharpness": round(sharpness, 3), "prior_risk": round(prior, 4)}
        found[name] = {"loss": loss, "of": len(configs), "walks": walks, "policy": own}
    return found


class Control:
    """Offsets without knowledge of the tiles, or the oracle's; all are steered by the oracle."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        self._env: Any = env.unwrapped
        self._name = name
        self._rng = np.random.default_rng(0)

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any) -> Any:
        """The action."""
        action = self._env.expert_action()
        if self._name == "depth only":
            action[:4] = 0
        elif self._name == "random":
            action[:4] = self._rng.uniform(-1, 1, 4)
        return action


def policy_of(
    arm: str, settings: Row, env: gymnasium.Env[Any, Any], networks: str | None = None
) -> Any:
    """The policy of an arm."""
    if arm in CONTROLS:
        return Control(env, arm)
    config = FeltGroundPolicyConfig(**{**settings, "felt": FeltMemoryConfig(**settings["felt"])})
    policy = policies.build_for(config, env)
    if arm == GRU:
        policy.memory = memory_of(config.felt, felt_networks.DIM, networks)
    return policies.compile_act(policy)


class Timed:
    """A policy whose decisions are timed."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.ms = policy, list[float]()

    def reset(self) -> None:
        """Begin an episode."""
        self.policy.reset()

    def act(self, observation: Any) -> Any:
        """The action."""
        start = time.process_time()
        action = self.policy.act(observation)
        self.ms.append(1e3 * (time.process_time() - start))
        return action


def walk(env: gymnasium.Env[Any, Any], policy: Timed, seed: int) -> Row:
    """The outcome of one terrain."""
    policy.ms.clear()
    episode = run_episode(env, policy, seed)
    felt = getattr(getattr(policy.policy, "_memory", None), "seen", None)
    taken: Any = getattr(getattr(felt, "written", None), "felt", None)
    return {
        "seed": seed,
        "success": int(bool(episode.success)),
        "reward": round(episode.reward, 5),
        "fell": int(bool(episode.info["fell"])),
        "distance_m": round(float(episode.info["distance_m"]), 3),
        "samples": int(taken.taken[0, 0]) if hasattr(taken, "taken") else None,
        "ms": round(statistics.median(policy.ms), 3),
    }


@torch.no_grad()
def cost(settings: Row, dim: int, samples: float | None) -> Row:
    """Numbers that a memory carries, and FLOPs of reading one appearance; of memories that keep
    samples, of as many as a walk takes."""
    config = FeltMemoryConfig(**settings["felt"])
    if samples is not None:
        config = dataclasses.replace(config, capacity=max(1, round(samples)))
    key = torch.nn.functional.normalize(torch.ones(1, 1, dim), dim=-1)
    one = Episodes(key, torch.ones(1, 1, 1), key, torch.ones(1, 1))
    return felt_memories.cost(felt_memory(config, dim), one)


def dim_of(world: str) -> int:
    """Dimension of the keys of a world's appearances."""
    is_picture = tiles_of(world)["world"] == "pictures"
    return key_dim(3 if is_picture else FeltGroundConfig().dim, is_picture)


def _chosen(given: list[str] | None, known: Iterable[str], option: str) -> list[str]:
    names = [*known]
    for name in given or ():
        if name not in names:
            raise UserError(f"{option} {name} is unknown{did_you_mean(name, names)}")
    return [*(given or names)]


def _read(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path)) if path.exists() else {}
    except (OSError, ValueError):
        raise UserError(f"{path} is not a file of this command; give another --out") from None


def measure(arguments: Arguments) -> Any:
    """Every arm on every terrain in every world; finished walks are read from --out."""
    chosen = _chosen(arguments.worlds, (*WORLDS, *CURVES), "--worlds")
    arms = _chosen(arguments.arms, ARMS, "--arms")
    terrains, walks = arguments.terrains, arguments.tuning
    if arguments.quick:
        terrains, walks = 2, 2
    seeds = range(EVALUATION_SEED + arguments.seed, EVALUATION_SEED + arguments.seed + terrains)
    folder = None if arguments.out is None else Path(arguments.out)
    if folder is not None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"tuning": {}, "walks": [], "curves": []}
    for world in chosen:
        part, in_world = ("walks", seeds) if world in WORLDS else ("curves", seeds[:CURVE_TERRAINS])
        base = tuned_as(world)
        path = None if folder is None else folder / f"tuning_{_name(base)}.json"
        found = results["tuning"].get(base, {} if path is None else _read(path))
        given = arguments.arms or arguments.finished
        own = [arm for arm in (arms if given else arms_of(world, arguments.networks))
               if arm != GRU or world != "pictures"]  # fmt: skip
        due = [] if arguments.finished else [*set(own).difference(found, CONTROLS)]
        if due:
            found = {**found, **tuned(base, walks, due, arguments.networks)}
            if path is not None:
                with writing(path):
                    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        results["tuning"][base] = found
        for arm in own:
            if not arguments.finished or not missing(folder, world, arm, in_world):
                fit = found.get(arm, {})
                results[part] += _walked(world, arm, fit, in_world, folder, arguments.networks)
    return results


def arms_of(world: str, networks: str | None = None) -> list[str]:
    """Arms that walk in a world by default."""
    if world.endswith(UNTOLD):
        return [*ON_CURVES[:2]]
    if world in CURVES:
        changes = ("linear, sum, trig", *FORGETTING) if world == "labels change" else ()
        return [*ON_CURVES, *changes]
    return [*CONTROLS, *MEMORIES, *([] if networks is None else [GRU])]


def missing(folder: Path | None, world: str, arm: str, seeds: range) -> list[int]:
    """Terrains that an arm has not walked."""
    rows = {} if folder is None else _rows(_file(folder, world, arm))
    return [seed for seed in seeds if seed not in rows]


def _file(folder: Path, world: str, arm: str) -> Path:
    return folder / f"walks_{_name(world)}_{_name(arm)}.jsonl"


def _name(text: str) -> str:
    return text.replace(", ", "_").replace(" ", "_")


def _rows(path: Path) -> dict[int, Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["seed"]: row for row in map(json.loads, lines)}


def _seeded(fit: Row) -> list[Row]:
    """Settings of a policy with each seed of its memory's random features, or as they are."""
    settings = fit.get("policy", {})
    felt = settings.get("felt", {})
    if felt.get("kind") != "linear" or felt["feature_map"] in ("raw", "quadratic"):
        return [settings]
    return [{**settings, "felt": {**felt, "seed": seed}} for seed in range(SEEDS)]


def _walked(
    world: str, arm: str, fit: Row, seeds: range, folder: Path | None, networks: str | None = None
) -> Rows:
    """The walks of an arm; new ones are appended to its file as they end."""
    path = None if folder is None else _file(folder, world, arm)
    rows = {} if path is None else _rows(path)
    due = missing(folder, world, arm, seeds)
    if due:
        with make(world) as env:
            changed = careful(world) if "policy" in fit else {}
            made = [Timed(policy_of(arm, {**own, **changed}, env, networks))
                    for own in _seeded(fit)]  # fmt: skip
            for seed in due:
                rows[seed] = walk(env, made[seed % len(made)], seed)
                if path is not None:
                    with writing(path), path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[seed]) + "\n")
    return [{"world": world, "memory": arm, **rows[seed]} for seed in seeds]


def summary(results: Any) -> Rows:
    """Figures of each world and memory."""
    found = []
    walks = results["walks"] + results.get("curves", [])
    for world in figure.unique(walks, "world"):
        for arm in figure.unique(figure.select(walks, world=world), "memory"):
            rows = figure.select(walks, world=world, memory=arm)
            success, reward = (np.array([figure.column(rows, key)], float)
                               for key in ("success", "reward"))  # fmt: skip
            row = {"world": world, "memory": arm, "terrains": len(rows)}
            for key, values, interval in (("success", success, share_interval),
                                          ("reward", reward, mean_interval)):  # fmt: skip
                row[key] = float(values.mean())
                row[f"{key}_low"], row[f"{key}_high"] = interval(values)
            row["ms"] = float(np.median(figure.column(rows, "ms")))
            row |= {"numbers": None, "flops": None}
            if arm not in CONTROLS:
                samples = [row["samples"] for row in rows if row["samples"] is not None]
                mean = float(np.mean(samples)) if samples else None
                settings = results["tuning"][tuned_as(world)][arm]["policy"]
                row |= cost(settings, dim_of(world), mean)
            found.append(row)
    return found


def show(results: Any) -> Lines:
    """A table a world."""
    rows = summary(results)
    columns = {"memory": "{memory}", "success, %": "{percent:.1f}", "interval": "{between}",
               "reward": "{reward:.3f}", "its interval": "{rewards}", "numbers": "{numbers}",
               "FLOPs a read": "{flops}", "ms": "{ms:.2f}"}  # fmt: skip
    for world in figure.unique(rows, "world"):
        chosen = figure.select(rows, world=world)
        yield f"\n{world}, {chosen[0]['terrains']} terrains"
        shown = [
            {**row, "percent": 100 * row["success"],
             "between": f"{100 * row['success_low']:.0f} to {100 * row['success_high']:.0f}",
             "rewards": f"{row['reward_low']:.2f} to {row['reward_high']:.2f}"}
            for row in chosen
        ]  # fmt: skip
        yield from figure.table(shown, columns, 28, 12, 12, 9, 14, 9, 14, 8)


main = figure.command(
    measure, show, None,
    figure.option("--terrains", type=positive, default=100,
                  help=f"default %(default)s; on curves at most {CURVE_TERRAINS}"),
    figure.option("--tuning", type=positive, default=24, help="walks (default %(default)s)"),
    figure.option("--finished", action="store_true",
                  help="leave out memories that have not walked all terrains in --out"),
    figure.option("--networks", metavar="FOLDER",
                  help="weights of felt_networks, for the memory gru; not of pictures"),
    figure.option("--worlds", nargs="+", metavar="WORLD",
                  help=f"of {'; '.join((*WORLDS, *CURVES))}"),
    figure.option("--arms", nargs="+", metavar="MEMORY", help=f"of {'; '.join(ARMS)}"),
)  # fmt: skip
