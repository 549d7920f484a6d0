"""Reduced-precision weights, and the success rate of an exported model."""

import json
import shutil
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

from deploy.contract_file import CONTRACT
from deploy.export import main
from deploy.facts import shown
from deploy.runtime import Policy
from deploy.success import SUCCESS, played
from deploy.weights import reduce_weights
from tests.deploy.folders import remembering

REAL = ("float32", "bfloat16", "int8")


@pytest.fixture(scope="module")
def trained():
    """Parameters of the policy by their names in the graph."""
    return {f"policy.{name}": one for name, one in remembering()[0].named_parameters()}


@pytest.fixture(scope="module")
def folders(folder, trained, tmp_path_factory):
    """The same policy with weights of each kind."""
    made = {}
    for weights in REAL:
        made[weights] = tmp_path_factory.mktemp(weights)
        path = made[weights] / "model.onnx"
        shutil.copy(folder / "model.onnx", path)
        reduce_weights(path, weights, trained.keys())
        told = json.loads((folder / CONTRACT).read_text())
        told["model"]["sha256"] = sha256(path.read_bytes()).hexdigest()
        (made[weights] / CONTRACT).write_text(json.dumps(told))
    return made


def actions(folder):
    rng, policy = np.random.default_rng(1), Policy(folder)
    seen = [
        {
            "depth": rng.uniform(0, 1.5, (6, 8)).astype(np.float32),
            "proprio": rng.normal(0, 1, 3).astype(np.float32),
        }
        for _ in range(8)
    ]
    return np.stack([policy.act(one) for one in seen])


def test_bfloat16_weights_are_rounded_as_pytorch_rounds_them(folders, trained):
    model = onnx.load(folders["bfloat16"] / "model.onnx")
    stored = {one.name: one for one in model.graph.initializer}
    found = {name: stored[f"{name}.bfloat16"] for name in trained if f"{name}.bfloat16" in stored}
    assert len(found) >= 4
    assert not trained.keys() & stored.keys()
    for name, tensor in found.items():
        assert tensor.data_type == TensorProto.BFLOAT16
        bits = torch.frombuffer(bytearray(tensor.raw_data), dtype=torch.bfloat16)
        assert torch.equal(bits.view(*tensor.dims), trained[name].bfloat16()), name


def test_int8_products_are_of_integers(folders, trained):
    kinds = [node.op_type for node in onnx.load(folders["int8"] / "model.onnx").graph.node]
    before = onnx.load(folders["float32"] / "model.onnx").graph.node
    of_weights = [
        n for n in before if n.op_type in ("MatMul", "Gemm") and n.input[1] in trained
    ]  # fmt: skip
    assert kinds.count("MatMulInteger") == len(of_weights) > 2


@pytest.mark.parametrize(("weights", "most"), [("bfloat16", 0.02), ("int8", 0.1)])
def test_the_runtime_takes_them_and_acts_nearly_as_before(folders, weights, most):
    differs = np.abs(actions(folders[weights]) - actions(folders["float32"])).max()
    assert 1e-5 < differs < most
    sizes = [(folders[kind] / "model.onnx").stat().st_size for kind in (weights, "float32")]
    assert sizes[0] != sizes[1]


def test_a_model_without_trained_weights_is_refused(folder, tmp_path):
    path = tmp_path / "model.onnx"
    for weights in ("bfloat16", "int8"):
        shutil.copy(folder / "model.onnx", path)
        with pytest.raises(ValueError, match=f"trained weights to be written in {weights}, got n"):
            reduce_weights(path, weights, {"absent"})


def test_the_model_plays_by_itself_and_its_success_is_written(folder, tmp_path):
    made = shutil.copytree(folder, tmp_path / "walker")
    agent = SimpleNamespace(name="walker", env_id="Still-v0", env_settings={"a": 1})
    found = played(made, remembering()[1], range(100000, 100005), agent)
    assert json.loads((made / SUCCESS).read_text()) == json.loads(json.dumps(found))
    assert (found["episodes"], found["success_rate"], found["seeds"][-1]) == (5, 1.0, 100004)
    low, high = found["success_interval_95"]
    assert 0.3 < low < 0.7
    assert high == 1
    words = shown(found)["the model, `success.json`"]
    assert words.startswith("100% (95 % interval ")
    assert words.endswith("5 episodes")


@pytest.mark.parametrize("words", [["--weights", "int8"], ["--episodes", "3"]])
def test_programs_of_pytorch_have_neither(tmp_path, capsys, words):
    arguments = ["stepping_stones_no_attention", "--to", "pt2", "--out", str(tmp_path / "out")]
    assert main([*arguments, *words]) == 2
    assert f"{' '.join(words)} must go with --to onnx, got --to pt2" in capsys.readouterr().err
