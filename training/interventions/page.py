"""The page of a report on whether a policy looks: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from training.interventions.images import INTERVENTIONS
from training.interventions.report import Loss, Report, said
from training.pages.figures import INK, dress, empty, finish, look
from training.pages.html import between, document, note, table

__all__ = ["render"]

_MEANING = {
    "swap": "the images of another episode, step by step",
    "freeze": "the first image, all the time",
    "blank": "one value everywhere",
    "shuffle": "the present image, its pixels in another order",
}


def render(found: Report, command: str) -> str:
    """The page as text; `command` makes it anew."""
    count = len(found.seeds)
    title = f"Does {found.policy} look?"
    lead = f"Looks: {said(found.looks)}: {found.reason}."
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(lead)}</p>',
        *(f"<p>Looks at {escape(k)}: {said(v)}.</p>" for k, v in found.looks_at.items()),
        *(
            f"<p>{escape(level.outcome)}: {level.own:.3f} with its own images; the floor, "
            f"{escape(level.floor_by)}: {level.floor:.3f}.</p>"
            for level in found.levels
        ),
        '<div class="charts">',
        *(f"<figure>{_chart(found, level.outcome)}</figure>" for level in found.levels),
        "</div>",
        _losses(found),
        note(
            f"{found.env}, the same {count} scenes throughout, seeds {found.seeds[0]} to "
            f"{found.seeds[-1]}. Intervals: 95 %, over scenes, one at a time. p: one-sided, by "
            f"random signs, corrected for all tests of the verdict: of policies that do not look "
            f"at most {found.false_alarms:.0%} are said to. That a policy does not look is said "
            f"where it loses less than {found.smallest_loss:.0%} of what it has over the floor."
        ),
        f"<pre>{escape(command)}</pre>",
    ]
    return document(title, parts)


def _losses(found: Report) -> str:
    head = [
        ("images", ""), ("shown in their place", ""), ("outcome", ""), ("mean", ""),
        ("lost", "95 % interval"), ("share", "of what there is to lose"), ("p", "corrected"),
        ("acts otherwise", "in scenes"),
    ]  # fmt: skip
    return table(head, [_row(loss) for loss in found.losses])


def _row(loss: Loss) -> list[str]:
    lost = f"{loss.lost:.3f}"
    if loss.lost_interval_95 is not None:
        lost = between(lost, *(f"{end:.3f}" for end in loss.lost_interval_95))
    return [
        escape(loss.images),
        f"{loss.intervention} <small>{_MEANING[loss.intervention]}</small>",
        escape(loss.outcome), f"{loss.mean:.3f}", lost,
        "-" if loss.lost_share is None else f"{loss.lost_share:.0%}",
        "-" if loss.p_corrected is None else f"{loss.p_corrected:.2g}",
        str(loss.acted_otherwise),
    ]  # fmt: skip


def _chart(found: Report, outcome: str) -> str:
    """What each intervention costs in one outcome, with intervals, as SVG."""
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
