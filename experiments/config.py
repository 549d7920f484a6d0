"""`ExperimentConfig`, the configuration of an experiment: a task and the variants that learn it."""

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from experiments.compositional.learning import COMPOSITIONAL
from experiments.images import IMAGES, TRUSTED_IMAGES
from experiments.language.learning import SAMPLED_SOFTMAX, SOFTMAX_ERRORS
from experiments.listops import LISTOPS
from experiments.speech.learning import SPEECH
from experiments.task import STRICT, Task
from training.command.errors import did_you_mean
from training.compare.config import load_comparison, slug
from training.io import config as configuration
from training.io.config import UserError
from training.io.overrides import merge, read_overrides

TASKS = (COMPOSITIONAL, IMAGES, LISTOPS, SAMPLED_SOFTMAX, SOFTMAX_ERRORS, SPEECH, TRUSTED_IMAGES)


def task(name: str) -> Task:
    """The task of a name. Raises ValueError if there is none."""
    for one in TASKS:
        if one.name == name:
            return one
    names = [one.name for one in TASKS]
    raise ValueError(
        f"task must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"
    )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class VariantConfig:
    """One of the compared variants."""

    name: str = Field(min_length=1)
    """Its name on the page; file names follow from it."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings of the task that make the variant, keys dotted where nested."""
    start_from: str | None = None
    """Another variant, from whose model of the same seed it begins: uptraining."""
    control: bool = False
    """A control, such as exact attention."""
    published: dict[str, float] = field(default_factory=dict)
    """The paper's figures, by measure."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class OrderingConfig:
    """An order of variants that a paper claims."""

    claim: str = Field(min_length=1)
    """The claim in words, with its source."""
    measure: str
    """The measure by which it ranks."""
    arms: tuple[str, ...] = Field(min_length=2, max_length=100)
    """Names of variants, the best first."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ExperimentConfig:
    """Variants that learn the same task with several seeds, and a paper's claims about them."""

    title: str = Field(min_length=1)
    """Heading of the page."""
    paper: str
    """The paper, section, table and figure."""
    task: str
    """Name of the learning task."""
    differs: tuple[str, ...] = ()
    """Differences from the paper, a sentence each."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings of the task for all variants, keys dotted where nested."""
    quick: dict[str, Any] = field(default_factory=dict)
    """Further settings with --quick, for a test run of a few seconds."""
    arms: tuple[VariantConfig, ...] = Field(min_length=1, max_length=1000)
    """The compared variants."""
    baseline: str
    """Name of the variant that the others are compared with."""
    orderings: tuple[OrderingConfig, ...] = ()
    """The paper's claims, with which the page compares."""
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(0, 1, 2), min_length=1, max_length=1000
    )
    """Seeds of initial parameters, random features, batches; one model of every variant each."""
    parallel: int = Field(default=1, ge=1, le=1024)
    """Models that are trained at the same time, each in a process with one thread."""
    device: str = "cpu"
    """PyTorch device: cpu or cuda. Models of one experiment can be learned on different ones."""

    def variant(self, name: str) -> VariantConfig:
        """The variant of a name."""
        return next(variant for variant in self.arms if variant.name == name)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        names = [variant.name for variant in self.arms]
        known = f"one of the variants {', '.join(names)}"
        words = [slug(name) for name in names]
        if len({*words}) < len(words) or "" in words:
            raise ValueError(f"variants must differ in letters and digits, got {names}")
        if len({*self.seeds}) < len(self.seeds):
            raise ValueError(f"seeds must be distinct, got {[*self.seeds]}")
        if self.baseline not in names:
            raise ValueError(f"baseline must be {known}, got {self.baseline!r}")
        for place, variant in enumerate(self.arms):
            if variant.start_from is not None and variant.start_from not in names[:place]:
                raise ValueError(
                    f"start_from of {variant.name} must be a variant before it, got "
                    f"{variant.start_from!r}"
                )
        measures = {measure.name for measure in task(self.task).measures}
        for name in (name for ordering in self.orderings for name in ordering.arms):
            if name not in names:
                raise ValueError(f"orderings must be of {known}, got {name!r}")
        used = [one.measure for one in self.orderings] + [n for a in self.arms for n in a.published]
        for name in used:
            if name not in measures:
                raise ValueError(
                    f"measures of {self.task} are {', '.join(sorted(measures))}, got {name!r}"
                )
        return self


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> ExperimentConfig:
    """Load an experiment from a file with all defaults; raises UserError if something is wrong."""
    return load_comparison(ExperimentConfig, path, overrides)


def with_variants(experiment: ExperimentConfig, names: Sequence[str]) -> ExperimentConfig:
    """The experiment restricted to these variants, the baseline and those from which they start.

    Claims about other variants are omitted. Raises UserError for a name that no variant has.
    """
    known = [variant.name for variant in experiment.arms]
    for name in names:
        if name not in known:
            raise UserError(
                f"--variants must be of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
            )
    kept = {*names, experiment.baseline}
    for variant in reversed(experiment.arms):  # a variant starts from an earlier one
        if variant.name in kept and variant.start_from is not None:
            kept.add(variant.start_from)
    variants = tuple(variant for variant in experiment.arms if variant.name in kept)
    orderings = tuple(one for one in experiment.orderings if kept.issuperset(one.arms))
    return replace(experiment, arms=variants, orderings=orderings)


def settings_of(
    experiment: ExperimentConfig, variant: VariantConfig, quick: bool, source: str | Path
) -> Any:
    """The task's settings for a variant, of the task's own class.

    UserError, which names the `source`, where a key or value is wrong.
    """
    cls = task(experiment.task).settings
    values: dict[str, Any] = configuration.dump(cls())  # nested defaults
    for layer in (experiment.set, variant.set, experiment.quick if quick else {}):
        merge(values, read_overrides(layer))
    try:
        return configuration.validate(cls, values, source)
    except UserError as error:
        raise UserError(f"variant {variant.name}: {error}") from None
