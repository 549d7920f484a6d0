"""All trainers, by the key `trainer` of a configuration."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from policies.common.kinds import settings_class
from training.algorithms.bc_config import BC
from training.algorithms.es_config import ES
from training.algorithms.implicit_bc_config import IMPLICIT_BC
from training.algorithms.ppo_config import PPO
from training.algorithms.trainer import JobConfig, Trainer, is_of_run
from training.collect.callables import import_object, is_import_path
from training.command.errors import did_you_mean
from training.io.config import UserError, choices_of, read_overrides, read_yaml
from training.io.overrides import Overrides, source

TRAINERS = (ES, BC, IMPLICIT_BC, PPO)
"""The trainers of the package; where several fit, the first is chosen."""


def find_trainers(name: Any, trusted: bool = True) -> tuple[Trainer, ...]:
    """The trainers with a name; "module:NAME" is imported if it is `trusted`.

    Raises UserError if there are none.
    """
    found = tuple(one for one in TRAINERS if one.name == name)
    if not found and isinstance(name, str) and is_import_path(name) and trusted:
        found = tuple(one for one in (import_object(name),) if isinstance(one, Trainer))
    if not found:
        known = ", ".join(dict.fromkeys(one.name for one in TRAINERS))
        raise UserError(
            f"trainer must be one of {known}, got {name!r}; a custom one is given as module:NAME"
        )
    return found


def trainer_of(config: JobConfig) -> Trainer:
    """The trainer to which a configuration belongs."""
    return next(one for one in find_trainers(config.trainer) if one.config is type(config))


def load_any_config(path: str | Path, overrides: Overrides = (), trainer: str | None = None) -> Any:
    """Load the configuration of a trainer: `trainer`, or the one that the file names.

    Among several of that name (or all, if the file names none) it is the one that accepts the
    given `policy.name` and knows most of the keys.

    Raises:
        UserError: the file cannot be read, is for another trainer, or breaks its trainer's rules.
    """
    data, changes = read_yaml(path), read_overrides(overrides)
    given = changes.get("trainer", data.get("trainer"))
    trusted = given == trainer or "trainer" in changes or not is_of_run(path)
    try:
        asked = () if given is None else find_trainers(given, trusted)
    except UserError as error:
        hint = "" if ":" in str(given) else did_you_mean(str(given), [t.name for t in TRAINERS])
        raise UserError(f"{source(path, overrides)}: {error}{hint}") from None
    if trainer is not None and asked and given != trainer:
        raise UserError(
            f"{source(path, overrides)} is for the trainer {given}, whose command is python -m "
            f"{asked[0].command}, not python -m {find_trainers(trainer)[0].command}"
        )
    among = asked or (TRAINERS if trainer is None else find_trainers(trainer))
    kind = _requested_policy(data, changes)
    fit = [one for one in among if kind is None or kind in _policies(one.config)] or [*among]
    keys = data.keys() | changes.keys()
    knows_most = max(fit, key=lambda one: len(keys & {part.name for part in fields(one.config)}))
    return knows_most.load(path, overrides)


def _requested_policy(data: dict[str, Any], changes: dict[str, Any]) -> Any:
    """Class of the settings of `policy.name`; None if it is not given or unknown."""
    given, changed = (part.get("policy") for part in (data, changes))
    policy = {**changed} if isinstance(changed, dict) else {}
    if "name" not in policy and isinstance(given, dict):
        policy = {**given, **policy}
    try:
        return settings_class(policy) if "name" in policy else None
    except ValueError:
        return None


def _policies(config: Any) -> list[type[Any]]:
    """Classes of the policy settings that a trainer with this class of configurations accepts."""
    return [*choices_of(config.__pydantic_fields__["policy"].annotation).values()]
