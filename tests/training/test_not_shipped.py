"""Shipped policies are few and small; for the names of others the message gives their commands."""

import shlex
from pathlib import Path

import pytest

from policies.pretrained.not_shipped import NOT_SHIPPED
from tests.helpers import refused
from training import bc, rollout
from training.algorithms.bc_config import BC
from training.command.errors import UserError, preset
from training.compare.config import load_config, study_file
from training.compare.model_files import PolicyJob
from training.compare.runs import all_runs
from training.compare.study import plan
from training.io import checkpoint

OF_STUDIES = sorted(name for name, made in NOT_SHIPPED.items() if ".study " in made.command)


def test_shipped_policies_take_less_than_5_mb():
    shipped = checkpoint.shipped()
    assert sum(path.stat().st_size for path in shipped.values()) < 5e6
    assert shipped.keys() & NOT_SHIPPED.keys() == set()


@pytest.mark.parametrize("name", NOT_SHIPPED)
def test_the_name_of_a_policy_that_is_not_shipped_is_answered_with_its_command(name):
    with pytest.raises(UserError) as caught:
        checkpoint.resolve(name)
    made = NOT_SHIPPED[name]
    assert str(caught.value) == (
        f"{name} no longer comes with the package; this trains it again, as {made.path}: "
        f"{made.command}"
    )


def test_commands_answer_so_in_one_line_and_a_file_of_that_name_comes_first(
    tmp_path, monkeypatch, capsys
):
    name = "stepping_stones_softmax"
    refused(capsys, rollout, [name], NOT_SHIPPED[name].command)
    monkeypatch.chdir(tmp_path)
    Path(name).touch()
    assert checkpoint.resolve(name) == Path(name)


@pytest.mark.parametrize("name", OF_STUDIES)
def test_the_command_trains_one_variant_of_a_committed_study(name, tmp_path, monkeypatch):
    made = NOT_SHIPPED[name]
    *command, given, option = shlex.split(made.command)[:6]
    assert [*command, option] == ["python", "-m", "training.study", "--config", "--set"]
    overrides = shlex.split(made.command)[6:]
    monkeypatch.chdir(tmp_path)  # a command for any directory
    file = study_file(given)
    assert file.is_file()
    alone, whole = load_config(file, overrides), load_config(file)
    assert len(alone.arms) == len(alone.seeds) == 1
    assert alone.arms[0].set == next(a for a in whole.arms if a.name == alone.arms[0].name).set
    assert alone.seeds[0] in whole.seeds
    assert alone.stages == whole.stages
    out = Path("studies") / file.stem
    units = plan(alone, out, all_runs(alone, file, out))
    assert [unit.path for unit in units if isinstance(unit, PolicyJob)] == [Path(made.path)]


def test_every_other_command_trains_by_a_committed_preset():
    (name,) = NOT_SHIPPED.keys() - set(OF_STUDIES)
    *start, module, option, out = shlex.split(NOT_SHIPPED[name].command)
    assert [*start, module, option] == ["python", "-m", "training.bc", "--out"]
    assert out == NOT_SHIPPED[name].path
    assert preset(BC.preset).stem == name
    assert bc.load_config(preset(BC.preset), []).env_id == "SteppingStones-v0"
