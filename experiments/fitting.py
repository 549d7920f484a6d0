"""Gradient descent that resumes bit-identically after an interruption and stops at a NaN loss."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

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
from training.runner import BaseAlgorithm, Progress, run_loop

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


@checked_dataclass(kw_only=True, config=State)
class FitProgress(Progress):
    """Progress of a fit: the plain data of its state."""

    step: Count
    """Gradient steps made."""
    rows: list[dict[str, float | None]]
    """One for each measurement: step, train_loss, wall_s and what `measure` returned. Files hold
    None in place of NaN."""
    diverged_at: int | None = None
    """The step whose loss was not finite; None: none."""


@contextmanager
def seeded(seed: int, step: int) -> Any:
    """Seed PyTorch's generator in the block, for dropout and similar layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed * 1_000_003 + step) % 2**63)
        yield


@dataclass
class Fit(BaseAlgorithm):
    """A model's training with the arguments of `fit`; an iteration ends with a measurement."""

    model: nn.Module
    loss: Callable[[int], Tensor]
    learning: Learning
    measure: Callable[[], Mapping[str, float]]
    before: Callable[[int], object]

    def __post_init__(self) -> None:
        self._settings: Fitting = self.learning.settings.fitting
        settings, model = self._settings, self.model
        wanted = [p for p in model.parameters() if p.requires_grad]
        self._optimiser = _OPTIMISERS[settings.optimiser](
            wanted, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.progress: FitProgress = FitProgress(step=0, rows=[])
        if (path := self.learning.folder / STATE).is_file():
            self.progress, tensors = _load(path, model)
            if self.progress.step > settings.steps:
                raise UserError(
                    f"{path} is of step {self.progress.step}, where training has {settings.steps} "
                    "steps"
                )
            known = [name for name in tensors if name.startswith(_OPTIMISER)]
            moments = {name.removeprefix(_OPTIMISER): tensors[name] for name in known}
            load_optimiser(self._optimiser, moments, path)
            for row in self.rows:
                row |= {k: math.nan for k, v in row.items() if v is None}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows so far, NaN for missing measurements."""
        return self.progress.rows

    @property
    def finished(self) -> bool:
        progress = self.progress
        return progress.diverged_at is not None or progress.step >= self._settings.steps

    def open_log(self, run: Path, iteration: int) -> Self:
        """The fit itself, which keeps its rows and shows a bar of its steps."""
        total, label = self._settings.steps, self.learning.label
        self._bar = tqdm(
            total=total, initial=self.progress.step, desc=label, mininterval=1.0, leave=False
        )
        return self

    @property
    def last(self) -> dict[str, Any]:
        """The last row; empty at the beginning."""
        return self.rows[-1] if self.rows else {}

    def row(self, values: dict[str, float], summary: str) -> None:
        """Keep a row."""
        self.rows.append({k: v for k, v in values.items() if k != "iteration"})

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()

    def learn(self) -> None:
        """Take the steps to the next measurement, or to a loss that is not finite."""
        settings, progress, every = self._settings, self.progress, self._settings.measure_every
        end = min((progress.step // every + 1) * every, settings.steps)
        self._total = 0.0
        for step in range(progress.step + 1, end + 1):
            with seeded(self.learning.seed, step):
                self.model.eval()
                self.before(step)
                value = self._step(step)
            progress.step = step
            self._total += value
            self._bar.update()
            if not math.isfinite(value):
                progress.diverged_at = step
                break

    def _step(self, step: int) -> float:
        """Take a step unless its loss or gradient is not finite; returns the loss, NaN for such a
        gradient.
        """
        settings, optimiser = self._settings, self._optimiser
        self.model.train()
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _share(settings, step)
        optimiser.zero_grad(set_to_none=True)
        value = self.loss(step)
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

    def update(self, outcomes: list[Any]) -> dict[str, float]:
        """Measure the model in evaluation mode; returns the row, in which `wall_s` is to be set."""
        step = self.progress.step
        self.model.eval()
        with torch.no_grad(), seeded(self.learning.seed, -step):
            numbers = self.measure()
        self._bar.set_postfix({name: f"{value:.4g}" for name, value in numbers.items()})
        since = (step - 1) % self._settings.measure_every + 1
        return {"step": step, "train_loss": self._total / since, "wall_s": 0.0, **numbers}

    def save(self, run: Path) -> None:
        """Write metrics.csv and the state."""
        progress, optimiser = self.progress, optimiser_tensors(self._optimiser)
        tensors = {f"{_MODEL}{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"{_OPTIMISER}{name}": value for name, value in optimiser.items()}
        facts = {
            "step": progress.step,
            "rows": [
                {k: v if math.isfinite(v) else None for k, v in row.items()} for row in self.rows
            ],
            "diverged_at": progress.diverged_at,
        }
        whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
        keys = list(dict.fromkeys(key for row in self.rows for key in row))
        lines = [",".join(keys), *(",".join(f"{row[k]:.6g}" for k in keys) for row in self.rows)]
        write_atomically(run / METRICS, ("\n".join(lines) + "\n").encode())
        # Last: a training whose state is finished writes nothing when it is resumed.
        write_atomically(run / STATE, sealed(save(whole, {"fit": json.dumps(facts)})))


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
    done = Fit(model, loss, learning, measure, before)
    run_loop(done, learning.folder)
    model.eval()
    return done


def _share(settings: Fitting, step: int) -> float:
    """Return the learning rate as a fraction of its peak."""
    if step <= settings.warmup_steps:
        return step / settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    rest = max(settings.steps - settings.warmup_steps, 1)
    return 0.5 * (1 + math.cos(math.pi * (step - 1 - settings.warmup_steps) / rest))


def facts_of(folder: Path) -> FitProgress | None:
    """Progress of the training in a folder; None if there is no state."""
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
        raise UserError(f"{folder} must hold the initial model, and has no {STATE}")
    _load(path, model, keep)


def _facts(path: Path) -> tuple[FitProgress, list[str]]:
    """The metadata and the tensors' names. UserError where the file is not as it was written."""
    metadata, header = read_header(path)
    check_seal(path)
    try:
        facts = plain_json(metadata.get("fit", ""))
    except ValueError:
        raise UserError(f"{path} is damaged, or another kind of file") from None
    return check(FitProgress, facts, path), list(header)


def _load(
    path: Path, model: nn.Module, keep: Callable[[str], bool] = lambda name: False
) -> tuple[FitProgress, dict[str, Tensor]]:
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
                f"{path} is of another model: tensor {name} is {there} there, where {here} is "
                f"needed"
            )
    model.load_state_dict(given)
    return saved, tensors
