"""What a run's configuration puts around its environment: registration, wrappers, parts.

Three settings stand beside an environment's own, in `env` and as top-level keys:

* `env_register`: a module to import before the environment is made, or "module:function" to call;
  several as a list.
* `env_wrappers`: wrappers from the inside out, each a name or a mapping from a name to its
  keywords, as in the RL Baselines3 Zoo. A name is "module:Class", "package.module.Class" or that of
  a wrapper of `gymnasium.wrappers`.
* `observation_keys`: names of the parts of the observation that are kept, or `{drop: names}`.

What a file of others names is imported only if the user asked for it, see `foreign`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from training.command.errors import UserError, shown

REGISTER, WRAPPERS, KEYS = "env_register", "env_wrappers", "observation_keys"
SETTINGS = {
    REGISTER: "a module, or module:function to call, that registers the environment; or a list",
    WRAPPERS: "wrappers from the inside out: module:Class, or a name of gymnasium.wrappers; "
    "{NAME: {KEY: VALUE}} with keywords",
    KEYS: "parts of the observation to keep, or {drop: [NAME]}; those of nested ones are a.b",
}
"""The settings by name, and what they hold."""


class ForeignId(str):
    """A name from an untrusted file, whose author must not choose what is imported."""


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An environment's own settings, and those of this module that are given and not empty."""
    own = {key: value for key, value in settings.items() if key not in SETTINGS}
    ours = {key: settings[key] for key in SETTINGS if settings.get(key) not in (None, [], {}, "")}
    return own, ours


def normal(
    settings: Mapping[str, Any], mark: Callable[[str], str] = lambda name: name
) -> dict[str, Any]:
    """The settings with those of this module as lists, and those that are empty left out; `mark`
    is applied to the names of what is imported. Raises UserError if one cannot be read."""
    own, ours = split(settings)
    if REGISTER in ours:
        ours[REGISTER] = list(map(mark, registrations(ours)))
    if WRAPPERS in ours:
        ours[WRAPPERS] = [
            {mark(name): words} if words else mark(name) for name, words in wrappers(ours)
        ]
    if KEYS in ours:
        keep, drop = kept(ours)
        ours[KEYS] = keep or {"drop": drop}
    return own | ours


def foreign(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an untrusted file: the names of what would be imported are marked."""
    return normal(settings, ForeignId)


def requested(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The settings of `foreign`, without the mark where the user gave the name too."""
    given = {name.replace(":", ".") for name in names}
    return normal(settings, lambda name: str(name) if name.replace(":", ".") in given else name)


def custom(settings: Mapping[str, Any]) -> list[str]:
    """What the settings import of other packages than Gymnasium, as `--custom` takes it."""
    names = [name for name, _ in wrappers(settings)]
    split = [name if ":" in name else ":".join(name.rsplit(".", 1)) for name in names]
    others = [name for name in split if ":" in name and not name.startswith("gymnasium.wrappers:")]
    return [*registrations(settings), *others]


def listed(value: Any) -> list[Any]:
    """A list as it is, and one value as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def registrations(settings: Mapping[str, Any]) -> list[str]:
    """Modules to import, and functions to call."""
    names = listed(settings.get(REGISTER, []))
    for name in names:
        if not isinstance(name, str) or not _is_dotted(name.partition(":")[0]):
            raise UserError(f"{REGISTER} must be a module or module:function, got {shown(name)}")
    return names


def wrappers(settings: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Names and keywords of the wrappers."""
    found: list[tuple[str, dict[str, Any]]] = []
    for one in listed(settings.get(WRAPPERS, [])):
        pairs = list(one.items()) if isinstance(one, Mapping) else [(one, None)]
        name, words = pairs[0] if len(pairs) == 1 else ("", None)
        words = {} if words is None else words
        is_name = isinstance(name, str) and _is_dotted(name.replace(":", ".", 1))
        if not is_name or not isinstance(words, dict) or not all(isinstance(k, str) for k in words):
            raise UserError(
                f"{WRAPPERS} must hold names (module:Class or one of gymnasium.wrappers) or "
                f"{{NAME: {{KEY: VALUE}}}}, got {shown(one)}"
            )
        found.append((name, words))
    return found


def kept(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Names to keep and names to drop, of which one is empty."""
    given = settings[KEYS]
    drops = isinstance(given, Mapping) and [*given] == ["drop"]
    names = given["drop"] if drops else given
    names = [str(one) if type(one) is int else one for one in listed(names)]
    if not names or not all(isinstance(one, str) and one for one in names):
        raise UserError(f"{KEYS} must be a list of names or {{drop: [NAME]}}, got {shown(given)}")
    return ([], names) if drops else (names, [])


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
