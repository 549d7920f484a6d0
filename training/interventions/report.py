"""The report of a test whether a policy uses its images: losses, verdicts, a table and a page."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from training.analysis.intervals import Interval, mean_interval
from training.interventions.verdict import (
    FALSE_ALARMS,
    Evidence,
    Verdict,
    chance,
    corrected,
    decide,
    interval,
)
from training.reports.figures import Bar, draw_bars
from training.reports.html import (
    Column,
    Section,
    around,
    bullets,
    charts,
    note,
    page,
    pre,
    table_of,
)

ALL = "all"
"""The name of all images together."""
EPISODES, SMALLEST_LOSS = 20, 0.2
"""Default number of scenes of a test, and default share of the gain whose loss matters."""
DECIDING = ("swap", "freeze")
"""These show images that the policy could have observed; its actions on other images show no more
than that it has never seen such."""
_MEANING = {
    "swap": "the images of another episode, step by step",
    "freeze": "the first image, all the time",
    "blank": "one value everywhere",
    "shuffle": "the present image, its pixels in another order",
}


@dataclass(frozen=True)
class Play:
    """The outcome of an episode."""

    outcomes: dict[str, float]
    otherwise: bool = False
    """Whether an action was another than with the policy's own images."""
    differed: float = 0.0
    """Share of the steps at which an image was not the one that would have been seen."""


@dataclass(frozen=True)
class Scene:
    """All episodes of one seed."""

    seed: int
    own: Play
    floors: dict[str, Play]
    """Outcomes of policies that cannot see, by name."""
    altered: dict[tuple[str, str], Play]
    """Outcomes by the images that were replaced and the intervention."""


@dataclass(frozen=True)
class Level:
    """A policy's own outcome, and the floor's."""

    outcome: str
    own: float
    floor: float
    floor_by: str
    """The policy without images that reaches it."""
    to_lose: float | None
    """How much better its own is; None if that is not sure."""
    floors: dict[str, tuple[float, Interval | None]]
    """Mean outcome of each policy without images, and its 95 % interval over scenes."""

    def __str__(self) -> str:
        others = "".join(
            f"; {name}: {mean:.3f}"
            + (f" ({between[0]:.3f} to {between[1]:.3f})" if between else "")
            for name, (mean, between) in self.floors.items()
            if name != self.floor_by
        )
        return (
            f"{self.outcome}: {self.own:.3f} with its own images; the floor, {self.floor_by}: "
            f"{self.floor:.3f}{others}"
        )


@dataclass(frozen=True)
class Loss:
    """The loss caused by an intervention, by one outcome."""

    images: str
    """The part of the observation that was replaced, or "all"."""
    intervention: str
    outcome: str
    mean: float
    """Mean of the outcome over scenes."""
    lost: float
    """How much worse it is than with the policy's own images, mean over scenes."""
    lost_interval_95: Interval | None
    """None for a single scene."""
    lost_share: float | None
    """Share of what there is to lose."""
    p: float
    """p-value of the loss if the images do not matter, by random signs, one-sided."""
    p_corrected: float | None
    """Corrected for all tests of the verdict; None for an intervention that does not decide."""
    acted_otherwise: int
    """Scenes in which an action was another."""
    images_differed: float
    """Share of the steps at which an image was not the one that would have been seen."""

    @property
    def share(self) -> str:
        """The share lost in words."""
        return "-" if self.lost_share is None else f"{self.lost_share:.0%}"

    @property
    def chance(self) -> str:
        """The corrected p-value in words."""
        return "-" if self.p_corrected is None else f"{self.p_corrected:.2g}"


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

    def plain(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        count = len(self.seeds)
        lines = [
            f"{self.policy} in {self.env}, {count} scene{'s' if count > 1 else ''}, "
            f"seeds {self.seeds[0]} to {self.seeds[-1]}",
            *map(str, self.levels),
            f"{'images':<16} {'shown':<8} {'outcome':<10} {'mean':>9} {'lost':>9} "
            f"{'95% interval':>19} {'share':>6} {'p':>8} {'acts otherwise':>15}",
        ]
        for loss in self.losses:
            between = "-"
            if loss.lost_interval_95 is not None:
                between = "{:.3f} to {:.3f}".format(*loss.lost_interval_95)
            lines.append(
                f"{loss.images:<16} {loss.intervention:<8} {loss.outcome:<10} {loss.mean:>9.3f} "
                f"{loss.lost:>9.3f} {between:>19} {loss.share:>6} {loss.chance:>8} "
                f"{f'{loss.acted_otherwise} of {count}':>15}"
            )
        lines += [f"looks at {image}: {_said(looks)}" for image, looks in self.looks_at.items()]
        return "\n".join([*lines, f"looks: {_said(self.looks)}: {self.reason}"])


def _said(looks: bool | None) -> str:
    """A verdict in words."""
    return "cannot be decided" if looks is None else str(looks).lower()


class _Measured:
    """Scenes as arrays, with signs such that more is better."""

    def __init__(self, scenes: Sequence[Scene], lower_is_better: Collection[str]) -> None:
        self.scenes, self._down = scenes, lower_is_better
        plays = [
            play
            for scene in scenes
            for play in (scene.own, *scene.floors.values(), *scene.altered.values())
        ]
        names = plays[0].outcomes
        self.outcomes = [name for name in names if all(name in play.outcomes for play in plays)]
        self.binary = {
            name: all(play.outcomes[name] in (0, 1) for play in plays) for name in self.outcomes
        }
        self.levels = [self._level(outcome) for outcome in self.outcomes]
        self.to_lose = {level.outcome: level.to_lose for level in self.levels}

    def _values(self, plays: Iterable[Play], outcome: str) -> NDArray[np.float64]:
        sign = -1.0 if outcome in self._down else 1.0
        return np.array([sign * play.outcomes[outcome] for play in plays])

    def _own(self, outcome: str) -> NDArray[np.float64]:
        return self._values((scene.own for scene in self.scenes), outcome)

    def _lost(self, group: str, kind: str, outcome: str) -> NDArray[np.float64]:
        return self._own(outcome) - self._values(self._plays(group, kind), outcome)

    def _plays(self, group: str, kind: str) -> list[Play]:
        return [scene.altered[group, kind] for scene in self.scenes]

    def _level(self, outcome: str) -> Level:
        own = self._own(outcome)
        floors = {
            name: self._values((scene.floors[name] for scene in self.scenes), outcome)
            for name in self.scenes[0].floors
        }
        best = max(floors, key=lambda name: float(floors[name].mean()))
        above = own - floors[best]
        between = interval(above, self.binary[outcome])
        sure = between is not None and between[0] > 0
        sign = -1.0 if outcome in self._down else 1.0
        return Level(
            outcome, sign * float(own.mean()), sign * float(floors[best].mean()), best,
            float(above.mean()) if sure else None,
            {name: (sign * float(values.mean()), _around(sign * values))
             for name, values in floors.items()},
        )  # fmt: skip

    def p_values(self, groups: Sequence[str]) -> dict[tuple[str, str, str], float]:
        """Corrected p-values of all tests about some images; interventions that never changed an
        image have none."""
        tests = [
            (group, kind, outcome)
            for group, kind in self.scenes[0].altered
            if group in groups and kind in DECIDING
            if any(play.differed for play in self._plays(group, kind))
            for outcome in self.outcomes
        ]
        chances = corrected([chance(self._lost(*test)) for test in tests])
        return dict(zip(tests, chances, strict=True))

    def verdict(
        self, group: str, chances: dict[tuple[str, str, str], float], smallest_loss: float
    ) -> Verdict:
        """The verdict on some images, from the p-values of all tests."""
        tests = [test for test in chances if test[0] == group]
        evidence = [
            Evidence(
                f"{test[2]} by {test[1]}",
                self._lost(*test),
                self.to_lose[test[2]],
                chances[test],
            )
            for test in tests
        ]
        plays = zip(*(self._plays(group, k) for k in {kind for _, kind, _ in tests}), strict=True)
        otherwise = sum(any(play.otherwise for play in of_scene) for of_scene in plays)
        return decide(evidence, otherwise, len(self.scenes), smallest_loss)

    def loss(self, group: str, kind: str, outcome: str, p: float | None) -> Loss:
        """The loss by one outcome; `p` is its corrected p-value."""
        plays, lost = self._plays(group, kind), self._lost(group, kind, outcome)
        to_lose, otherwise = self.to_lose[outcome], sum(play.otherwise for play in plays)
        return Loss(
            group, kind, outcome,
            mean=float(np.mean([play.outcomes[outcome] for play in plays])),
            lost=float(lost.mean()),
            lost_interval_95=interval(lost, self.binary[outcome]) if otherwise else (0.0, 0.0),
            lost_share=None if to_lose is None else float(lost.mean()) / to_lose,
            p=chance(lost),
            p_corrected=p,
            acted_otherwise=otherwise,
            images_differed=float(np.mean([play.differed for play in plays])),
        )  # fmt: skip


def _around(values: NDArray[np.float64]) -> Interval | None:
    return mean_interval(values[None]) if len(values) > 1 else None


def report(
    policy: str,
    env: str,
    scenes: Sequence[Scene],
    smallest_loss: float,
    lower_is_better: Collection[str] = (),
) -> Report:
    """The report on the scenes played, at least one, of a policy and an environment by name.

    `smallest_loss` is the share of the possible loss below which a loss does not matter;
    `lower_is_better` names the outcomes for which lower values are better.
    """
    measured = _Measured(scenes, lower_is_better)
    images = [group for group in dict.fromkeys(group for group, _ in scenes[0].altered) if
              group != ALL]  # fmt: skip
    whole, parts = measured.p_values([ALL]), measured.p_values(images)
    answer = measured.verdict(ALL, whole, smallest_loss)
    if answer.looks is not True:  # parts are tested only if the policy uses its images at all
        parts = dict.fromkeys(parts, 1.0)
    chances = whole | parts
    losses = [
        measured.loss(group, kind, outcome, chances.get((group, kind, outcome)))
        for group, kind in scenes[0].altered
        for outcome in measured.outcomes
    ]
    return Report(
        policy, env, tuple(images), tuple(scene.seed for scene in scenes), answer.looks,
        answer.reason,
        {image: measured.verdict(image, parts, smallest_loss).looks for image in images},
        tuple(measured.levels), tuple(losses), smallest_loss, FALSE_ALARMS,
        tuple(_record(scene) for scene in scenes),
    )  # fmt: skip


def _record(scene: Scene) -> dict[str, Any]:
    altered: dict[str, dict[str, Any]] = {}
    for (group, kind), play in scene.altered.items():
        altered.setdefault(group, {})[kind] = play.outcomes
    floors = {name: play.outcomes for name, play in scene.floors.items()}
    return {"seed": scene.seed, "own": scene.own.outcomes, "floors": floors, "altered": altered}


def render(found: Report, command: str) -> str:
    """One self-contained HTML page; `command` is the command that regenerates it."""
    drawn = [_chart(found, level) for level in found.levels]
    lines = [f"Looks at {images}: {_said(looks)}." for images, looks in found.looks_at.items()]
    about = (
        f"{found.env}, the same {len(found.seeds)} scenes throughout, seeds {found.seeds[0]} to "
        f"{found.seeds[-1]}. Intervals: 95 %, over scenes, one at a time. p: one-sided, by random "
        "signs, corrected for all tests of the verdict: of policies that do not look at most "
        f"{100 * found.false_alarms:.0f}% are said to. That a policy does not look is said where "
        f"it loses less than {100 * found.smallest_loss:.0f}% of what it has over the floor."
    )
    listed = bullets([*lines, *(f"{level}." for level in found.levels)])
    sections = [
        Section("What is lost", [table_of(_LOSSES, found.losses), listed, note(about)]),
        Section("Other outcomes", [charts(drawn[1:])]),
        Section("How to run it again", [pre(command)], folded=True),
    ]
    verdict = [f"Looks: {_said(found.looks)}: {found.reason}."]
    return page(f"Does {found.policy} look?", drawn[0] if drawn else None, verdict, sections)


def _meant(loss: Loss) -> Markup:
    meaning = _MEANING[loss.intervention]
    return Markup("{} <small>{}</small>").format(loss.intervention, meaning)


_LOSSES: list[Column] = [
    ("images", "", lambda loss: loss.images),
    ("shown in their place", "", _meant),
    ("outcome", "", lambda loss: loss.outcome),
    ("mean", "", lambda loss: f"{loss.mean:.3f}"),
    ("lost", "95 % interval", lambda loss: around(loss.lost, loss.lost_interval_95)),
    ("share", "of what there is to lose", lambda loss: loss.share),
    ("p", "corrected", lambda loss: loss.chance),
    ("acts otherwise", "in scenes", lambda loss: loss.acted_otherwise),
]


def _chart(found: Report, level: Level) -> str:
    """The loss under each intervention in one outcome, with intervals, as SVG."""
    several = len({loss.images for loss in found.losses}) > 1
    bars = [
        Bar(
            f"{loss.images}: {loss.intervention}" if several else loss.intervention,
            loss.lost, *(loss.lost_interval_95 or (loss.lost, loss.lost)),
        )
        for loss in found.losses if loss.outcome == level.outcome
    ]  # fmt: skip
    across = {"none": 0.0} | (
        {} if level.to_lose is None else {"all over the floor": level.to_lose}
    )
    return draw_bars(bars, f"What is lost, {level.outcome}", f"lost of {level.outcome}", across)
