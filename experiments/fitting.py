"""Gradient descent that resumes bit-identically after an interruption and stops at a NaN loss."""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass
from safetensors.torch import save
from torch import Tensor, nn
from tqdm import tqdm

from experiments.task import STRICT, Learning
from training.algorithms.optimiser_state import load_optimiser, optimiser_tensors
from training.command.files import write_atomically
from training.io.config import UserError
from training.io.state_files import Count, State, check, plain_json
from training.io.tensor_file import check_seal, read_header, read_tensors, sealed

STATE, METRICS = "state.safetensors", "metrics.csv"
_MODEL, _OPTIMISER = "model/", "optimiser/"
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
}


@checked_dataclass(frozen=True, kw_only=True, config=STRICT)
class Fitting:
    """Settings of gradient descent."""

    steps: int = Field(default=1000, ge=1, le=10**9)
    """Gradient steps."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak of the learning rate."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which it rises from zero."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """The learning rate after the warmup; cosine ends at zero."""
    optimiser: Literal["adamw", "adagrad"] = "adamw"
    """AdamW (Loshchilov and Hutter 2019) or Adagrad (Duchi et al. 2011)."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of the optimiser."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Gradients are shortened to this Euclidean norm; null: not."""
    measure_every: int = Field(default=200, ge=1)
    """Steps between measurements, after each of which the state is saved."""


@dataclass
class Fit:
    """The result of fitting."""

    rows: list[dict[str, float]] = field(default_factory=list)
    """One for each measurement: step, train_loss, wall_s and what `measure` returned."""
    diverged_at: int | None = None
    """The step whose loss was not finite; None: none."""


@checked_dataclass(frozen=True, config=State)
class Saved:
    """The plain data of a state."""

    step: Count
    rows: tuple[dict[str, float | None], ...]
    diverged_at: int | None = None


@contextmanager
def seeded(seed: int, step: int) -> Any:
    """Seed PyTorch's generator in the block, for dropout and the like, from these two numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed * 1_000_003 + step) % 2**63)
        yield


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    learning: Learning,
    measure: Callable[[], Mapping[str, float]],
    before: Callable[[int], object] = lambda step: None,
) -> Fit:
    """Train a model, starting from the state in its folder.

    Args:
        model: the model; its parameters with gradients are trained, and its buffers are saved.
        loss: returns the loss of a step, counted from 1; the batch depends on the step alone.
        learning: with the setting `fitting`; its folder gets the state and metrics.csv.
        measure: returns the numbers of a row; called in evaluation mode.
        before: called before a step, for example to redraw random features.

    A loss that is not finite ends training: the model keeps the parameters before that step, and
    the state records it. Raises UserError if the state is damaged or another model's.
    """
    settings: Fitting = learning.settings.fitting
    wanted = [p for p in model.parameters() if p.requires_grad]
    optimiser = _OPTIMISERS[settings.optimiser](
        wanted, lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    started, done = 0, Fit()
    if (path := learning.folder / STATE).is_file():
        saved, tensors = _load(path, model)
        if saved.step > settings.steps:
            raise UserError(
                f"{path} is of step {saved.step}, where training has {settings.steps} steps"
            )
        known = [name for name in tensors if name.startswith(_OPTIMISER)]
        moments = {name.removeprefix(_OPTIMISER): tensors[name] for name in known}
        load_optimiser(optimiser, moments, path)
        rows = [{k: math.nan if v is None else v for k, v in row.items()} for row in saved.rows]
        started, done = saved.step, Fit(rows, saved.diverged_at)
    total, began = 0.0, time.perf_counter() - (done.rows[-1]["wall_s"] if done.rows else 0.0)
    left = range(started + 1, settings.steps + 1) if done.diverged_at is None else ()
    with tqdm(
        total=settings.steps, initial=started, desc=learning.label, mininterval=1.0, leave=False
    ) as bar:
        for step in left:
            with seeded(learning.seed, step):
                model.eval()
                before(step)
                value = _step(model, optimiser, loss, settings, step)
            if not math.isfinite(value):
                done.diverged_at = step
            total += value
            bar.update()
            last = step == settings.steps or done.diverged_at is not None
            if last or step % settings.measure_every == 0:
                since = (step - 1) % settings.measure_every + 1
                model.eval()
                with torch.no_grad(), seeded(learning.seed, -step):
                    numbers = measure()
                wall_s = round(time.perf_counter() - began, 1)
                row = {"step": step, "train_loss": total / since, "wall_s": wall_s, **numbers}
                done.rows.append(row)
                total = 0.0
                _save(learning.folder, model, optimiser, step, done)
                bar.set_postfix({k: f"{v:.4g}" for k, v in numbers.items()})
            if done.diverged_at is not None:
                break
    model.eval()
    return done


def _step(
    model: nn.Module, optimiser: torch.optim.Optimizer, loss: Callable[[int], Tensor],
    settings: Fitting, step: int,
) -> float:  # fmt: skip
    """Take a step unless its loss or gradient is not finite; returns the loss, NaN for such a
    gradient.
    """
    model.train()
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * _share(settings, step)
    optimiser.zero_grad(set_to_none=True)
    value = loss(step)
    if not torch.isfinite(value):
        return math.nan
    value.backward()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    most = settings.max_grad_norm
    norm = nn.utils.clip_grad_norm_(parameters, math.inf if most is None else most)
    if not torch.isfinite(norm):
        return math.nan
    optimiser.step()
    return value.item()


def _share(settings: Fitting, step: int) -> float:
    """Return the learning rate as a fraction of its peak."""
    if step <= settings.warmup_steps:
        return step / settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    rest = max(settings.steps - settings.warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * (step - 1 - settings.warmup_steps) / rest))


def _save(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, step: int, done: Fit
) -> None:
    tensors = {f"{_MODEL}{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"{_OPTIMISER}{name}": v for name, v in optimiser_tensors(optimiser).items()}
    facts = {
        "step": step,
        "rows": [{k: v if math.isfinite(v) else None for k, v in row.items()} for row in done.rows],
        "diverged_at": done.diverged_at,
    }
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    write_atomically(folder / STATE, sealed(save(whole, {"fit": json.dumps(facts)})))
    keys = list(dict.fromkeys(key for row in done.rows for key in row))
    lines = [",".join(keys), *(",".join(f"{row[k]:.6g}" for k in keys) for row in done.rows)]
    write_atomically(folder / METRICS, ("\n".join(lines) + "\n").encode())


def facts_of(folder: Path) -> Saved | None:
    """The plain data of the state in a folder; None if there is no state."""
    path = folder / STATE
    return _facts(path)[0] if path.is_file() else None


def load_model(
    folder: Path, model: nn.Module, keep: Callable[[str], bool] = lambda name: False
) -> None:
    """Load the trained tensors in a folder into a model.

    Args:
        folder: folder of the training.
        model: a model with the same shapes.
        keep: whether the model keeps its own tensor of this name, as for another feature map.

    Raises UserError if there is none, or another model's.
    """
    path = folder / STATE
    if not path.is_file():
        raise UserError(f"{folder} must hold the model to begin with, and {STATE} is not there")
    _load(path, model, keep)


def _facts(path: Path) -> tuple[Saved, list[str]]:
    """The metadata and the tensors' names. UserError where the file is not as it was written."""
    metadata, header = read_header(path)
    check_seal(path)
    try:
        facts = plain_json(metadata.get("fit", ""))
    except ValueError:
        raise UserError(f"{path} is damaged, or another kind of file") from None
    return check(Saved, facts, path), list(header)


def _load(
    path: Path, model: nn.Module, keep: Callable[[str], bool] = lambda name: False
) -> tuple[Saved, dict[str, Tensor]]:
    """Load a state's tensors into a model; returns the whole state."""
    saved, names = _facts(path)
    tensors, own = read_tensors(path, names), model.state_dict()
    given = {k.removeprefix(_MODEL): v for k, v in tensors.items() if k.startswith(_MODEL)}
    given = {k: v for k, v in given.items() if not keep(k)}
    given |= {k: v for k, v in own.items() if keep(k)}
    for name in sorted({*given, *own}):
        there, here = (tuple(s[name].shape) if name in s else "absent" for s in (given, own))
        if there != here:
            raise UserError(
                f"{path} is another model's: tensor {name} is {there} there, where {here} is needed"
            )
    model.load_state_dict(given)
    return saved, tensors
