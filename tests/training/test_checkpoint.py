"""One checkpoint format: exact, atomic, and refusing everything else in one sentence."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from training import checkpoint
from training.config import UserError

TENSORS = {
    "weight": torch.linspace(0, 1, 6).reshape(2, 3),
    "count": torch.tensor(3.0, dtype=torch.float64),
}
CONFIG = {"seed": 1, "env": {"gap_m": [0.1, 0.2]}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, TENSORS, {"center": torch.arange(3.0)}, CONFIG, {"iteration": 4})
    return path


def test_round_trip(saved):
    loaded = checkpoint.load(saved)
    assert loaded.config == CONFIG
    assert loaded.state == {"iteration": 4}
    assert loaded.policy.keys() == TENSORS.keys()
    assert all(torch.equal(loaded.policy[k], TENSORS[k]) for k in TENSORS)
    assert loaded.policy["count"].dtype == torch.float64
    assert torch.equal(loaded.search["center"], torch.arange(3.0))


def test_equal_contents_give_equal_bytes(saved, tmp_path):
    for i in range(5):  # safetensors alone orders its metadata at random: 1 in 24^5 by chance
        again = tmp_path / f"{i}.safetensors"
        checkpoint.save(again, TENSORS, {"center": torch.arange(3.0)}, CONFIG, {"iteration": 4})
        assert again.read_bytes() == saved.read_bytes()


def test_tensors_that_share_memory_are_saved(tmp_path):
    both = torch.ones(4)
    checkpoint.save(tmp_path / "s.safetensors", {"a": both, "b": both[:2]}, {}, {}, {})
    assert checkpoint.load(tmp_path / "s.safetensors").policy["b"].tolist() == [1, 1]


def test_a_failed_write_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(UserError, match=r"cannot write the checkpoint .*No space left"):
        checkpoint.save(saved, {}, {}, {}, {})
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_missing(tmp_path):
    with pytest.raises(UserError, match=r"there is no checkpoint .*none"):
        checkpoint.load(tmp_path / "none.safetensors")


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated(saved, size):
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(UserError, match="is not a complete safetensors file"):
        checkpoint.load(saved)


def test_another_kind_of_file(tmp_path):
    path = tmp_path / "pickle.safetensors"
    torch.save({"a": 1}, path)
    with pytest.raises(UserError, match="is not a complete safetensors file"):
        checkpoint.load(path)


def test_foreign_safetensors(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(UserError, match="its format is None, where 'foveate-checkpoint' is needed"):
        checkpoint.load(path)


def test_another_version(tmp_path):
    path = tmp_path / "v9.safetensors"
    save_file({"a": torch.ones(1)}, path, {"format": "foveate-checkpoint", "version": "9"})
    with pytest.raises(UserError, match="version '9', but this program reads version '1'"):
        checkpoint.load(path)


@pytest.mark.parametrize("config", [None, "[", "3"])
def test_unreadable_metadata(tmp_path, config):
    path = tmp_path / "m.safetensors"
    metadata = {"format": "foveate-checkpoint", "version": "1", "state": "{}"}
    save_file({"a": torch.ones(1)}, path, metadata | ({"config": config} if config else {}))
    with pytest.raises(UserError, match="without a readable config and state"):
        checkpoint.load(path)


def test_load_into_names_the_first_tensor_that_differs(saved):
    with pytest.raises(UserError, match=r"tensor bias has shape absent there, but .* needs \(3,\)"):
        checkpoint.load_into(nn.Linear(2, 3), checkpoint.load(saved))


def test_resolve(saved, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="holds no checkpoint"):
        checkpoint.resolve(run)
    for name in ("000009", "000010", "000002"):
        (run / "checkpoints" / f"{name}.safetensors").write_bytes(saved.read_bytes())
    (run / "checkpoints" / ".000011.safetensors.77").write_bytes(b"half a file")
    assert checkpoint.resolve(run).stem == "000010"
    assert checkpoint.resolve(saved) == saved
    with pytest.raises(UserError, match="neither a run directory, nor a checkpoint file, nor one"):
        checkpoint.resolve("nothing-of-the-kind")


def test_load_policy_needs_a_policy(saved):
    with pytest.raises(UserError, match="a configuration without env_id, policy"):
        checkpoint.load_policy(saved)


def test_loading_runs_no_code_and_imports_little(saved):
    """A checkpoint is read without the simulator, Ray or EvoTorch."""
    program = (
        "import sys, json; from training import checkpoint; checkpoint.load(sys.argv[1]);"
        "print(json.dumps([m for m in ('pybullet', 'ray', 'evotorch') if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
