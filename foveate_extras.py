"""The extras of `pip install "foveate[...]"`: a missing one is reported in one sentence.

`pip install foveate` brings what `attention` needs, PyTorch alone; what needs more asks here, and
the error says how to install it. This module imports nothing, so that every package can use it, and
its name is one that no folder of a user hides.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

_POLICIES = ("gymnasium", "numpy", "pydantic")
EXTRAS = {
    "sim": (*_POLICIES, "cv2", "daqp", "llvmlite", "numba", "pybullet", "pybullet_data"),
    "train": (
        *(*_POLICIES, "h5py", "jinja2", "markupsafe", "matplotlib", "PIL", "safetensors"),
        *("scipy", "tensorboard", "tqdm", "yaml", "zlib_ng"),
    ),
    "cluster": ("ray",),
    "fast": ("numba", "llvmlite", "numpy"),
    "video": ("cv2",),
    "sklearn": ("sklearn", "numpy", "threadpoolctl"),
    "rl": ("stable_baselines3",),
    "box2d": ("Box2D", "pygame"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "robot": ("numpy", "onnxruntime"),
    "lerobot": ("pyarrow", "av"),
    "optuna": ("optuna",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
"""Modules of each extra, the most important ones first. A module of several extras belongs to the
first of them."""
NAMES = {
    "cv2": "OpenCV",
    "alembic": "Alembic",
    "av": "PyAV",
    "daqp": "DAQP",
    "numba": "Numba",
    "gymnasium": "Gymnasium",
    "jinja2": "Jinja",
    "markupsafe": "MarkupSafe",
    "matplotlib": "Matplotlib",
    "mlflow": "MLflow",
    "PIL": "Pillow",
    "numpy": "NumPy",
    "onnx": "ONNX",
    "onnxruntime": "ONNX Runtime",
    "onnxscript": "ONNX Script",
    "pybullet": "PyBullet",
    "pybullet_data": "PyBullet",
    "optuna": "Optuna",
    "pyarrow": "PyArrow",
    "ray": "Ray",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "sqlalchemy": "SQLAlchemy",
    "stable_baselines3": "Stable-Baselines3",
    "tensorboard": "TensorBoard",
    "trackio": "Trackio",
    "wandb": "Weights & Biases",
    "yaml": "PyYAML",
    "zlib_ng": "zlib-ng",
}
"""Names of projects that differ from the name of their module."""


class MissingExtraError(ImportError):
    """An extra is not installed; commands print its sentence, and end with exit status 2."""


def require_python(who: str) -> None:
    """Raise ImportError before Python 3.11, on which only the robot's part of `deploy` runs."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the wheel installs on Python 3.10
        raise ImportError(
            f"{who} requires Python 3.11 or later, got {sys.version.split()[0]}; only "
            "deploy.runtime and deploy.loop run on Python 3.10"
        )


def require(who: str, extra: str, *modules: str) -> None:
    """Raise MissingExtraError where one of the modules (default: all of the extra's) cannot be
    imported; `who` needs them, in the sentence. None of them is imported."""
    missing = [module for module in modules or EXTRAS[extra] if not _there(module)]
    if missing:
        raise _error(who, missing, extra)


@contextmanager
def needs(who: str, extra: str, *modules: str) -> Iterator[None]:
    """A context for imports: if one fails, raise MissingExtraError, which names the first of the
    modules (default: all of the extra's) that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS[extra]:
            raise
        missing = [module for module in modules or EXTRAS[extra] if not _there(module)]
        raise _error(who, missing[:1] or [str(error.name)], extra) from None


def explained(who: str, error: BaseException) -> ImportError | None:
    """The error to raise in place of one that a missing module of an extra caused, directly or as
    its cause; None if there is no such module."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingExtraError):
            return cause
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            module = cause.name.partition(".")[0]
            for extra, known in EXTRAS.items():
                if module in known:
                    return _error(who, [module], extra)
        cause = cause.__cause__ or cause.__context__
    return None


def _there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _error(who: str, modules: list[str], extra: str) -> MissingExtraError:
    *most, last = dict.fromkeys(NAMES.get(module, module) for module in modules)
    words = f"{', '.join(most)} and {last}" if most else last
    return MissingExtraError(
        f'{who} needs {words}: pip install "foveate[{extra}]"', name=modules[0]
    )
