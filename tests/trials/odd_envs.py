"""Environments that break one rule at a time against every command that runs one.

    python -m tests.trials.odd_envs --count 200 --seed 0 --out odd

Each variant draws a rule, its values and two or three commands from the seed. A command must end
with status 0 and finite results, or with status 2 and one sentence that names the environment.
Variants that change nothing an agent can see, such as an
observation whose memory is reused, must give the results of the plain environment, bit for bit.
"""

from __future__ import annotations

import csv
import decimal
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file

import envs
from tests.training.fuzzed_env import STEPS, FuzzedEnv
from tests.trials import forked
from tests.trials.fuzz import LATE
from tests.trials.kills import contents, differences
from tests.trials.many import Found, many

ENV = "tests.trials.odd_envs:Odd-v0"
PLAIN = -1
"""The variant that breaks no rule."""
TRAINED = {
    "es": ["searcher.name=ars", "popsize=4", "terrains=1", "center_terrains=1"],
    "bc": ["expert_episodes=2", "episodes=2", "updates=2"],
    "ppo": ["steps=12", "episodes=2", "batch_size=6", "n_epochs=1"],
}
COMMANDS = (*TRAINED, "demos", "evaluate", "rollout", "video", "sight", "export")
_LOOP: list[Any] = []
_LOOP.append(_LOOP)


class UnprintableError(Exception):
    """An exception that cannot be printed or sent to another process."""

    def __str__(self) -> str:
        raise ValueError("no text")

    def __reduce__(self) -> Any:
        raise TypeError("not to be sent")


VALUES: tuple[Any, ...] = (
    None, "x", "", b"x", True, -1, 0.5, 1e308, 10**400, 2**70, math.nan, math.inf, -math.inf, 1j,
    [], {}, (), {1}, [[1], [1, 2]], _LOOP, object(), len, decimal.Decimal("0.5"), np.zeros(3),
    np.zeros((0,)), np.float16(3), np.datetime64("now"), np.ma.masked, np.array(None, object),
    np.zeros(2, [("a", "f4")]), np.zeros((1,) * 40), torch.tensor(1.0), np.float32("nan"),
    torch.zeros(3).requires_grad_(), np.full((12, 16, 3), -1), np.zeros((12, 16, 3), bool),
    np.bool_(1), "\ud800\n",
)  # fmt: skip
ERRORS: tuple[Any, ...] = (
    RuntimeError("simulator\nexploded"), AssertionError(), KeyError("key"), MemoryError(),
    RecursionError("deep"), StopIteration(), UnprintableError(), SystemExit(3), SystemExit(0),
    OSError(28, "full"), BrokenPipeError(32, "Broken pipe"), FileNotFoundError(2, "No", "a.xml"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), TimeoutError(), NotImplementedError(),
    EOFError(), gymnasium.error.ResetNeeded("reset first"), ValueError("\ud800"),
    ConnectionResetError(104, "reset"),
)  # fmt: skip
Box, Discrete = spaces.Box, spaces.Discrete
SPACES: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: "Box", lambda: Box(1, -1, (2,)), lambda: Box(-1, np.nan, (2,)),
    lambda: Box(-np.inf, np.inf, (2,)), lambda: Box(0, 0, (2,)), lambda: Box(-1, 1, ()),
    lambda: Box(-1, 1, (0,)), lambda: Box(-1, 1, (2, 3, 2, 1, 2)),
    lambda: Box(-1, 1, (2,), np.float16), lambda: Box(-1, 1, (2,), np.float64),
    lambda: Box(0, 9, (2,), np.int64), lambda: Box(0, 1, (2,), bool),
    lambda: Box(-1e300, 1e300, (2,), np.float64), lambda: Box(-3e38, 3e38, (2,)),
    lambda: Box(0, 255, (900, 900, 3), np.uint8), lambda: Box(-1, 1, (10**6,)),
    lambda: Box(0, 255, (1, 1, 1), np.uint8), lambda: Box(0, 255, (7, 5), np.uint8),
    lambda: Discrete(1), lambda: Discrete(5, start=-2), lambda: Discrete(2**40),
    lambda: spaces.MultiDiscrete([2, 3]), lambda: spaces.MultiDiscrete([[2, 3], [1, 4]]),
    lambda: spaces.MultiBinary(3), lambda: spaces.MultiBinary((2, 3)), lambda: spaces.Text(5),
    lambda: spaces.Sequence(Discrete(2)), lambda: spaces.OneOf([Discrete(2)]),
    lambda: spaces.Graph(Box(0, 1, (2,)), None), lambda: spaces.Dict({}),
    lambda: spaces.Tuple(()), lambda: spaces.Dict({"a": spaces.Dict({"b.c": Discrete(3)})}),
    lambda: spaces.Dict({"a/b": Box(0, 1, (2,)), "": Box(0, 1, (2,))}),
    lambda: spaces.Tuple((Box(-1, 1, (2,)), Discrete(2))),
    lambda: spaces.Dict({1: Box(-1, 1, (2,))}), lambda: Box(-1, 1, (3,), np.longdouble),
    lambda: Box(0, 2**63, (2,), np.uint64), lambda: Box(np.array([-1, -np.inf], "f4"), 1),
)  # fmt: skip


def raises(error: BaseException) -> Callable[..., Any]:
    """A function that raises it."""

    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


class Rules:
    """Each method breaks one rule of an environment, with values drawn from `chance`. Those whose
    name ends with `same` change nothing that an agent sees."""

    def value(self, env: Any, chance: random.Random) -> None:
        env._change = chance.choice(VALUES)

    def numbers(self, env: Any, chance: random.Random) -> None:
        env._where = chance.choice(("picture", "numbers"))
        shape = chance.choice(
            ((), (0,), (3,), (3, 1), (1, 3), (12, 16, 3), (16, 12, 3), (3, 12, 16))
        )
        kind = chance.choice(
            ("u1", "i1", "i8", "u8", "f2", "f4", "f8", ">f4", "?", "c8", "O", "U3")
        )
        value = chance.choice((0, 1, 3, 200, 70000, -5, math.nan, math.inf, 1e300))
        with np.errstate(all="ignore"):
            try:
                env._change = np.full(shape, value).astype(kind)
            except (ValueError, OverflowError):
                env._change = np.full(shape, str(value))

    def parts(self, env: Any, chance: random.Random) -> None:
        env._where, key = "observation", chance.choice(("picture", "numbers"))
        more = chance.choice(({}, {"more": 1}, {1: 2}, {key: None}))
        env._change = lambda seen: {k: v for k, v in seen.items() if k != key} | more

    def returned(self, env: Any, chance: random.Random) -> None:
        env._where = chance.choice(("reset", "step"))
        n = chance.randrange(1, 5)
        changes = (
            lambda f: f[:-1],
            lambda f: (*f, 1),
            list,
            lambda f: f[0],
            lambda f: f[n % len(f)],
        )
        env._change = chance.choice((*changes, *VALUES[:6]))

    def fails(self, env: Any, chance: random.Random) -> None:
        env._where = chance.choice(("reset", "step", "observation", "reward"))
        env._change = raises(chance.choice(ERRORS))

    def arguments(self, env: Any, chance: random.Random) -> None:
        reset = env.reset
        env.reset = chance.choice(
            (
                lambda: reset(seed=1),
                lambda seed: reset(seed=seed),
                lambda options: reset(options=options),
            )
        )

    def closing(self, env: Any, chance: random.Random) -> None:
        env.close = raises(chance.choice(ERRORS))

    def closing_waits(self, env: Any, chance: random.Random) -> None:
        env.close = lambda: time.sleep(chance.choice((1, 3600)))

    def rendering(self, env: Any, chance: random.Random) -> None:
        shapes = ((8, 8), (8, 8, 2), (0, 4, 3), (8, 8, 3), (8, 8, 4), (3, 8, 8), (1, 8, 8, 3))
        frames = [np.zeros(shape, kind) for shape in shapes for kind in (np.uint8, np.float64)]
        frames += [np.zeros((8, 8, 3), np.uint8)[::-1, ::-1], *VALUES]
        env.render = chance.choice((raises(chance.choice(ERRORS)), lambda: chance.choice(frames)))

    def metadata(self, env: Any, chance: random.Random) -> None:
        fps = chance.choice((*VALUES, 0, 1e-9, 10**9))
        modes = chance.choice((["rgb_array"], None, [], "rgb_array", [3]))
        env.metadata = chance.choice(({}, None, {"render_modes": modes, "render_fps": fps}))

    def observation_spaces(self, env: Any, chance: random.Random) -> None:
        make = chance.choice(SPACES)
        both = chance.random() < 0.5
        space = make()
        env.observation_space = (
            spaces.Dict({"it": space, "numbers": spaces.Box(-1, 10, (3,))}) if both else space
        )
        env._observe = lambda: env.observation_space.sample()

    def action_spaces(self, env: Any, chance: random.Random) -> None:
        env.action_space = chance.choice(SPACES)()
        env._act = lambda action: 0.0
        env.expert_action = lambda: env.action_space.sample()

    def space_changes(self, env: Any, chance: random.Random) -> None:
        reset, make = env.reset, chance.choice(SPACES[1:])

        def changed(**words: Any) -> Any:
            found = reset(**words)
            name = chance.choice(("observation_space", "action_space"))
            setattr(env, name, make())
            return found

        env.reset = changed

    def infos(self, env: Any, chance: random.Random) -> None:
        key = chance.choice(
            (
                "success",
                "is_success",
                "distance_m",
                3,
                "episode",
                "final_observation",
                "TimeLimit.truncated",
            )
        )
        value = chance.choice(VALUES)
        env._where, env._at = "info", chance.choice((0, 3, STEPS))
        env._change = lambda info: {**info, key: value}

    def long_same(self, env: Any, chance: random.Random) -> None:
        env._t = 0  # and a step after the end is an error
        step = env.step

        def strict(action: Any) -> Any:
            if env._t >= STEPS:
                raise RuntimeError("a step after the end")
            return step(action)

        env.step = strict

    def reused_same(self, env: Any, chance: random.Random) -> None:
        observe, kept = env._observe, {}

        def reuse() -> Any:
            for key, value in observe().items():
                kept.setdefault(key, value.copy())[...] = value
            return kept

        env._observe = reuse

    def memory_same(self, env: Any, chance: random.Random) -> None:
        observe, kind = env._observe, chance.randrange(4)

        def other(value: Any) -> Any:
            if kind == 0:
                value.flags.writeable = False
            elif kind == 1:
                value = np.repeat(value, 2, -1)[..., ::2]
            elif kind == 2:
                value = value.astype(value.dtype.newbyteorder(">"))
            else:
                value = np.asfortranarray(value)
            return value

        env._observe = lambda: {key: other(value) for key, value in observe().items()}

    def action_changed_same(self, env: Any, chance: random.Random) -> None:
        def act(action: Any) -> float:
            earned = float(action[0])
            if action.flags.writeable:
                action[...] = math.nan
            return earned

        env._act = act

    def process_same(self, env: Any, chance: random.Random) -> None:
        kind, step = chance.randrange(5), env.step

        def noisy(action: Any) -> Any:
            if kind == 0:
                print("state", file=sys.stderr)
            elif kind == 1:
                np.random.seed(0)  # noqa: NPY002
                random.seed(0)
                torch.manual_seed(0)
            elif kind == 2:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            elif kind == 3:
                np.seterr(all="raise")
            else:
                torch.set_grad_enabled(True)
            return step(action)

        env.step = noisy

    def endless(self, env: Any, chance: random.Random) -> None:
        env._where, env._at = "terminated", STEPS
        env._change = False
        env._after = env._at

    def rewards(self, env: Any, chance: random.Random) -> None:
        size = chance.choice((1e308, -1e308, 1e200, 1e39, -1e20, 5e-324))
        env._act = lambda action: size


RULES = sorted(name for name in vars(Rules) if not name.startswith("_"))
PLACES = (
    "observation", "picture", "numbers", "reward", "terminated", "truncated", "info", "success",
    "is_success",
)  # fmt: skip


class OddEnv(FuzzedEnv):
    """FuzzedEnv with the rule that a variant of a seed breaks."""

    def __init__(self, variant: int = PLAIN, draw: int = 0, render_mode: str | None = None) -> None:
        super().__init__(boxes=True, render_mode=render_mode)
        self.frame = np.zeros((8, 8, 3), np.uint8)
        if variant == PLAIN:
            return
        chance = random.Random(f"{draw} {variant}")
        self._where, self._at = chance.choice(PLACES), chance.randrange(STEPS + 1)
        rule = RULES[variant % len(RULES)]
        if rule != "value":
            self._where = ""
        getattr(Rules(), rule)(self, chance)
        if self._where == "reset":
            self._at = 0

    def _act(self, action: Any) -> float:
        return float(action[0])

    def step(self, action: Any) -> Any:
        earned = self._act(action)
        observation, reward, *rest = super().step(np.full(2, earned))
        return observation, reward, *rest


envs.register(envs.Task(env_id="Odd-v0"), OddEnv)


def words_of(command: str, variant: int, draw: int, workers: int) -> tuple[str, list[str]]:
    """Module and arguments of a command on a variant."""
    settings = [f"variant={variant}", f"draw={draw}"]
    if command in TRAINED:
        own = [f"env_id={ENV}", "iterations=2", f"workers={workers}", *TRAINED[command]]
        own += [f"env.{setting}" for setting in settings]
        return f"training.{command}", ["--out", "made", "--set", *own]
    words = {
        "demos": ["--out", "made", "--workers", str(workers)],
        "evaluate": ["--policy", "random", "--out", "made", "--workers", str(workers)],
        "rollout": ["--policy", "random"],
        "video": ["--policy", "random", "--video", "made.mp4"],
        "sight": ["run", "--out", "made"],
        "export": ["run", "--out", "made", "--observations", "8", "--recorded", "2"],
    }[command]
    module = {"video": "training.rollout", "export": "deploy.export"}.get(
        command, f"training.{command}"
    )
    return module, [*words, "--episodes", "2", "--env", ENV, "--set", *settings]


def prepare(materials: Path) -> None:
    """A run of the plain environment, and what each command gives on it."""
    materials.mkdir(parents=True)
    for command in COMMANDS:
        folder = materials / command
        folder.mkdir()
        if command not in TRAINED:
            (folder / "run").symlink_to(materials / "es" / "made")
        verdict = play(command, PLAIN, 0, 1, folder, patience=10)
        assert verdict.status == 0, f"{command}: {verdict.err}"


def play(
    command: str, variant: int, draw: int, workers: int, folder: Path, patience: float = 1
) -> forked.Verdict:
    """Run a command on a variant in a folder."""
    os.chdir(folder)
    module, words = words_of(command, variant, draw, workers)
    return forked.run(import_module(module).main, words, folder, patience)


def try_one(number: int, seed: int, materials: Path, folder: Path) -> Found:
    """Play a variant with two commands, and with an export now and then."""
    chance = random.Random(f"{seed} {number} commands")
    rule, faults, said, ends = RULES[number % len(RULES)], list[str](), "", list[str]()
    for command in [*chance.sample(COMMANDS[:-1], 2), *COMMANDS[-1:]][: 3 - (number % 8 > 0)]:
        here = folder / command
        here.mkdir(parents=True)
        (here / "run").symlink_to(materials / "es" / "made")
        verdict = play(command, number, seed, 1 + (chance.random() < 0.05), here)
        found = verdict.faults() + not_finite(here)
        if verdict.status == 2 and "Odd-v0" not in verdict.err and "space" not in rule:
            found.append("the sentence does not name the environment")
        if rule.endswith("same"):
            other = differences(left(materials / command), left(here))
            found += (
                [f"not the same: {verdict.status} {other[:2]}"] if verdict.status or other else []
            )
        faults += [f"{command}: {one}" for one in found]
        said += f"{command}: {verdict.err[-900:] or verdict.out[-300:]}\n" if found else ""
        ends.append(str(verdict.status))
    return Found(rule, faults, "status " + "/".join(sorted(set(ends))), said)


def left(folder: Path) -> dict[str, Any]:
    """What a command left, without the settings of the environment."""
    found = {k: v for k, v in contents(folder).items() if not k.endswith(".hdf5")}
    for path in folder.rglob("*.hdf5"):
        with h5py.File(path) as file:
            file.visititems(lambda name, part: found.update({name: digest(part)}))
    for path in folder.rglob("evaluation.json"):
        found["records"] = [entry["records"] for entry in json.loads(path.read_text())]
    return found


def digest(part: Any) -> Any:
    """Contents of a dataset; None for a group."""
    return part[()].tobytes() if isinstance(part, h5py.Dataset) else None


def not_finite(folder: Path) -> list[str]:
    """Checkpoints and tables that hold a NaN or an infinity."""
    found = []
    for path in folder.rglob("*.safetensors"):
        tensors = load_file(path)
        found += [
            f"{path.name}: {k}" for k, t in tensors.items() if not t.double().isfinite().all()
        ]
    for path in folder.rglob("metrics.csv"):
        with path.open(newline="") as lines:
            cells = [value for row in csv.DictReader(lines) for value in row.values()]
        found += [f"metrics.csv: {v}" for v in cells if v.strip("-") in ("inf", "nan")]
    for path in folder.rglob("evaluation.json"):
        text = path.read_text()
        found += [f"evaluation.json: {word}" for word in ("NaN", "Infinity") if word in text]
        json.loads(text)
    return found


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where a variant broke a command."""
    for module in (*(words_of(command, PLAIN, 0, 1)[0] for command in COMMANDS), *LATE):
        import_module(module)
    return many("odd_envs", prepare, try_one, 200, argv)


if __name__ == "__main__":
    from tests.trials import odd_envs  # under the name by which commands import it

    sys.exit(odd_envs.main())
