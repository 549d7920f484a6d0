"""The configuration of a study: variants that are trained in the same way (`StudyConfig`)."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from policies.common.settings import Repair
from training.algorithms.registry import TRAINERS, find_trainers
from training.collect.seeds import EVALUATION_SEEDS_FROM, VALIDATION_SEEDS_FROM
from training.command.errors import like_files
from training.io import config as configuration
from training.io.config import UserError
from training.io.overrides import read_overrides

_MOST_RUNS = 1000
T = TypeVar("T")
_NAMES = {"variants": "arms", "leading_variants": "leading_arms"}
"""Keys that a file may use in place of the older names, which records keep."""
Reference = Literal["oracle", "blind", "random", "constant"]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class StageConfig:
    """One training run of every variant and seed."""

    trainer: str
    """The trainer: es, bc, ppo, or "module:NAME" of a custom one."""
    config: str
    """Its configuration: a file, relative to the study's, or the name of a shipped preset."""
    set: dict[str, Any] = field(default_factory=dict)
    """Fields of it that this study changes, keys dotted where nested."""
    always: dict[str, Any] = field(default_factory=dict)
    """The same, with precedence over variants: such as {feature_map: softmax} of a first stage,
    from whose policy each variant continues with its own feature map."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        find_trainers(self.trainer)
        return self


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class VariantConfig:
    """One of the variants that are compared."""

    name: str = Field(min_length=1)
    """Name on the page; file names follow from it."""
    set: dict[str, Any] = field(default_factory=dict)
    """Fields of every stage's configuration that make the variant, keys dotted where nested."""
    group: str | None = Field(default=None, min_length=1)
    """Variants of one group, such as one attention at several learning rates, are averaged too."""
    control: bool = False
    """Whether it is a control, such as no attention: reported, but not as cheap attention."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class PointConfig:
    """One place on a curve."""

    x: float
    """Position on the x axis, in the unit that `xlabel` names."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings of the environment there, beside those of `env`; none: the task itself, of which
    the first episodes are taken."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CurveConfig:
    """Evaluations of the variants and the references where the task is changed by degrees."""

    name: str = Field(min_length=1)
    """Its heading."""
    xlabel: str
    """Label of the horizontal axis, with its unit."""
    points: tuple[PointConfig, ...] = Field(min_length=1, max_length=1000)
    """The places."""
    episodes: int = Field(default=50, ge=2, le=10**5)
    """Episodes of every variant, seed and reference at each."""
    repair: Repair | None = None
    """Repair of depth images there, in place of the policies' own setting: none, holes or full;
    null: their own."""

    def is_of_the_task(self, point: PointConfig) -> bool:
        """Whether a point has the episodes of the task itself, as nothing is changed there."""
        return not point.set and self.repair is None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class StudyConfig:
    """Variants trained over several seeds by the same stages, evaluated on the same scenes."""

    title: str = Field(min_length=1)
    """Heading of the page."""
    stages: tuple[StageConfig, ...] = Field(min_length=1, max_length=16)
    """Training runs in turn, each but the first from the policy of the one before; the last one's
    policy is the variant's."""
    arms: tuple[VariantConfig, ...] = Field(min_length=1, max_length=1000)
    """The variants that are compared."""
    leading_arms: int | None = Field(default=None, ge=1, le=1000)
    """Number of variants, from the first, that get all their seeds and curves before the others
    start; null: all."""
    baseline: str
    """Name of the variant that the others are measured against."""
    headline: str | None = None
    """Name of the variant that the page's first sentence is about; null: the best other than the
    baseline."""
    equal_within: float = Field(default=0.02, ge=0, lt=1)
    """A variant earns as much as the baseline if its reward is lower by at most this share; the
    lower end of the interval decides."""
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(0, 1, 2), min_length=1, max_length=1000
    )
    """Training seeds; each gives every variant one policy."""
    best_seeds: int | None = Field(default=None, ge=2, le=1000)
    """Number of seeds of each variant that are reported as the best, by reward on the task, beside
    all seeds. Only for variants with more seeds. Null: all alone."""
    seed_keys: Annotated[tuple[str, ...], Field(max_length=100)] = (
        "seed",
        "policy.init_seed",
        "policy.feature_seed",
    )
    """Fields of the stages' configurations that the seed is put into."""
    references: tuple[Reference, ...] = ("oracle", "blind")
    """Scripted policies that are evaluated too: those of `training.evaluate --policy`."""
    blind: bool = False
    """Evaluate every variant blind too, shown the images of another episode, as the floors of
    `training.evaluate`."""
    sample_actions: bool = False
    """Draw the choices of trained policies by their probabilities in evaluations, as
    `training.evaluate --sample-actions`."""
    env: dict[str, Any] = field(default_factory=dict)
    """Settings of the environment in all evaluations."""
    episodes: int = Field(default=200, ge=2, le=10**5)
    """Evaluation episodes of every variant, seed and reference, the same scenes for all."""
    evaluation_seed: int = Field(default=EVALUATION_SEEDS_FROM, ge=VALIDATION_SEEDS_FROM, lt=2**32)
    """Seed of the first; training uses none from 100000 up. Below that, from 90000 up, are
    validation scenes, to choose a variant by: for studies that clone recorded demonstrations."""
    curves: tuple[CurveConfig, ...] = Field(default=(), max_length=100)
    """Evaluations where the task is changed."""
    compare_stages: bool = False
    """Evaluate the headline variant's earlier stages too: what each stage brings."""
    demonstrations: str | None = None
    """Arguments of `python -m training.demos`, which records the demonstrations that the stages
    clone; null: none."""
    workers: int | None = Field(default=None, ge=1, le=4096)
    """Episodes run at the same time, in training and evaluation; null: the stages' own number, and
    one in evaluations."""
    parallel: int = Field(default=1, ge=1, le=1024)
    """Runs and evaluations made at the same time, each in a separate process with `workers`."""
    ray_address: str | None = None
    """Ray cluster for the stages that can use one ("auto", "host:6379")."""
    device: str = "cpu"
    """PyTorch device of evaluations and of the measured latency."""
    videos: bool = True
    """Record a video of the first seed's policy of every variant, where the environment renders."""

    @property
    def controls(self) -> set[str]:
        """Names of the variants that are controls."""
        return {variant.name for variant in self.arms if variant.control}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for mistake in self._mistakes():
            raise ValueError(mistake)
        return self

    def _mistakes(self) -> Iterator[str]:
        """Sentences on settings that do not fit together."""
        names = [variant.name for variant in self.arms]
        taken = (*(name for name in get_args(Reference) if name != "constant"), *self.references)
        yield from _alike("variant", names, taken)
        yield from _alike("curve", [curve.name for curve in self.curves])
        for key, name in (("baseline", self.baseline), ("headline", self.headline)):
            if name is not None and name not in names:
                yield f"{key} must be one of the variants {', '.join(names)}, got {name!r}"
        if self.compare_stages and (self.headline is None or len(self.stages) < 2):
            yield "compare_stages needs a headline variant and at least 2 stages"
        for key, values in (("seeds", self.seeds), ("references", self.references)):
            if len(set(values)) < len(values):
                yield f"{key} must be distinct, got {list(values)}"
        runs = len(self.seeds) * len(self.arms) * len(self.stages)
        if runs > _MOST_RUNS:
            yield f"seeds, variants and stages make {runs} runs, at most {_MOST_RUNS} are allowed"
        trainers = [find_trainers(stage.trainer) for stage in self.stages]
        clones = all(any(one.clones_recordings for one in among) for among in trainers)
        if self.evaluation_seed < EVALUATION_SEEDS_FROM and (
            self.demonstrations is None or not clones
        ):
            yield (
                f"evaluation_seed must be at least {EVALUATION_SEEDS_FROM} where training makes "
                f"separate scenes and does not only clone demonstrations, got "
                f"{self.evaluation_seed}"
            )
        try:
            shlex.split(self.demonstrations or "")
        except ValueError as error:
            yield (
                f"demonstrations = {self.demonstrations!r}, where arguments of training.demos are "
                f"needed: {error}"
            )
        for curve in self.curves:
            places = [point.x for point in curve.points]
            if len(set(map(place_name, places))) < len(places):
                yield f"curve {curve.name} has two points at one x, to 12 digits, got {places}"
            if not all(math.isfinite(x) for x in places):
                yield f"curve {curve.name} needs finite x, got {places}"
            if curve.episodes > self.episodes and any(map(curve.is_of_the_task, curve.points)):
                yield (
                    f"curve {curve.name} has a point without set, which takes the episodes of the "
                    f"task itself, so its episodes must be at most {self.episodes}, got "
                    f"{curve.episodes}"
                )
        for i, among in enumerate(trainers[1:], 1):
            if not among[0].has("init_from"):
                able = dict.fromkeys(one.name for one in TRAINERS if one.has("init_from"))
                yield (
                    f"stages.{i}.trainer must be {' or '.join(able)}, which can start from the "
                    f"policy of the stage before, got {self.stages[i].trainer}"
                )


def _alike(kind: str, names: list[str], taken: tuple[str, ...] = ()) -> Iterator[str]:
    """Sentences on names that repeat, or would give the same file name."""
    seen = {name: f"the reference {name}" for name in taken}
    for name in names:
        word = slug(name)
        if not word:
            yield f"{kind} names need a letter or a digit, got {name!r}"
        if word in seen:
            yield (
                f"{kind} names must differ in letters and digits, as files are named {word!r} for "
                f"both {seen[word]} and {name!r}"
            )
        seen[word] = repr(name)


def slug(name: str) -> str:
    """A name as part of a file name: small letters and digits, single dashes between."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def place_name(x: float) -> str:
    """A curve's x as part of a file name, to 12 digits."""
    return f"{x:.12g}"


def stage_file(study: Path, given: str) -> Path:
    """The configuration that a stage names: beside the study's file, or a shipped preset.

    UserError when neither is there.
    """
    beside = study.parent / given
    if beside.is_file():
        return beside
    name = given if given.endswith((".yaml", ".yml")) else f"{given}.yaml"
    shipped = Path(str(resources.files("configs"))) / name
    if shipped.is_file():
        return shipped
    raise UserError(
        f"{study}: stage configuration {given} is neither the file {beside} nor a shipped preset"
        f"{like_files(beside, shipped.parent)}"
    )


def study_file(given: str) -> Path:
    """The file of a study: a path, or the name of one that comes with the package."""
    shipped = Path(str(resources.files("configs"))) / "studies" / f"{given}.yaml"
    return shipped if not Path(given).exists() and shipped.is_file() else Path(given)


def load_comparison(cls: type[T], path: str | Path, overrides: Sequence[str]) -> T:
    """A configuration with variants, in which `variants` may stand for `arms`, as records have it.

    Raises UserError, in the words of the file, when something is wrong.
    """

    def renamed(data: Any) -> Any:
        for new, old in _NAMES.items():
            if new in data and old in data:
                raise UserError(f"{path}: {new} and {old} are the same setting; give one of them")
            if new in data:
                data[old] = data.pop(new)
        return data

    given = configuration.read_yaml(path), read_overrides(overrides)
    new_words = not any(old in part for part in given for old in _NAMES.values())
    data, changes = map(renamed, given)
    for claim in data.get("orderings") or ():
        if isinstance(claim, dict):
            renamed(claim)
    try:
        return configuration.combine(cls, data, changes, path, list(overrides))
    except UserError as error:
        text = str(error)
        for new, old in _NAMES.items() if new_words else ():
            text = re.sub(rf"(?<![\w/.'-]){old}(?=[., ]|$)", new, text)
        raise UserError(text) from None


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> StudyConfig:
    """The study with every default filled in; UserError when something is wrong."""
    if not {"stages", "arms", "variants"} & configuration.read_yaml(path).keys():
        raise UserError(f"{path} is no study: it has neither stages nor variants")
    return load_comparison(StudyConfig, path, overrides)
