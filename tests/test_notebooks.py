"""The notebooks of docs/ use public names and run unchanged."""

import ast
import json
import re
from pathlib import Path

import pytest

import attention
from tests import notebooks

FILES = sorted(notebooks.FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def shown(cell) -> list[str]:
    """The kinds of what a cell shows."""
    return sorted(output["output_type"] for output in cell["outputs"])


def printed(notebook) -> str:
    outputs = [output for cell, _ in notebooks.code_cells(notebook) for output in cell["outputs"]]
    return "".join("".join(output.get("text", "")) for output in outputs)


def run(name: str, folder: Path):
    """A notebook after it ran. Its cells show as many things of each kind as the file keeps."""
    path = notebooks.FOLDER / name
    after = notebooks.run_apart(path, folder)
    kept = [shown(cell) for cell, _ in notebooks.code_cells(notebooks.read(path))]
    assert [shown(cell) for cell, _ in notebooks.code_cells(after)] == kept
    return after


def rewards(folder: Path) -> list[float]:
    found = json.loads((folder / "measured" / "evaluation.json").read_text())
    return [one["reward_mean"] for one in found]


@every_notebook
def test_a_notebook_uses_public_names_alone(path: Path) -> None:
    for _, source in notebooks.code_cells(notebooks.read(path)):
        if source.startswith("%%"):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("attention", "policies", "envs", "training")
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "attention":
                assert node.attr in attention.__all__


def test_a_failing_cell_raises_an_error(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["%%bash\n", "false\n", "true"], "outputs": []}
    (tmp_path / "fails.ipynb").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(RuntimeError, match=r"fails\.ipynb: (.|\n)*CalledProcessError"):
        notebooks.run_apart(tmp_path / "fails.ipynb", tmp_path)


@pytest.mark.slow
def test_attention_that_is_swapped_is_mended_by_training(tmp_path: Path) -> None:
    text = printed(run("attention_in_your_transformer.ipynb", tmp_path))
    softmax, swapped, trained = map(float, re.findall(r"error ([\d.]+)", text))
    assert softmax < 0.05
    assert trained < min(0.05, swapped)


@pytest.mark.slow
def test_the_policy_of_the_notebook_beats_random_actions(tmp_path: Path) -> None:
    run("train_a_policy.ipynb", tmp_path)
    trained, random = rewards(tmp_path)
    assert trained > 3 * random


@pytest.mark.slow
def test_the_policy_of_a_custom_environment_uses_its_images(tmp_path: Path) -> None:
    run("bring_your_own_environment.ipynb", tmp_path)
    trained, random = rewards(tmp_path)
    assert trained > random
    assert json.loads((tmp_path / "looked" / "sight.json").read_text())["looks"] is True
