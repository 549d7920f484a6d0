"""Report on replacing a policy's images: losses, verdicts and a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.analysis.intervals import Interval
from training.interventions.play import ALL, Play, Scene
from training.interventions.verdict import (
    FALSE_ALARMS,
    Evidence,
    Verdict,
    chance,
    corrected,
    decide,
    interval,
)

__all__ = ["DECIDING", "Level", "Loss", "Report", "report", "said", "table"]

DECIDING = ("swap", "freeze")
"""They show images that the policy could have seen; what it does with others shows no more than
that it has never seen such."""


@dataclass(frozen=True)
class Level:
    """A policy's own outcome, and the floor's."""

    outcome: str
    own: float
    floor: float
    floor_by: str
    """What does not look and comes to that."""
    to_lose: float | None
    """How much better its own is; None if that is not sure."""


@dataclass(frozen=True)
class Loss:
    """The loss caused by an intervention, by one outcome."""

    images: str
    """Which were replaced: a part of the observation, or "all"."""
    intervention: str
    outcome: str
    mean: float
    """The outcome, mean over scenes."""
    lost: float
    """How much worse it is than with the policy's own images, mean over scenes."""
    lost_interval_95: Interval | None
    """None of a single scene."""
    lost_share: float | None
    """Of what there is to lose."""
    p: float
    """Chance of such a loss where the images do not matter, by random signs, one-sided."""
    p_corrected: float | None
    """Corrected for all tests of the verdict; None of an intervention that does not decide."""
    acted_otherwise: int
    """Scenes in which an action was another."""
    images_differed: float
    """Share of the steps at which an image was not the one that would have been seen."""


@dataclass(frozen=True)
class Report:
    """Whether a policy uses its images."""

    policy: str
    env: str
    images: tuple[str, ...]
    seeds: tuple[int, ...]
    looks: bool | None
    """None: undecided."""
    reason: str
    looks_at: dict[str, bool | None]
    """The same by image, where there are several."""
    levels: tuple[Level, ...]
    losses: tuple[Loss, ...]
    smallest_loss: float
    false_alarms: float
    records: tuple[dict[str, Any], ...]
    """All outcomes of every scene."""

    def __str__(self) -> str:
        return table(self)

    def plain(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)


class _Measured:
    """Scenes as arrays, with signs such that more is better."""

    def __init__(self, scenes: Sequence[Scene], lower_is_better: Collection[str]) -> None:
        self.scenes, self._down = scenes, lower_is_better
        plays = [play for scene in scenes for play in _plays(scene)]
        names = plays[0].outcomes
        self.outcomes = [name for name in names if all(name in play.outcomes for play in plays)]
        self.binary = {
            name: all(play.outcomes[name] in (0, 1) for play in plays) for name in self.outcomes
        }
        self.levels = [self._level(outcome) for outcome in self.outcomes]
        self.to_lose = {level.outcome: level.to_lose for level in self.levels}

    def sign(self, outcome: str) -> float:
        return -1.0 if outcome in self._down else 1.0

    def values(self, plays: Iterable[Play], outcome: str) -> NDArray[np.float64]:
        return np.array([self.sign(outcome) * play.outcomes[outcome] for play in plays])

    def own(self, outcome: str) -> NDArray[np.float64]:
        return self.values((scene.own for scene in self.scenes), outcome)

    def lost(self, group: str, kind: str, outcome: str) -> NDArray[np.float64]:
        return self.own(outcome) - self.values(self.plays(group, kind), outcome)

    def plays(self, group: str, kind: str) -> list[Play]:
        return [scene.altered[group, kind] for scene in self.scenes]

    def _level(self, outcome: str) -> Level:
        own = self.own(outcome)
        floors = {
            name: self.values((scene.floors[name] for scene in self.scenes), outcome)
            for name in self.scenes[0].floors
        }
        best = max(floors, key=lambda name: float(floors[name].mean()))
        above = own - floors[best]
        between = interval(above, self.binary[outcome])
        sure = between is not None and between[0] > 0
        sign = self.sign(outcome)
        return Level(
            outcome, sign * float(own.mean()), sign * float(floors[best].mean()), best,
            float(above.mean()) if sure else None,
        )  # fmt: skip


def report(
    policy: str,
    env: str,
    scenes: Sequence[Scene],
    smallest_loss: float,
    lower_is_better: Collection[str] = (),
) -> Report:
    """The report on the scenes played.

    Args:
        policy, env: names.
        scenes: at least one.
        smallest_loss: share of the possible loss below which a loss does not matter.
        lower_is_better: outcomes for which lower values are better.
    """
    measured = _Measured(scenes, lower_is_better)
    groups = list(dict.fromkeys(group for group, _ in scenes[0].altered))
    images = [group for group in groups if group != ALL]
    whole = _p_values(measured, [ALL])
    parts = _p_values(measured, images)
    answer = _answer(measured, ALL, whole, smallest_loss)
    if answer.looks is not True:  # parts are tested only if the policy uses its images at all
        parts = dict.fromkeys(parts, 1.0)
    by_image = {image: _answer(measured, image, parts, smallest_loss).looks for image in images}
    chances = whole | parts
    losses = [
        _loss(measured, group, kind, outcome, chances.get((group, kind, outcome)))
        for group, kind in scenes[0].altered
        for outcome in measured.outcomes
    ]
    return Report(
        policy, env, tuple(images), tuple(scene.seed for scene in scenes), answer.looks,
        answer.reason, by_image, tuple(measured.levels), tuple(losses), smallest_loss,
        FALSE_ALARMS, tuple(_record(scene) for scene in scenes),
    )  # fmt: skip


def _plays(scene: Scene) -> list[Play]:
    return [scene.own, *scene.floors.values(), *scene.altered.values()]


def _p_values(measured: _Measured, groups: Sequence[str]) -> dict[tuple[str, str, str], float]:
    """Corrected p-values of all tests about some images; interventions that never changed an image
    have none.
    """
    tests = [
        (group, kind, outcome)
        for group, kind in measured.scenes[0].altered
        if group in groups and kind in DECIDING
        if any(play.differed for play in measured.plays(group, kind))
        for outcome in measured.outcomes
    ]
    return dict(
        zip(tests, corrected([chance(measured.lost(*test)) for test in tests]), strict=True)
    )


def _answer(
    measured: _Measured,
    group: str,
    chances: dict[tuple[str, str, str], float],
    smallest_loss: float,
) -> Verdict:
    tests = [test for test in chances if test[0] == group]
    evidence = [
        Evidence(f"{outcome} by {kind}", measured.lost(group, kind, outcome),
                 measured.to_lose[outcome], chances[group, kind, outcome])
        for _, kind, outcome in tests
    ]  # fmt: skip
    kinds = {kind for _, kind, _ in tests}
    plays = zip(*(measured.plays(group, kind) for kind in kinds), strict=True)
    otherwise = sum(any(play.otherwise for play in of_scene) for of_scene in plays)
    return decide(evidence, otherwise, len(measured.scenes), smallest_loss)


def _loss(measured: _Measured, group: str, kind: str, outcome: str, p: float | None) -> Loss:
    plays, lost = measured.plays(group, kind), measured.lost(group, kind, outcome)
    to_lose, otherwise = measured.to_lose[outcome], sum(play.otherwise for play in plays)
    return Loss(
        group, kind, outcome,
        mean=float(np.mean([play.outcomes[outcome] for play in plays])),
        lost=float(lost.mean()),
        lost_interval_95=interval(lost, measured.binary[outcome]) if otherwise else (0.0, 0.0),
        lost_share=None if to_lose is None else float(lost.mean()) / to_lose,
        p=chance(lost),
        p_corrected=p,
        acted_otherwise=otherwise,
        images_differed=float(np.mean([play.differed for play in plays])),
    )  # fmt: skip


def _record(scene: Scene) -> dict[str, Any]:
    return {
        "seed": scene.seed,
        "own": scene.own.outcomes,
        "floors": {name: play.outcomes for name, play in scene.floors.items()},
        "altered": {
            group: {kind: play.outcomes for (g, kind), play in scene.altered.items() if g == group}
            for group in dict.fromkeys(group for group, _ in scene.altered)
        },
    }


def table(found: Report) -> str:
    """The report as text."""
    count = len(found.seeds)
    lines = [
        f"{found.policy} in {found.env}, {count} scene{'s' if count > 1 else ''}, "
        f"seeds {found.seeds[0]} to {found.seeds[-1]}"
    ]
    lines += [
        f"{level.outcome}: {level.own:.3f} with its own images; the floor, {level.floor_by}: "
        f"{level.floor:.3f}"
        for level in found.levels
    ]
    lines.append(
        f"{'images':<16} {'shown':<8} {'outcome':<10} {'mean':>9} {'lost':>9} "
        f"{'95% interval':>19} {'share':>6} {'p':>8} {'acts otherwise':>15}"
    )
    lines += [_row(loss, count) for loss in found.losses]
    for image, looks in found.looks_at.items():
        lines.append(f"looks at {image}: {said(looks)}")
    lines.append(f"looks: {said(found.looks)}: {found.reason}")
    return "\n".join(lines)


def _row(loss: Loss, count: int) -> str:
    between = "-"
    if loss.lost_interval_95 is not None:
        between = "{:.3f} to {:.3f}".format(*loss.lost_interval_95)
    share = "-" if loss.lost_share is None else f"{loss.lost_share:.0%}"
    p = "-" if loss.p_corrected is None else f"{loss.p_corrected:.2g}"
    return (
        f"{loss.images:<16} {loss.intervention:<8} {loss.outcome:<10} {loss.mean:>9.3f} "
        f"{loss.lost:>9.3f} {between:>19} {share:>6} {p:>8} "
        f"{f'{loss.acted_otherwise} of {count}':>15}"
    )


def said(looks: bool | None) -> str:
    """A verdict in words."""
    return "cannot be told" if looks is None else str(looks).lower()
