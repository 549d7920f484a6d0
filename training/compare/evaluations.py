"""The evaluations of a study: jobs that run episodes and write each one as it ends."""

import copy
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from policies.common.settings import Repair
from training.analysis.agents import Agent, with_best_constant
from training.analysis.evaluator import episode_of, origin, play, record, summarise
from training.collect import environments
from training.collect.episode import Episode
from training.command.files import append, read_bytes, write_atomically, write_json
from training.compare.config import CurveConfig, StudyConfig, place_name, slug
from training.compare.jobs import DONE, MISSING, Job, Status, stale
from training.compare.runs import iterations_made
from training.io import checkpoint
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences, fingerprint
from training.io.state_files import Count, Finite, State, read_json

BLIND = "blind"
"""Ends the names of evaluations of blind policies."""
_EPISODE = TypeAdapter(Episode)


@checked_dataclass(frozen=True, config=State)
class Evaluation:
    """The inputs of an evaluation, as stored in its file."""

    env_settings: dict[str, Any]
    seeds: tuple[Count, ...]
    checkpoint_sha256: str | None = None
    repair: str | None = None
    sample_actions: bool = False


@checked_dataclass(frozen=True, config=State)
class Episodes:
    """The episodes of an evaluation, as stored in its file."""

    records: tuple[dict[str, Finite], ...]
    provenance: dict[str, Any] = field(default_factory=dict)
    earlier: tuple[dict[str, Any], ...] = ()
    """How many episodes were there before more followed, and their provenance."""


def evaluation_file(out: Path, who: str, curve: str | None = None, x: float = 0.0) -> Path:
    """The file of a policy's evaluation, on the task itself or at a point of a curve."""
    where = "" if curve is None else f"--{slug(curve)}-{place_name(x)}"
    return out / "evaluations" / f"{who}{where}.json"


def unfinished(path: Path) -> Path:
    """The file that holds the episodes of an evaluation until `path`, its result, exists."""
    return path.with_suffix(".jsonl")


def episodes_in(path: Path) -> int:
    """Number of episodes in an evaluation's file; 0 without it."""
    return len(read_json(Evaluation, path).seeds) if path.is_file() else 0


def settings_of(env_id: str, robot: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """An evaluation's settings: the robot of a training run, and the task with these changes.

    UserError for a setting that the environment does not know.
    """
    settings = copy.deepcopy(environments.embodiment(env_id, robot))
    for change in changes:
        configuration.merge(settings, copy.deepcopy(change))
    return environments.resolved(env_id, settings)


@dataclass(frozen=True)
class EvaluationJob(Job):
    """Evaluates a policy on the task itself, or at the points of one curve."""

    study: StudyConfig
    out: Path
    who: str
    """A variant's file name with its seed, or a reference."""
    env_id: str
    robot: dict[str, Any] = field(repr=False)
    """The environment's settings in training; those of the robot are kept."""
    run: Path | None = None
    """The run that trained the policy; None for a reference."""
    curve: CurveConfig | None = None
    blind: bool = False
    """Whether the policy is shown the images of another episode."""

    @property
    def label(self) -> str:
        where = "" if self.curve is None else f" along {self.curve.name}"
        return f"evaluate {self.who}{where}"

    @property
    def requires(self) -> Path | None:
        return self.run

    @property
    def _seeds(self) -> range:
        first = self.study.evaluation_seed
        return range(first, first + (self.curve or self.study).episodes)

    @property
    def _repair(self) -> Repair | None:
        """Repair of depth images in place of the policy's own; scripted policies see none."""
        return None if self.curve is None or self.run is None else self.curve.repair

    @property
    def _draws(self) -> bool:
        """Whether choices are drawn by their probabilities; scripted policies have none."""
        return self.study.sample_actions and self.run is not None

    def points(self) -> dict[Path, tuple[float | None, dict[str, Any]]]:
        """By result file, x on the curve (None: the task itself) and the changed settings. Points
        that change nothing are left out: the evaluation on the task itself has their episodes."""
        if self.curve is None:
            return {evaluation_file(self.out, self.who): (None, {})}
        return {
            evaluation_file(self.out, self.who, self.curve.name, point.x): (point.x, point.set)
            for point in self.curve.points
            if not self.curve.is_of_the_task(point)
        }

    def settings(self, make: bool = False) -> dict[Path, dict[str, Any]]:
        """The environment's settings by result file; UserError for one that is not known, which
        with some environments only shows when they are made."""
        found = {}
        for path, (_, change) in self.points().items():
            try:
                found[path] = settings_of(self.env_id, self.robot, self.study.env, change)
                if make and environments.settings_class(self.env_id) is None:
                    Agent(self.who, self.env_id, found[path]).make_env().close()
            except UserError as error:
                curve = self.curve and self.curve.name
                where = f"curve {curve}, setting {change}" if change else f"env {self.study.env}"
                raise UserError(f"{where}: {error}") from None
        return found

    def status(self) -> Status:
        """Stale: a result has other settings, scenes or another policy. Missing: it has too few
        episodes. Raises UserError for a setting that the environment does not know."""
        there = [] if self.run is None else checkpoint.in_run(self.run)
        done = True
        for path, settings in self.settings(make=True).items():
            if not path.is_file():
                done = False
                continue
            before = dataclasses.asdict(read_json(Evaluation, path))
            if self.run is not None and not iterations_made(self.run):
                return run_is_gone(path, self.run)
            done = done and len(before["seeds"]) >= len(self._seeds)
            seeds = self._seeds[: len(before["seeds"])]  # more can follow, or be left out
            before["seeds"] = before["seeds"][: len(seeds)]
            before["env_settings"] = environments.completed(self.env_id, before["env_settings"])
            now = {**before, "env_settings": settings, "seeds": seeds, "repair": self._repair}
            now["sample_actions"] = self._draws
            now["checkpoint_sha256"] = there[-1] if there else before["checkpoint_sha256"]
            for change in differences(fingerprint(before), fingerprint(now)):
                return stale(f"{path} was measured", change, "study", "that file")
        return DONE if done else MISSING

    def execute(self) -> None:
        """Run the missing episodes; each episode and each result is written at once. A result of
        fewer episodes than are wanted is extended."""
        wanted = len(self._seeds)
        missing = {p: s for p, s in self.settings().items() if episodes_in(p) < wanted}
        file = None if self.run is None else checkpoint.resolve(self.run)
        device = self.study.device if self.run is not None else "cpu"
        repair: dict[str, Any] = {} if self._repair is None else {"repair": self._repair}
        for path, settings in missing.items():
            agent = Agent(
                self.who, self.env_id, settings, file, device, self._repair, force=True,
                blind=self.blind, sample_actions=self._draws,
            )  # fmt: skip
            if self.run is None and self.who == "constant":
                with agent.make_env() as env:
                    agent = with_best_constant(agent, env)
            before = read_json(Episodes, path) if path.is_file() else None
            inputs = {"checkpoint_sha256": file, "env": settings, "device": device, **repair}
            inputs |= {"sample_actions": True} if self._draws else {}
            episodes = _play_on(
                unfinished(path),
                fingerprint(inputs),
                self._seeds,
                partial(play, agent, workers=self.study.workers or 1),
                _played(agent, before, path),
            )
            entry = summarise(agent, episodes) | origin(agent)
            if before is not None:
                first = {"episodes": len(before.records), "provenance": before.provenance}
                entry["earlier"] = [*before.earlier, first]
            entry["records"] = [record(e) | {"success": float(bool(e.success))} for e in episodes]
            write_json(path, entry, allow_nan=False)
            unfinished(path).unlink()


def _played(agent: Agent, there: Episodes | None, path: Path) -> list[Episode]:
    """The episodes of the result at `path`, if there is one."""
    try:
        return [episode_of(one, agent.task) for one in (there.records if there else ())]
    except KeyError as error:
        raise UserError(f"{path} is damaged: an episode has no {error}") from None


def run_is_gone(path: Path, run: Path) -> Status:
    """The status of a file that was made from a run that does not exist any more."""
    return Status(
        "stale",
        f"{path} was made from the policy of {run}, which is not there any more; bring that "
        "run back, or move that file away too",
    )


def _play_on(
    path: Path,
    facts: dict[str, Any],
    seeds: Sequence[int],
    play: Callable[[Sequence[int]], Iterator[Episode]],
    played: list[Episode],
) -> list[Episode]:
    """One episode per seed: those that exist, then the others, each added to `path` when it ends.

    Args:
        path: JSON, a line for `facts` and one for each episode in the order of `seeds`.
        facts: fingerprint of all that they follow from; a file with another one is replaced.
        play: an episode for each seed that it is given, in their order.
        played: the first episodes, where they are known from elsewhere.
    """
    episodes = max(_written(path, facts, seeds), played, key=len)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(map(_line, (facts, *map(asdict, episodes)))).encode())
    with path.open("ab", buffering=0) as file:
        for episode in play(seeds[len(episodes) :]):
            append(file, _line(asdict(episode)).encode())
            episodes.append(episode)
    return episodes


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"


def _written(path: Path, facts: dict[str, Any], seeds: Sequence[int]) -> list[Episode]:
    """The episodes in such a file; a line that a kill cut short ends them."""
    if not path.is_file():
        return []
    text = read_bytes(path).decode(errors="replace")
    first, *lines = text.splitlines(keepends=True) or [""]
    episodes: list[Episode] = []
    for seed, line in zip(seeds, lines if first == _line(facts) else (), strict=False):
        try:
            episode = _EPISODE.validate_json(line, strict=True)
        except ValueError:
            break
        if episode.seed != seed or not (episode.steps > 0 and math.isfinite(episode.reward)):
            break
        episodes.append(episode)
    return episodes
