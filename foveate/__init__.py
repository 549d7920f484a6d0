"""Foveate's packages under one name.

    import foveate

    layer = foveate.attention.RandomFeatureAttention(embed_dim=64, num_heads=4)

`foveate.attention`, `.policies`, `.envs`, `.training` and `.deploy`, and all modules in them, are
the modules of the names without `foveate.`: one object with two names, so that classes, registries
and pickles exist once. Each is imported on first access. Type checkers know what these five
packages export; they know deeper modules by the names without `foveate.`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foveate import attention, deploy, envs, policies, training

__all__ = ["__version__", "attention", "deploy", "envs", "policies", "training"]

__version__ = "0.1.0"

_PACKAGES = frozenset(__all__) - {"__version__"}
_ROOT = Path(__file__).resolve().parents[1]


class _Alias(MetaPathFinder, Loader):
    """Finds `foveate.X` as the module `X`, for imports and for `python -m`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of an alias; None for another name, or if there is no such module.

        Raises:
            ImportError: a foreign package hides one of Foveate's.
        """
        first, _, name = fullname.partition(".")
        if first != __name__ or name.partition(".")[0] not in _PACKAGES:
            return None
        found = find_spec(name)
        if found is None:
            return None
        if name in _PACKAGES:
            _check(name, found)
        spec = ModuleSpec(fullname, self, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the shorter name in the place of the empty one, which is discarded.

        Its submodules that are loaded get their second name here, too. An import by that name would
        set them as attributes of their package, where a function of the same name may stand.
        """
        name = _short(module.__name__)
        import_module(name)
        loaded = {
            key: one for key, one in list(sys.modules.items()) if f"{key}.".startswith(f"{name}.")
        }
        sys.modules.update({f"{__name__}.{key}": one for key, one in loaded.items()})

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that `python -m` runs."""
        found = find_spec(_short(fullname))
        assert found is not None
        assert isinstance(found.loader, InspectLoader)
        return found.loader.get_code(found.name)


def _short(name: str) -> str:
    return name.removeprefix(f"{__name__}.")


def _check(name: str, found: ModuleSpec) -> None:
    """Raise ImportError, before it is imported, for a package of the same name that is not ours."""
    places = [found.origin] if found.origin else [*(found.submodule_search_locations or ())]
    files = [Path(place).resolve() for place in places]
    if files != [_ROOT / name / "__init__.py"]:
        place = files[0].parent if found.origin and found.submodule_search_locations else files[0]
        raise ImportError(
            f"{place} hides Foveate's package {name}: rename it, or keep it off Python's path"
        )


sys.meta_path.insert(0, _Alias())  # before Python's own, which would load a second copy


def __getattr__(name: str) -> Any:
    """Import one of the packages on first access."""
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})
