"""Training curves of runs, and FLOPs against reward of evaluated policies, as images."""

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs import Outcome, find_task, tasks
from training.collect.outcomes import outcomes_of
from training.command.files import led_to, write_atomically
from training.io.config import UserError
from training.io.metrics import Curve


@dataclass(frozen=True)
class Panel:
    """A column of metrics.csv for training curves."""

    column: str
    meaning: str
    share: bool = False
    """Whether it lies between 0 and 1."""
    behind: str = ""
    """Another column, drawn faintly behind it where every run has a separate line."""

    @property
    def lines(self) -> dict[str, float]:
        """Opacity of each column, in the order of drawing."""
        return ({self.behind: 0.45} if self.behind else {}) | {self.column: 1.0}

    def has_values(self, values: Iterable[np.ndarray]) -> bool:
        """Whether these values, NaN where not measured, are worth a plot; a level of 0 is no
        curriculum."""
        if self.column == "level":
            return any((column > 0).any() for column in values)
        return any(np.isfinite(column).any() for column in values)


def panels(outcomes: Sequence[Outcome]) -> tuple[Panel, ...]:
    """The columns that can be drawn of runs whose task has these outcomes; those that a run does
    not have are left out."""
    numbers = [
        (one, one.axis_label, one.kind == "share") for one in outcomes if one.kind != "event"
    ]
    return (
        Panel("center_reward", "reward per episode, search centre", behind="reward_mean"),
        *(
            Panel(f"center_{one.name}", label, share, one.mean_name)
            for one, label, share in numbers
        ),
        Panel("center_success", "success of the search centre", True, behind="success_rate"),
        Panel("val_loss", "loss on held-out data", behind="loss"),
        Panel("success", "success in training", True),
        *(Panel(one.name, label, share) for one, label, share in numbers),
        Panel("level", "curriculum level"),
    )


def _outcomes(curves: Sequence[Curve]) -> list[Outcome]:
    """The outcomes of the runs' tasks, by name. Of a run whose task is not known, those of every
    task that is, and those that its columns name."""
    found = [one for curve in curves if curve.task for one in outcomes_of(curve.task)]
    strange = [curve for curve in curves if curve.task is None]
    if strange:
        found += [outcome for task in tasks() for outcome in outcomes_of(task)]
    for name in (name for curve in strange for name in curve.columns):
        named = re.fullmatch("center_([a-z]\\w*)|([a-z]\\w*)_mean", name, re.ASCII | re.IGNORECASE)
        word = (named[1] or named[2]) if named else "reward"
        if word not in ("reward", "success", "seed", "steps"):
            found.append(Outcome(name=word, label=word))
    first: dict[str, Outcome] = {}
    for outcome in found:
        first.setdefault(outcome.name, outcome)
    return list(first.values())


AXES = {"iteration": "iteration", "wall": "wall_s", "episodes": "episodes", "steps": "env_steps"}
"""--x -> column of metrics.csv."""


def plot_training(
    curves: Sequence[Curve], out: str | Path, x: str = "iteration", smooth: int = 1
) -> Path:
    """Draw the runs' columns among `panels` against `x`, a key of AXES, into `out`; the file.

    Faint behind the search's centre is the mean of the population, and behind the loss on held-out
    data that on the batches; `smooth` is the width of a trailing mean, in measured iterations.
    UserError when there is nothing to draw.
    """
    every = panels(_outcomes(curves))
    chosen = [
        panel for panel in every
        if panel.has_values(c.columns[n] for c in curves for n in panel.lines if n in c.columns)
    ]  # fmt: skip
    if not chosen:
        known = ", ".join(name for panel in every for name in panel.lines)
        found = ", ".join(dict.fromkeys(name for curve in curves for name in curve.columns))
        raise UserError(
            f"none of the runs has a value yet in a column that can be drawn, {known}; their "
            f"columns are {found}"
        )
    plt = _pyplot()
    figure, axes = plt.subplots(
        1, len(chosen), figsize=(4.2 * len(chosen), 3.2), squeeze=False, layout="constrained"
    )
    for axis, panel in zip(axes[0], chosen, strict=True):
        for index, curve in enumerate(curves):
            positions, label = _positions(curve, x)
            for name, opacity in panel.lines.items():
                values = curve.columns.get(name)
                if values is None or not np.isfinite(values).any():
                    continue
                measured = np.isfinite(values)
                axis.plot(
                    positions[measured],
                    _trailing_mean(values[measured], 1 if name == "level" else smooth),
                    marker="o" if measured.sum() <= 15 else "", markersize=3,
                    color=f"C{index % 10}", alpha=opacity, linewidth=1.0 + opacity,
                    label=shown(f"{curve.name}: {name}"),
                )  # fmt: skip
        axis.set(xlabel=label, title=panel.meaning)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    return _save(figure, out)


def _positions(curve: Curve, x: str) -> tuple[np.ndarray, str]:
    column = AXES[x]
    if column not in curve.columns:
        raise UserError(f"run {curve.name!r}: metrics.csv has no column {column!r} for --x {x}")
    values = curve.columns[column]
    return (values / 60, "wall time (minutes)") if column == "wall_s" else (values, column)


def _trailing_mean(values: np.ndarray, width: int) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(0, stop - min(width, len(values)))
    return (sums[stop] - sums[start]) / (stop - start)


def plot_pareto(entries: Sequence[Mapping[str, Any]], out: str | Path) -> None:
    """Draw FLOPs per step against mean reward, one point a policy, into `out`.

    `entries` are those of evaluation.json. Bars are 95% intervals of the mean over episodes. A
    policy without FLOPs (scripted) is a dashed line across: the ceiling or the floor of the task.
    The reward is an episode's undiscounted sum.
    """
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
    for index, entry in enumerate(entries):
        error = entry.get("reward_sem")  # None of one episode
        colour, half = f"C{index % 10}", None if error is None else 1.96 * error
        label = shown(entry["name"])
        flops, reward = entry.get("flops_per_step"), entry["reward_mean"]
        if flops:
            axis.errorbar(flops, reward, yerr=half, fmt="o", capsize=4, color=colour, label=label)
        else:
            axis.axhline(reward, color=colour, linestyle="--", linewidth=1, label=label)
            if half is not None:
                axis.axhspan(reward - half, reward + half, color=colour, alpha=0.12)
    if any(entry.get("flops_per_step") for entry in entries):
        axis.set_xscale("log")
        axis.set_xlabel("FLOPs per inference step (multiply-add = 2)")
    else:
        axis.set_xticks([])
    several = any(entry.get("reward_sem") is not None for entry in entries)
    of = "mean, 95% interval" if several else "one episode"
    known = [find_task(entry.get("env", "")) for entry in entries]
    rewards = {task.reward if task else "" for task in known}
    if len(rewards) == 1 and "" not in rewards:
        axis.set_ylabel(f"reward per episode: {rewards.pop()},\nsummed over steps ({of})")
    else:
        axis.set_ylabel(f"reward per episode, summed over steps\n({of})")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)
    _save(figure, out)


def shown(name: str) -> str:
    """A name as a legend's label: matplotlib would set `$` as mathematics, and leave out a label
    that begins with `_`, which a zero-width space before it prevents."""
    return ("\u200b" if name.startswith("_") else "") + name.replace("$", r"\$")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def png(figure: Any, dpi: int) -> bytes:
    """A figure as PNG with a palette of 256 colours, which takes less than half of the bytes."""
    from PIL import Image

    drawn, data = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    with Image.open(drawn) as image:
        colours = image.convert("RGB").quantize(method=Image.Quantize.FASTOCTREE)
    colours.save(data, "png", optimize=True)
    return data.getvalue()


def _save(figure: Any, out: str | Path) -> Path:
    """Write the image atomically; a name without a suffix becomes a .png."""
    path = picture_path(out)
    try:
        if path.suffix == ".png":
            data = png(figure, dpi=150)
        else:
            image = io.BytesIO()
            figure.savefig(image, format=path.suffix[1:], dpi=150)
            data = image.getvalue()
        write_atomically(led_to(path), data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--out {str(out)!r}: the image cannot be written ({reason})") from error
    finally:
        _pyplot().close(figure)
    return path


def picture_path(out: str | Path) -> Path:
    """The file that --out means; UserError where it names none."""
    if not str(out) or os.path.isdir(out):  # which, unlike Path's, is False for impossible names
        given = f"the directory {str(out)!r}" if str(out) else "''"
        raise UserError(f"--out must name an image (.png, .svg or .pdf), got {given}")
    path = Path(out)
    return path if path.suffix else path.with_name(f"{path.name}.png")
