"""One checkpoint format: exact, atomic, and refusing everything else in one sentence."""

import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.helpers import refused
from training import flops, rollout
from training.collect.environments import make_env
from training.io import checkpoint
from training.io.config import UserError

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


def foreign(path, metadata):
    save_file({"a": torch.ones(1)}, path, metadata)


KIND = {"format": "foveate-checkpoint"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path, data: None, "there is no checkpoint"),
        (lambda path, data: path.write_bytes(data[:-1]), "is not a complete safetensors file"),
        (lambda path, data: torch.save({"a": 1}, path), "is not a complete safetensors file"),
        (lambda path, data: foreign(path, None), "None, where 'foveate-checkpoint' is needed"),
        (lambda path, data: foreign(path, {**KIND, "version": "9"}), "'9', but this program reads"),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused(saved, tmp_path, make, sentence):
    path = tmp_path / "other.safetensors"
    make(path, saved.read_bytes())
    with pytest.raises(UserError, match=sentence):
        checkpoint.load(path)


@pytest.mark.parametrize("dtype", [None, torch.complex64, torch.float8_e4m3fn, torch.float64])
def test_load_into_names_the_first_tensor_that_differs_and_casts_nothing(tmp_path, dtype):
    layer, path = nn.Linear(2, 3), tmp_path / "odd.safetensors"
    odd = {} if dtype is None else {k: v.to(dtype) for k, v in layer.state_dict().items()}
    checkpoint.save(path, odd, {}, {}, {})
    there = "absent" if dtype is None else rf"\(3,\) of {str(dtype)[6:]}"
    sentence = rf"tensor bias is {there} there, but .* needs \(3,\) of float32"
    with pytest.raises(UserError, match=sentence):
        checkpoint.load_into(layer, checkpoint.load(path))


def changed(path, **changes):
    """The shipped policy with another configuration."""
    shipped = checkpoint.load(checkpoint.resolve("stepping_stones"))
    checkpoint.save(path, shipped.policy, {}, {**shipped.config, **changes}, {})
    return path


@pytest.mark.parametrize("env_id", [None, ["SteppingStones-v0"]])
def test_an_env_id_is_text(tmp_path, env_id):
    path = changed(tmp_path / "odd.safetensors", env_id=env_id)
    with pytest.raises(UserError, match=r"env_id is .*, where a Gymnasium id is needed"):
        checkpoint.load(path)


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module within reach that leaves a file when it is imported."""
    (tmp_path / "stranger.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "ran"
    sys.modules.pop("stranger", None)


def test_a_checkpoint_chooses_nothing_to_import(stranger, tmp_path, capsys):
    path = changed(tmp_path / "odd.safetensors", env_id="stranger:SteppingStones-v0")
    sentence = "'stranger:SteppingStones-v0' of a checkpoint: it would import stranger"
    with pytest.raises(UserError, match=sentence):
        checkpoint.load_policy(path)
    for command in (rollout, flops):
        refused(capsys, command, [str(path)], sentence)
    assert not stranger.exists()


def test_a_configuration_of_ones_own_does(stranger, tmp_path):
    path = changed(tmp_path / "own.safetensors", env_id="stranger:SteppingStones-v0")
    make_env("stranger:SteppingStones-v0", {}).close()
    assert stranger.exists()
    checkpoint.load_policy(path)  # and what is imported already stays allowed


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
    with pytest.raises(UserError, match="a configuration without env_id, policy"):
        checkpoint.load_policy(saved)
