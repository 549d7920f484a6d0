"""The checkpoint format: a safetensors file whose metadata holds the run's configuration.

Tensors are named `policy/...` (the policy's state, with normaliser and random projections) and
`search/...` (the optimiser's). Metadata: `format`, `version`, `config` and `state`, the last two
as JSON, and `sha256` of the tensors' bytes, which older files lack. Loading runs no code from the
file, and equal contents give equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
from safetensors import torch as safetensors_torch
from torch import Tensor, nn

from policies.pretrained.not_shipped import NOT_SHIPPED
from training.collect import env_settings
from training.collect.env_settings import ForeignId
from training.collect.environments import make_env, other_robot
from training.command.errors import did_you_mean
from training.command.files import write_atomically, writing
from training.io.config import UserError, validate
from training.io.state_files import plain_json
from training.io.tensor_file import read_header, read_tensors, sha256_of_tensors

if TYPE_CHECKING:
    import policies
    from policies.common.settings import Repair

FORMAT, VERSION = "foveate-checkpoint", "1"
CHECKPOINTS = "checkpoints"
"""The folder of a run directory that holds them."""
POLICY, SEARCH = "policy/", "search/"
_SMALL = 10**6
"""Number of elements up to which a policy is built for comparison with any file."""


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file; tensors are read on access."""

    path: Path
    layout: dict[str, Tensor]
    """Every tensor as the file names it, on the meta device: its shape and type alone."""
    config: dict[str, Any]
    """The whole configuration of the run, as plain data."""
    state: dict[str, Any]
    """Counters and other plain data."""

    @cached_property
    def policy(self) -> dict[str, Tensor]:
        """The policy's `state_dict`."""
        return self._read(POLICY)

    @cached_property
    def search(self) -> dict[str, Tensor]:
        """The optimiser's tensors."""
        return self._read(SEARCH)

    @property
    def policy_layout(self) -> dict[str, Tensor]:
        """Shapes and types of the policy's `state_dict`, by its names."""
        return _group(self.layout, POLICY)

    def _read(self, prefix: str) -> dict[str, Tensor]:
        names = [name for name in self.layout if name.startswith(prefix)]
        return _group(read_tensors(self.path, names), prefix)

    @property
    def has_fitted_maps(self) -> bool:
        """Whether its run has fitted the feature maps to the policy's queries and keys."""
        progress = self.state.get("progress")
        return isinstance(progress, dict) and progress.get("fitted") is True


def _group(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def save(
    path: Path, policy_tensors: dict[str, Tensor], search_tensors: dict[str, Tensor],
    config: dict[str, Any], state: dict[str, Any],
) -> None:  # fmt: skip
    """Write a checkpoint so that at any moment `path` is absent, the old file or the new one.
    Raises UserError if it cannot be written."""
    named = {POLICY + name: tensor for name, tensor in policy_tensors.items()}
    named |= {SEARCH + name: tensor for name, tensor in search_tensors.items()}
    tensors = {k: tensor.detach().cpu().clone().contiguous() for k, tensor in named.items()}
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "config": json.dumps(config, sort_keys=True, allow_nan=False),
        "state": json.dumps(state, sort_keys=True, allow_nan=False),
    }
    with writing(path):
        write_atomically(path, _finished(safetensors_torch.save(tensors, metadata)))


def _finished(data: bytes) -> bytes:
    """The same file with its checksum and with sorted header keys: safetensors orders metadata at
    random."""
    size = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + size]), data[8 + size :]
    header["__metadata__"]["sha256"] = hashlib.sha256(tensors).hexdigest()
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint; raises UserError if it is missing, truncated, damaged, foreign or of
    another version. In a run directory the error names the run's newest intact checkpoint."""
    path = Path(path)
    try:
        return read(path)
    except UserError as error:
        in_a_run = path.parent.name == CHECKPOINTS
        whole = newest_whole(path.parent.parent) if in_a_run else None
        if whole is None:
            raise
        raise UserError(f"{error}; the newest whole checkpoint of that run is {whole}") from None


def read(path: Path) -> Checkpoint:
    """Like `load`, but errors concern this file alone."""
    if not os.path.isfile(path):  # unlike Path's, False for impossible names
        raise UserError(f"there is no checkpoint {path}")
    metadata, layout = read_header(path)
    sha256 = metadata.get("sha256")
    kind, version = metadata.get("format"), metadata.get("version")
    if kind != FORMAT:
        raise UserError(
            f"{path} is a safetensors file of another kind: its format is {kind!r}, where "
            f"{FORMAT!r} is needed"
        )
    if version != VERSION:
        raise UserError(
            f"{path} is a checkpoint of version {version!r}, but this program reads {VERSION!r}"
        )
    if sha256 is not None and sha256 != sha256_of_tensors(path):
        raise UserError(
            f"{path} is damaged: its tensors are not those that were written, by the checksum in it"
        )
    try:
        config, state = dict(plain_json(metadata["config"])), dict(plain_json(metadata["state"]))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is a checkpoint without a readable config and state") from None
    env_id = config.get("env_id", "")
    if not isinstance(env_id, str):
        raise UserError(f"{path}: env_id is {env_id!r}, where a Gymnasium id is needed")
    if ":" in env_id:
        config["env_id"] = ForeignId(env_id)
    for key in ("env", "policy"):
        if not isinstance(config.get(key, {}), dict):
            raise UserError(
                f"{path}: {key} is {config[key]!r}, where `key: value` pairs are needed"
            )
    if "env" in config:
        try:
            config["env"] = env_settings.foreign(config["env"])
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return Checkpoint(path, layout, config, state)


def shipped() -> dict[str, Path]:
    """Policies that come with the package, by name."""
    folder = Path(str(resources.files("policies"))) / "pretrained"
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def in_run(run: Path) -> list[Path]:
    """A run's checkpoints by iteration, oldest first; other files are ignored."""
    found = (run / CHECKPOINTS).glob("[0-9]*.safetensors")
    numbered = [path for path in found if path.stem.isdecimal() and path.is_file()]
    ours = [path for path in numbered if path == _path(run, iteration_of(path))]
    return sorted(ours, key=iteration_of)


def iteration_of(path: Path) -> int:
    """The iteration of a run's checkpoint."""
    return int(path.stem)


def _path(run: Path, iteration: int) -> Path:
    return run / CHECKPOINTS / f"{iteration:06d}.safetensors"


def newest_whole(run: Path) -> Path | None:
    """The latest of a run's checkpoints that can be read; None if there is none."""
    for path in reversed(in_run(run)):
        with suppress(UserError):
            return read(path).path
    return None


def set_aside_after(start: Path) -> int:
    """Rename the checkpoints of a run that are later than `start`, which it resumes from: they are
    kept as *.aside until their iterations are repeated. Returns their number."""
    every = in_run(start.parent.parent)
    later = [path for path in every if iteration_of(path) > iteration_of(start)]
    for path in reversed(later):  # if killed here, the run ends at an earlier iteration
        path.replace(_aside(path))
    return len(later)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.aside")


def save_in_run(
    run: Path, iteration: int, policy: nn.Module, search_tensors: dict[str, Tensor],
    config: dict[str, Any], state: dict[str, Any],
) -> None:  # fmt: skip
    """Write an iteration's checkpoint; drop all but the first and `checkpoints_kept` latest."""
    path = _path(run, iteration)
    save(path, policy.state_dict(), search_tensors, config, state)
    _aside(path).unlink(missing_ok=True)
    for old in in_run(run)[1 : -config["checkpoints_kept"]]:
        old.unlink()


def resolve(run_or_checkpoint: str | Path) -> Path:
    """The checkpoint for a file, a run directory (its latest) or a shipped policy's name."""
    name, path, policies = str(run_or_checkpoint), Path(run_or_checkpoint), shipped()
    if os.path.isdir(path):
        checkpoints = in_run(path)
        if not checkpoints:
            raise UserError(f"{path} holds no checkpoint ({CHECKPOINTS}/*.safetensors)")
        return checkpoints[-1]
    if os.path.isfile(path):  # unlike Path's, False for impossible names
        return path
    if name in policies:
        return policies[name]
    if name in NOT_SHIPPED:
        raise UserError(NOT_SHIPPED[name].sentence(name))
    raise UserError(
        f"{name} is neither a run directory, nor a checkpoint file, nor one of the policies that "
        f"come with the package ({', '.join(policies) or 'none'}){did_you_mean(name, policies)}"
    )


def check_tensors(
    path: Path, kind: str, theirs: dict[str, Tensor], ours: dict[str, Tensor]
) -> None:
    """Raise UserError, naming the first tensor of a file that does not fit the configured
    `kind`."""
    for name in sorted(ours.keys() | theirs.keys()):
        there, here = (_described(tensors.get(name)) for tensors in (theirs, ours))
        if here != there:
            raise UserError(
                f"{path} holds another {kind}: tensor {name} is {there} there, but the configured "
                f"{kind} needs {here}"
            )
    for name, tensor in sorted(theirs.items()):
        if not (tensor.is_meta or bool(tensor.isfinite().all())):
            raise UserError(
                f"{path} holds a broken {kind}: tensor {name} has numbers that are not finite"
            )


def _described(tensor: Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def load_into(policy: nn.Module, checkpoint: Checkpoint) -> None:
    """Set a policy's parameters and buffers; UserError names the first tensor that differs."""
    ours = policy.state_dict()
    check_tensors(checkpoint.path, "policy", checkpoint.policy_layout, ours)  # before it is read
    check_tensors(checkpoint.path, "policy", checkpoint.policy, ours)
    policy.load_state_dict(checkpoint.policy)


@contextmanager
def fitting(complaint: str) -> Iterator[None]:
    """Raise a UserError that begins with `complaint` if the block cannot build a policy, as it does
    not fit the environment or memory."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        reason = str(error).partition("\n")[0] or "out of memory"
        raise UserError(f"{complaint}: {reason}") from None


def load_policy(
    path: str | Path, env: gymnasium.Env | None = None, repair: Repair | None = None, *,
    force: bool = False,
) -> tuple[nn.Module, dict[str, Any]]:  # fmt: skip
    """The policy of a checkpoint, ready to act, and the configuration of the run it comes from.

    `env` gives the observation and action spaces; without it the run's environment is created
    temporarily. `repair` replaces the policy's own setting. Raises UserError if the checkpoint and
    its configuration disagree, and, without `force`, if `env` has another robot or other cameras
    than the policy was trained with and the policy does not read their geometry.
    """
    import policies

    checkpoint = load(resolve(path))
    config = checkpoint.config
    absent = [key for key in ("env_id", "env", "policy") if key not in config]
    if absent:
        raise UserError(f"{checkpoint.path} has a configuration without {', '.join(absent)}")
    settings = policy_settings(config["policy"], checkpoint.path)
    if repair is not None:
        settings = with_repair(settings, repair, checkpoint.path)
    size = sum(tensor.numel() for tensor in checkpoint.policy_layout.values())
    opened = make_env(config["env_id"], config["env"]) if env is None else nullcontext(env)
    with opened as there, fitting(f"{checkpoint.path}: its policy does not fit here"):
        settings = with_former_layout(settings, there, checkpoint)
        policy = policies.build_for(settings, there, max(size, _SMALL), trusted=False)
    load_into(policy, checkpoint)
    if env is not None and not getattr(policy, "reads_geometry", False):
        other = other_robot(env, config["env_id"], config["env"])
        if other and not force:
            key, (there, here) = next(iter(other.items()))
            raise UserError(
                f"{checkpoint.path} was trained with {key} = {there!r}, and here it is {here!r}, "
                "to which its policy does not adapt: --force runs it nevertheless, and the "
                "controller vote adapts to the cameras"
            )
    policy.requires_grad_(False)
    return policy, config


def with_former_layout(settings: Any, env: gymnasium.Env, checkpoint: Checkpoint) -> Any:
    """A policy's settings with tables read as images (`policies.common.observation.is_table`) if
    the checkpoint's policy, of an earlier version, reads them so, by the shapes of its tensors."""
    import policies
    from policies.common.geometry import camera_rays
    from policies.common.observation import is_table, parts_of

    given: Any = getattr(settings, "layout", None)
    known = camera_rays(env)
    tables = [key for key, part in parts_of(env.observation_space) if is_table(key, part)]
    tables = [key for key in tables if given is not None and key not in {*given, *known}]
    if not tables:
        return settings
    try:
        ours = policies.build_for(settings, env, trusted=False).state_dict()
    except ValueError:  # it must have images
        ours = {}
    name = "normaliser.mean"
    if name in ours and ours[name].shape == checkpoint.policy_layout[name].shape:
        return settings
    return dataclasses.replace(settings, layout={**dict.fromkeys(tables, "HW"), **given})


def with_repair(settings: Any, repair: Repair, whose: str | Path) -> Any:
    """A policy's settings with another repair; raises UserError for a policy without repair."""
    from policies.common.settings import SeeingConfig

    if not isinstance(settings, SeeingConfig):
        raise UserError(f"repair {repair}: {whose} is a {settings.name}, which has none")
    return dataclasses.replace(settings, repair=repair)


def policy_settings(given: dict[str, Any], path: str | Path) -> policies.AnyPolicyConfig:
    """The policy's settings, of the kind that their `name` says; without one, the first kind's."""
    from policies.common.kinds import CONFIGS, settings_class

    try:
        cls = settings_class(given)
    except ValueError:
        name, known = given["name"], ", ".join(CONFIGS)
        raise UserError(
            f"{path}: policy.name is {name!r}, where one of {known} is needed"
            f"{did_you_mean(str(name), CONFIGS)}"
        ) from None
    settings: policies.AnyPolicyConfig = validate(cls, given, path, "policy.")
    return settings
