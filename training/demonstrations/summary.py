"""Summary of a directory of demonstrations: summary.json and summary.png."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.command.files import write_atomically, writing
from training.demonstrations.reader import DemoReader

SUMMARY, PICTURE = "summary.json", "summary.png"
_ROWS, _COLUMNS = 4, 8  # of the contact sheet
_PITCH = 1.14  # of its rows, in widths of a cell
_LOW, _HIGH = 10, 90  # percentiles of the band


def _spread(values: Any) -> dict[str, float]:
    x = np.asarray(values, float)
    spread = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    return {"mean": float(x.mean()), "std": spread, "min": float(x.min()), "max": float(x.max())}


def summarise(reader: DemoReader) -> dict[str, Any]:
    """The contents of summary.json: plain data, every number finite."""
    demos = reader.demos
    sizes = [frames.places[:, 1] for demo in demos for frames in demo.frames.values()]
    sums = [float(demo.rewards.sum()) for demo in demos]
    lasts = [float(demo.rewards[-1]) for demo in demos]
    records = [
        {"demo": demo.number, "seed": demo.seed, "steps": len(demo), "reward_sum": total,
         "reward_last": last, **demo.final_info}
        for demo, total, last in zip(demos, sums, lasts, strict=True)
    ]  # fmt: skip
    shared = set.intersection(*(set(demo.final_info) for demo in demos))
    actions = np.concatenate([demo.actions for demo in demos])
    return {
        "recording": dataclasses.asdict(reader.recording),
        "episodes": len(demos),
        "train": len(reader.mask("train")),
        "valid": len(reader.mask("valid")),
        "steps": len(actions),
        "bytes": sum(demo.path.stat().st_size for demo in demos),
        "frame_bytes": float(np.concatenate(sizes).mean()) if sizes else None,
        "steps_an_episode": _spread(reader.lengths),
        "reward_sum": _spread(sums),
        "reward_last": _spread(lasts),
        "final_info_mean": {
            key: float(np.mean([demo.final_info[key] for demo in demos])) for key in sorted(shared)
        },
        "action_min": actions.min(axis=0).tolist(),
        "action_max": actions.max(axis=0).tolist(),
        "action_mean": actions.mean(axis=0, dtype=np.float64).tolist(),
        "action_std": actions.std(axis=0, dtype=np.float64).tolist(),
        "records": records,
    }


def draw(reader: DemoReader, out: Path) -> None:
    """Frames of a few episodes over time; lengths, returns, last rewards, reward over time. Raises
    UserError if the image cannot be written."""
    from matplotlib.figure import Figure  # slow to import and only needed here

    rows = min(_ROWS, len(reader)) if reader.demos[0].frames else 0
    height = 1.75 * rows + 2.8
    figure = Figure(figsize=(12, height))
    grid = figure.add_gridspec(
        2, 4, height_ratios=(1.75 * rows + 0.01, 2.2), hspace=0.1, wspace=0.2,
        left=0.05, right=0.99, top=1 - 0.3 / height, bottom=0.5 / height,
    )  # fmt: skip
    if rows:
        chosen = np.unique(np.linspace(0, len(reader) - 1, rows).astype(int))
        _contact_sheet(figure.add_subplot(grid[0, :]), reader, chosen.tolist())
    _histograms([figure.add_subplot(grid[1, column]) for column in range(4)], reader)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=130)
    with writing(out):
        write_atomically(out, image.getvalue())


def _contact_sheet(axis: Any, reader: DemoReader, chosen: list[int]) -> None:
    """Draw one row per episode, from its first step to its last, with cells of unit width."""
    key = next(iter(reader.demos[0].frames))
    for index, top in zip(chosen, _PITCH * np.arange(len(chosen)), strict=True):
        demo = reader.demos[index]
        steps = np.linspace(0, len(demo) - 1, _COLUMNS).astype(int).tolist()
        for column, step in enumerate(steps):
            image = _image(demo.frames[key][step])
            height = min(image.shape[0] / image.shape[1], 1.0)
            place = (column, column + 0.96, top + 0.96 * height, top)
            axis.imshow(image, cmap="gray", extent=place, interpolation="antialiased")
            title = f"step {step}: {demo.rewards[step]:.2f}"
            axis.text(column + 0.48, top - 0.02, title, fontsize=7, ha="center", va="bottom")
        axis.text(-0.04, top + 0.5, f"demo {demo.number}", fontsize=8, rotation=90, ha="right")
    axis.set(xlim=(0, _COLUMNS), ylim=(_PITCH * len(chosen), -0.15), aspect="auto")
    axis.axis("off")
    axis.set_title(f"{reader.recording.env_id}: {key}; step: reward", fontsize=9)


def _image(frame: NDArray[Any]) -> NDArray[Any]:
    """An image (height, width, 3) itself; of other arrays, the slices of the last two axes."""
    if frame.ndim == 3 and frame.shape[-1] in (3, 4) and frame.dtype == np.uint8:
        return frame
    if frame.ndim < 2:
        return frame.reshape(1, -1)
    return np.hstack(list(frame.reshape(-1, *frame.shape[-2:])))


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """The range of a histogram of `values`, widened if they differ by rounding alone."""
    low, high = float(values.min()), float(values.max())
    enough = 1e-6 * max(abs(low), abs(high), 1e-6)
    if high - low >= enough:
        return low, high
    half = 0.5 * max(1.0, abs(low))  # matplotlib's own of equal values is 0.5
    return low - half, high + half


def _histograms(axes: list[Any], reader: DemoReader) -> None:
    *histograms, over_time = axes
    values = {
        "length of an episode, steps": reader.lengths,
        "sum of an episode's rewards": [demo.rewards.sum() for demo in reader.demos],
        "reward of the last step": [demo.rewards[-1] for demo in reader.demos],
    }
    for axis, (title, each) in zip(histograms, values.items(), strict=True):
        axis.hist(each, bins=20, range=_range(np.asarray(each, float)))
        axis.set_title(title, fontsize=9)
    histograms[0].set_ylabel("episodes")
    longest = int(reader.lengths.max())
    held = [np.pad(d.rewards, (0, longest - len(d)), mode="edge") for d in reader.demos]
    low, high = np.percentile(held, [_LOW, _HIGH], axis=0)
    over_time.fill_between(range(longest), low, high, alpha=0.25, label=f"{_LOW}-{_HIGH} %")
    over_time.plot(np.mean(held, axis=0), label="mean")
    over_time.set_xlabel("step")
    over_time.set_title("reward of a step, the last one held", fontsize=9)
    over_time.legend(fontsize=7)
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=7)
