"""The page of a report on whether a policy uses its images: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from training.interventions.images import INTERVENTIONS
from training.interventions.report import Loss, Report, said
from training.reports.figures import INK, dress, empty, finish, look
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

__all__ = ["render"]

_MEANING = {
    "swap": "the images of another episode, step by step",
    "freeze": "the first image, all the time",
    "blank": "one value everywhere",
    "shuffle": "the present image, its pixels in another order",
}


def render(found: Report, command: str) -> str:
    """The page as text; `command` is the command that regenerates it."""
    drawn = [_chart(found, level.outcome) for level in found.levels]
    lines = [f"Looks at {images}: {said(looks)}." for images, looks in found.looks_at.items()]
    lines += [
        f"{level.outcome}: {level.own:.3f} with its own images; the floor, {level.floor_by}: "
        f"{level.floor:.3f}."
        for level in found.levels
    ]
    about = (
        f"{found.env}, the same {len(found.seeds)} scenes throughout, seeds {found.seeds[0]} to "
        f"{found.seeds[-1]}. Intervals: 95 %, over scenes, one at a time. p: one-sided, by random "
        "signs, corrected for all tests of the verdict: of policies that do not look at most "
        f"{100 * found.false_alarms:.0f}% are said to. That a policy does not look is said where "
        f"it loses less than {100 * found.smallest_loss:.0f}% of what it has over the floor."
    )
    sections = [
        Section("What is lost", [table_of(_LOSSES, found.losses), bullets(lines), note(about)]),
        Section("Other outcomes", [charts(drawn[1:])]),
        Section("How to run it again", [pre(command)], folded=True),
    ]
    verdict = [f"Looks: {said(found.looks)}: {found.reason}."]
    return page(f"Does {found.policy} look?", drawn[0] if drawn else None, verdict, sections)


def _shown(loss: Loss) -> Markup:
    meaning = _MEANING[loss.intervention]
    return Markup("{} <small>{}</small>").format(loss.intervention, meaning)


_LOSSES: list[Column] = [
    ("images", "", lambda loss: loss.images),
    ("shown in their place", "", _shown),
    ("outcome", "", lambda loss: loss.outcome),
    ("mean", "", lambda loss: f"{loss.mean:.3f}"),
    ("lost", "95 % interval", lambda loss: around(loss.lost, loss.lost_interval_95)),
    ("share", "of what there is to lose",
     lambda loss: "-" if loss.lost_share is None else f"{loss.lost_share:.0%}"),
    ("p", "corrected", lambda loss: "-" if loss.p_corrected is None else f"{loss.p_corrected:.2g}"),
    ("acts otherwise", "in scenes", lambda loss: loss.acted_otherwise),
]  # fmt: skip


def _chart(found: Report, outcome: str) -> str:
    """The loss under each intervention in one outcome, with intervals, as SVG."""
    losses = [loss for loss in found.losses if loss.outcome == outcome]
    figure = empty(5.4, 0.9 + 0.32 * len(losses))
    axis = figure.subplots()
    dress(axis)
    for row, loss in enumerate(losses):
        colour, _, shape = look(INTERVENTIONS.index(loss.intervention))
        if loss.lost_interval_95 is not None:
            axis.plot(loss.lost_interval_95, (row, row), color=colour, linewidth=2)
        axis.plot(loss.lost, row, color=colour, marker=shape, linestyle="")
    axis.axvline(0, color=INK, linewidth=1)
    level = next(level for level in found.levels if level.outcome == outcome)
    if level.to_lose is not None:
        axis.axvline(level.to_lose, color=INK, linewidth=1, linestyle=":")
    axis.set_yticks(range(len(losses)), _names(losses), parse_math=False)
    axis.set_ylim(len(losses) - 0.5, -0.5)
    axis.set_xlabel(f"lost of {outcome}; dotted: all that it has over the floor", color=INK,
                    parse_math=False)  # fmt: skip
    return finish(figure, f"What is lost, {outcome}")


def _names(losses: Sequence[Loss]) -> list[str]:
    several = len({loss.images for loss in losses}) > 1
    return [
        f"{loss.images}: {loss.intervention}" if several else loss.intervention for loss in losses
    ]
