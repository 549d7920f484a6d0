"""Resuming a run: from a complete checkpoint of this run, whose rows exist."""

import math
import shlex
import shutil

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file

from tests.helpers import refused, same_results
from training import bc, es, evaluate, flops, rollout
from training.io import checkpoint, run_log
from training.io.checkpoint import in_run
from training.io.config import read_yaml

TOY = {
    "env_id": "tests.training.toy_env:Toy-v0", "env": {"episode_s": 0.1}, "iterations": 7,
    "popsize": 4, "terrains": 1, "center_terrains": 1, "workers": 1, "seed": 5,
    "searcher": {"name": "cmaes", "separable": True},
    "policy": {"controller": "mlp", "hidden": [4], "patch": [8, 8]},
}  # fmt: skip
CLONE = {
    "env_id": "tests.training.expert_env:Expert-v0", "expert_episodes": 4, "episodes": 3,
    "updates": 9, "batch_size": 16, "workers": 1, "held_out": 0.25,
    "policy": {"controller": "mlp", "hidden": [16], "patch": [8, 8]},
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of seven iterations."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "job.yaml").write_text(yaml.safe_dump(TOY))
    assert es.main(["--config", str(folder / "job.yaml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it, that may be damaged."""
    shutil.copytree(whole, tmp_path / "a run")
    return tmp_path / "a run"


def at(run, iteration):
    return run / "checkpoints" / f"{iteration:06d}.safetensors"


def same(run, other):
    same_results(run, other)
    assert not list(run.glob("checkpoints/*.aside"))


def paste(line):
    """Run the command at the end of a line."""
    words = shlex.split(line[line.index("python -m training.es") :])
    assert es.main(words[3:]) == 0


@pytest.fixture
def clone(tmp_path):
    """A cloning run of two rounds, and its configuration."""
    path, run = tmp_path / "clone.yaml", tmp_path / "clone"
    path.write_text(yaml.safe_dump(CLONE))
    assert bc.main(["--config", str(path), "--out", str(run), "--set", "iterations=2"]) == 0
    return run, path


# Another job under the run's name.


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"episode_s": 0.2, "env": {"episode_s": 0.2}}, "episode_s = 0.2 in {} differs from 0.1"),
        ({"env": {"episode_s": 0.1, "busy_s": 0.0}}, "env.busy_s = 0.0 in {} differs from None"),
        ({"searcher": {"name": "ars"}}, "searcher.name = 'ars' in {} differs from 'cmaes'"),
        ({"popzise": 4}, "unknown key popzise"),
    ],
)
def test_a_configuration_that_was_edited_is_refused(run, capsys, change, sentence):
    config = run / "config.yaml"
    text, more = config.read_text(), ["--resume", run, "--set", "iterations=8"]
    config.write_text(yaml.safe_dump({**read_yaml(config), **change}))
    error = refused(capsys, es, more, sentence.format(config), f"or remove {config}")
    if "differs" in sentence:
        assert str(at(run, 7)) in error
    assert at(run, 7).exists()
    assert not at(run, 8).exists()
    config.write_text(text)
    assert es.main([str(word) for word in more]) == 0


def test_a_key_that_was_taken_out_of_the_configuration_is_refused(run, capsys):
    config = run / "config.yaml"
    config.write_text(yaml.safe_dump({k: v for k, v in read_yaml(config).items() if k != "seed"}))
    refused(capsys, es, ["--resume", run], "seed = 0 in", "differs from 5, with which")


def test_what_a_resumed_run_may_change_may_be_edited_too(run):
    config = run / "config.yaml"
    config.write_text(yaml.safe_dump({**read_yaml(config), "iterations": 8, "workers": 3}))
    assert es.main(["--resume", str(run), "--set", "workers=1"]) == 0
    assert [path.stem for path in in_run(run)][-1] == "000008"


def test_a_key_that_is_new_since_the_run_has_its_default(run):
    config = run / "config.yaml"
    older = read_yaml(config)
    assert older.pop("advance_at") == 0.6
    saved = checkpoint.load(at(run, 7))
    trained = {k: v for k, v in saved.config.items() if k != "advance_at"}
    checkpoint.save(saved.path, saved.policy, saved.search, trained, saved.state)
    config.write_text(yaml.safe_dump(older))
    assert es.main(["--resume", str(run), "--set", "iterations=8"]) == 0


def test_a_configuration_that_is_gone_is_restored(whole, tmp_path, capsys):
    job, run = tmp_path / "job.yaml", tmp_path / "run"
    job.write_text(yaml.safe_dump(TOY | {"env_id": "Toy-v0"}))  # known without an import
    assert es.main(["--config", str(job), "--out", str(run), "--set", "iterations=1"]) == 0
    before = (run / "config.yaml").read_bytes()
    (run / "config.yaml").unlink()
    assert es.main(["--resume", str(run)]) == 0
    assert f"it is restored from {at(run, 1)}" in capsys.readouterr().out
    assert (run / "config.yaml").read_bytes() == before
    (run / "config.yaml").unlink()
    refused(capsys, es, ["--resume", run, "--set", "seed=7"], "seed = 7 differs from 5 in")
    assert es.main(["--resume", str(run), "--set", "iterations=7"]) == 0
    same(whole, run)


def test_a_checkpoint_alone_imports_nothing(run, whole, capsys):
    (run / "config.yaml").unlink()
    refused(
        capsys, es, ["--resume", run], "names an environment that would be imported", "--config"
    )
    more = ["--resume", str(run), "--config", str(whole / "config.yaml")]
    refused(capsys, es, [*more, "--set", "seed=7"], "seed = 7 differs from 5 in")
    assert es.main([*more, "--set", "iterations=8"]) == 0
    assert read_yaml(run / "config.yaml")["iterations"] == 8


def test_a_checkpoint_of_another_run_is_refused(run, tmp_path, capsys):
    other = tmp_path / "other"
    words = ["--config", str(run / "config.yaml"), "--out", str(other)]
    assert es.main([*words, "--set", "seed=6", "iterations=9"]) == 0
    shutil.copy(at(other, 9), at(run, 9))
    error = refused(
        capsys, es, ["--resume", run], f"seed = 5 in {run / 'config.yaml'} differs from 6"
    )
    assert "remove" not in error
    assert error.endswith(f"python -m training.es --resume '{at(run, 7)}'")
    at(run, 9).unlink()
    shutil.copy(at(run, 6), at(run, 9))
    refused(capsys, es, ["--resume", run], f"{at(run, 9)} holds iteration 6, not that of its name")


# Rows that a checkpoint has passed.


def lines(run):
    return (run / "metrics.csv").read_bytes().splitlines(keepends=True)


DAMAGED = {
    "rows lost": lambda old: old[:4],
    "two rows exchanged": lambda old: [*old[:4], old[5], old[4], *old[6:]],
    "the tail is zero": lambda old: [*old[:4], b"\0" * len(b"".join(old[4:]))],
    "a row cut short": lambda old: [*old[:4], old[4][:9] + b"\n", *old[5:]],
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_run_never_goes_on_over_rows_that_are_missing(run, whole, capsys, damage):
    """The third iteration's is the last whole row; its checkpoint still exists."""
    (run / "metrics.csv").write_bytes(b"".join(DAMAGED[damage](lines(run))))
    before = lines(run)
    error = refused(
        capsys, es, ["--resume", run, "--set", "iterations=8"],
        f"{run / 'metrics.csv'} must hold a whole row of each of the first 7 iterations, in their "
        "order, but holds only those of the first 3; the newest checkpoint that this run can "
        f"resume from is {at(run, 3)}: python -m",
    )  # fmt: skip
    assert lines(run) == before
    paste(error.replace("iterations=8", "iterations=7"))
    same(run, whole)


@pytest.mark.parametrize("left", [b"\0" * 99, None])
def test_without_any_row_a_run_begins_again_from_its_first_checkpoint(run, whole, capsys, left):
    if left is None:
        (run / "metrics.csv").unlink()
    else:
        (run / "metrics.csv").write_bytes(left)
    paste(
        refused(capsys, es, ["--resume", run], "but holds none; the newest checkpoint", at(run, 0))
    )
    same(run, whole)


def test_a_row_is_on_the_disk_before_its_checkpoint(tmp_path, monkeypatch):
    """What is synced, and what is renamed into place, in turn."""
    done, sync, replace = [], run_log.os.fsync, run_log.os.replace

    def synced(descriptor):
        done.append(run_log.os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2])
        sync(descriptor)

    def replaced(old, new):
        done.append(str(new).rpartition("/")[2])
        replace(old, new)

    monkeypatch.setattr(run_log.os, "fsync", synced)
    monkeypatch.setattr(run_log.os, "replace", replaced)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**TOY, "iterations": 1}))
    assert es.main(["--config", str(path), "--out", str(tmp_path / "run")]) == 0
    first, last = done.index("000000.safetensors"), done.index("000001.safetensors")
    between = done[first + 1 : last]
    assert between.index("run") < between.index("metrics.csv")  # the directory, then its rows
    assert between.count("metrics.csv") == 2  # heading, row


# Checkpoints that are damaged.


def zeroed(data):
    return data[:-4000] + b"\0" * 4000


def flipped(data):
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:-1], lambda data: b"\0" * len(data), zeroed, flipped],
    ids=["empty", "short by one", "all zeros", "tail of zeros", "one bit"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused_with_the_command_that_goes_on(run, whole, capsys, damage):
    for iteration in (7, 6):
        at(run, iteration).write_bytes(damage(at(run, iteration).read_bytes()))
    error = refused(
        capsys, es, ["--resume", run, "--set", "workers=1", "iterations=7"], f"{at(run, 7)} is ",
        f"; the newest checkpoint that this run can resume from is {at(run, 5)}: python -m "
        f"training.es --resume '{at(run, 5)}' --set workers=1 iterations=7",
    )  # fmt: skip
    for main in (rollout.main, evaluate.main, flops.main):
        refused(
            capsys, main, [run, *([] if main is flops.main else ["--env", TOY["env_id"]])],
            f"{at(run, 7)} is ", f"; the newest whole checkpoint of that run is {at(run, 5)}",
        )  # fmt: skip
    paste(error)
    same(run, whole)


def test_a_run_goes_on_from_any_of_its_checkpoints(run, whole, capsys):
    (run / "checkpoints" / "000005.safetensors.mine").write_bytes(b"not the run's")
    es.main(["--resume", str(at(run, 4)), "--set", "iterations=5"])
    assert f"resuming from {at(run, 4)}; later checkpoints are kept as *.aside" in (
        capsys.readouterr().out
    )
    assert [path.stem[-1] for path in in_run(run)] == list("0345")
    assert sorted(path.name for path in run.glob("checkpoints/*.aside")) == [
        f"00000{i}.safetensors.aside" for i in (6, 7)
    ]
    assert es.main(["--resume", str(run), "--set", "iterations=7"]) == 0
    same(run, whole)
    assert (run / "checkpoints" / "000005.safetensors.mine").exists()


def test_only_a_checkpoint_of_a_run_can_be_named(run, tmp_path, capsys):
    copy = tmp_path / "000007.safetensors"
    shutil.copy(at(run, 7), copy)
    sentence = "--resume takes a run directory, or one of the checkpoints of a run, got"
    for path in (copy, at(run, 9), at(run, 7).with_name("7.safetensors")):
        refused(capsys, es, ["--resume", path], f"{sentence} {path}")
    refused(capsys, es, ["--resume", at(run, 7), "--out", tmp_path / "b"], "cannot be given too")


def test_demonstrations_that_have_changed_are_refused(clone, tmp_path, capsys):
    """Those of one round in the place of another's: whole, but not what was trained on."""
    (run, _), straight = clone, tmp_path / "straight"
    shutil.copytree(run, straight)
    data = run / "data"
    shutil.copy(data / "000001.safetensors", data / "000002.safetensors")
    assert bc.main(["--resume", str(run), "--set", "iterations=3"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{data / '000002.safetensors'} is not the file that {run} has trained on" in error
    assert bc.main(shlex.split(error[error.index("python -m training.bc") :])[3:]) == 0
    assert bc.main(["--resume", str(straight), "--set", "iterations=3"]) == 0
    same_results(run, straight)


# Order.


def test_checkpoints_are_in_the_order_of_their_numbers(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    others = ["07", "7", "0000008", "1e6", "٣", "best", "000009.safetensors"]
    (folder / "000011.safetensors").mkdir()
    for name in ("999999", "1000000", "000000", "000007", "10000000", "999998", *others):
        (folder / f"{name}.safetensors").write_bytes(b"")
    own = ["000000", "000007", "999998", "999999", "1000000", "10000000"]
    assert [path.stem for path in in_run(tmp_path)] == own
    assert checkpoint.resolve(tmp_path).stem == "10000000"


def test_checkpoints_of_earlier_versions_have_no_checksum(tmp_path):
    path, older = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    checkpoint.save(path, {"x": torch.arange(3.0)}, {}, {"seed": 1}, {"loss": math.pi})
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert len(metadata.pop("sha256")) == 64
    save_file(tensors, older, metadata)
    assert checkpoint.load(older).policy["x"].tolist() == [0, 1, 2]
    assert checkpoint.load(older).state == {"loss": math.pi}
