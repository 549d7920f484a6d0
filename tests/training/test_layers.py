"""The subpackages of `training/`: imports lead from higher layers to lower ones alone."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = (
    {"command"},
    {"collect", "io"},
    {"analysis"},
    {"demonstrations", "reports", "video"},
    {"algorithms", "runner"},
    {"interventions"},
    {"compare", "runs", "settings", "trainers"},
    {"commands"},
)
"""From the ground up. `commands` are the modules of `training` itself, but for `runner`."""
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def layer(module: str) -> str:
    first = module.split(".")[1]
    return first if first in HEIGHT else "commands"


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("training.")}


def test_imports_lead_to_the_same_layer_or_a_lower_one():
    upward = []
    for path in (ROOT / "training").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.count(".") == 1 and module.endswith("__init__"):
            continue  # the package itself, which every command loads first
        here = HEIGHT[layer(module)]
        upward += [(module, name) for name in imported(path) if HEIGHT[layer(name)] > here]
    assert upward == []
