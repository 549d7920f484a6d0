"""The runtime: dependencies, validation of inputs, and safety with untrusted folders."""

import json
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deploy.contract_file import CONTRACT, Port, read_contract
from deploy.model_file import check_model
from deploy.runtime import Policy, StaleError, fitted
from tests.deploy.folders import remembering

ALONE = """
import sys
from deploy import loop
from deploy.runtime import Policy
import numpy as np
policy = Policy(sys.argv[1])
policy.act({"depth": np.ones((6, 8), np.float32), "proprio": np.zeros(3, np.float32)})
assert loop.main([sys.argv[1], "--rate", "0", "--steps", "3"]) == 0
roots = {name.partition(".")[0] for name in sys.modules}
print("loaded", *sorted(roots & set(sys.argv[2].split(","))))
"""
NOT_NEEDED = "cv2,torch,pybullet,gymnasium,pydantic,onnx,attention,policies,envs,training"
BOMB = """
import sys
from deploy.runtime import Policy
import numpy as np
from pathlib import Path
policy = Policy(sys.argv[1], memory_bytes=1 << 26)
try:
    policy.act({"x": np.ones(1, np.float32)})
except ValueError as error:
    assert "cannot be run: [ONNXRuntimeError]" in str(error)
    lines = Path("/proc/self/status").read_text().splitlines()
    most_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    print("refused", most_kib < 1 << 20)
"""


def seen(env=None, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "depth": rng.uniform(0, 1.5, (6, 8)).astype(np.float32),
        "proprio": rng.normal(0, 1, 3).astype(np.float32),
    }


def in_a_process(code, *words):
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_acts_as_the_policy_does_over_an_episode_and_after_a_reset(folder):
    policy, _ = remembering()
    exported = Policy(folder)
    for _ in range(2):
        policy.reset()
        exported.reset()
        for step in range(4):
            action = exported.act(seen(seed=step), age_s=0.01)
            np.testing.assert_allclose(action, policy.act(seen(seed=step)), atol=1e-5)


def test_it_needs_numpy_and_onnx_runtime_alone(folder):
    assert in_a_process(ALONE, folder, NOT_NEEDED).splitlines()[-1] == "loaded"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"more": np.zeros(1)}, "the observation must hold depth, proprio, got depth, proprio,"),
        ({"depth": np.zeros((6, 8), np.uint16)}, "depth must be float32, got uint16"),
        ({"proprio": np.zeros(4, np.float32)}, r"proprio must have shape \(3,\), got \(4,\)"),
        ({"proprio": np.array([0, np.nan, 0], np.float32)}, r"proprio must be finite, got nan at"),
        ({"depth": np.full((6, 8), 1.6, np.float32)}, r"depth must be at most 1.5, got 1.6"),
    ],
)
def test_what_comes_in_is_checked(folder, change, sentence):
    given = {key: value for key, value in (seen() | change).items() if value is not None}
    with pytest.raises(ValueError, match=sentence):
        Policy(folder).act(given)


BOX = Port("x", (2,), np.dtype(np.float32), np.float64(-1), np.array([1, np.nan]))


@pytest.mark.parametrize(
    ("port", "given", "found"),
    [
        (replace(BOX, outside="pass"), [1.5, 9], [1.5, 9]),
        (replace(BOX, outside="clip"), [1.5, 9], [1, 9]),
        (replace(BOX, outside="clip"), [-9, -9.0], [-1, -1]),
        (BOX, [1.5, 9], r"x must be at most 1.0, got 1.5 at \[0\], 1 of 2"),
        (replace(BOX, outside="pass"), [np.inf, 0], "x must be finite, got inf"),
        (BOX, np.zeros(2, ">f8"), [0, 0]),
        (BOX, np.ones(2, np.int64), [1, 1]),
        (BOX, np.ones(2, np.complex64), "x must be float32, got complex64"),
        (Port("x", (), np.dtype(np.int64)), np.int32(3), 3),
        (Port("x", (1,), np.dtype(np.int8)), np.array([True]), [1]),
        (Port("x", (1,), np.dtype(np.uint8)), np.array([300]), "x must be from 0 to 255, got 300"),
        (Port("x", (1,), np.dtype(np.uint8)), np.array([0.5]), "x must be uint8, got float64"),
    ],
)
def test_observations_become_what_the_model_takes(port, given, found):
    if isinstance(found, str):
        with pytest.raises(ValueError, match=found):
            fitted([port], {"x": np.asarray(given)})
        return
    array = fitted([port], {"x": np.asarray(given)})["x"]
    assert (array.tolist(), array.dtype, array.shape) == (found, port.dtype, port.shape)


def test_what_is_too_old_is_held_zeroed_or_an_error(folder):
    with pytest.raises(StaleError, match=r"at most 0.05 s old, got one of 0.2 s"):
        Policy(folder).act(seen(), age_s=0.2)
    with pytest.raises(ValueError, match="late must be one of hold, zero, error, got 'never'"):
        Policy(folder, late="never")
    zero, hold = Policy(folder, late="zero"), Policy(folder, late="hold", max_age_s=0.3)
    last = hold.act(seen(), age_s=0.2)
    assert np.array_equal(hold.act(seen(seed=1), age_s=0.4), last)
    zero.act(seen(), age_s=0.05)
    assert not zero.act(seen(), age_s=0.06).any()
    assert (zero.late_count, hold.late_count) == (1, 1)
    # The memory is that of what was decided: the next decision is the second.
    fresh = Policy(folder)
    fresh.act(seen())
    assert np.array_equal(hold.act(seen(seed=2)), fresh.act(seen(seed=2)))


def of_a_stranger(tmp_path, nodes, initializer=(), opsets=(("", 18),), **ports):
    """A folder whose model has these nodes, from x (1,) to action ()."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    gives = [helper.make_tensor_value_info("action", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "graph", given, gives, initializer=list(initializer))
    imports = [helper.make_opsetid(*one) for one in opsets]
    data = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    (tmp_path / "model.onnx").write_bytes(data)
    port = {"name": "x", "shape": [1], "dtype": "float32"}
    told = {
        "format": "foveate-contract", "version": 1, "inputs": [port], "states": [], "noise": None,
        "outputs": [{"name": "action", "shape": [], "dtype": "float32"}], "max_age_s": None,
        "model": {"kind": "onnx", "sha256": sha256(data).hexdigest()}, **ports,
    }  # fmt: skip
    (tmp_path / CONTRACT).write_text(json.dumps(told))
    return tmp_path


def ports(**changes):
    """A contract's inputs."""
    return {"inputs": [{"name": "x", "shape": [1], "dtype": "float32", **changes}]}


def test_bounds_of_whole_numbers_are_exact_and_null_is_none(tmp_path):
    made = of_a_stranger(
        tmp_path, [summed("x")], **ports(dtype="int64", low=[None], high=[2**53 + 1])
    )
    (port,) = read_contract(made).inputs
    assert (port.low.tolist(), port.high.tolist()) == ([-(2**63)], [2**53 + 1])


def summed(name):
    return helper.make_node("ReduceSum", [name], ["action"], keepdims=0)


def test_numbers_in_other_files_are_refused(tmp_path):
    lies = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1])
    lies.data_location = TensorProto.EXTERNAL
    lies.external_data.add(key="location", value="../secret")
    nodes = [helper.make_node("Add", ["x", "w"], ["y"]), summed("y")]
    with pytest.raises(ValueError, match="a tensor whose data lie in another file"):
        Policy(of_a_stranger(tmp_path, nodes, [lies]))
    hidden = helper.make_node("Constant", [], ["w"], value=lies)  # within an operator
    with pytest.raises(ValueError, match="a tensor whose data lie in another file"):
        Policy(of_a_stranger(tmp_path, [hidden, *nodes]))


def field(number, value, extra=0):
    """A field of a protocol buffer; `extra` sets upper bits of its tag."""
    wire = 0 if isinstance(value, int) else 2
    body = varint(value) if wire == 0 else varint(len(value)) + value
    return varint(number << 3 | wire | extra << 32) + body


def varint(value):
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def node(*more):
    """A model with one node of these fields."""
    return field(7, field(1, b"".join(more)))


def nested(deep):
    """A graph nested in this many others."""
    return field(1, field(5, field(6, nested(deep - 1)))) if deep else b""


SPARSE = field(1, field(2, 1)) + field(3, 1 << 40)
STRANGE = {
    "upper bits of a tag": (node(field(7, b"com.example", extra=1)), "damaged or another"),
    "a long tag": (node(b"\xba\x80\x80\x80\x80\x00\x01x"), "damaged or another"),
    "a group": (b"\x0b\x0c", "damaged or another"),
    "number for text": (node(field(7, 3)), "damaged or another"),
    "text for a number": (field(7, field(5, field(14, b"\1"))), "data lie in another file"),
    "text for a type": (field(7, field(5, field(2, b"\1"))), "damaged or another"),
    "an unknown field": (field(99, b""), "got field 99 of a model"),
    "functions": (field(25, b""), "got field 25 of a model"),
    "a sparse tensor": (field(7, field(15, SPARSE)), "got field 15 of a graph"),
    "texts in a tensor": (field(7, field(5, field(6, b"a"))), "got field 6 of a tensor"),
    "a tensor of text": (field(7, field(5, field(2, 8))), "tensors of ONNX's type 8"),
    "complex": (field(7, field(5, field(2, 14))), "tensors of ONNX's type 14"),
    "a type that overflows": (field(7, field(5, field(2, 2**32 + 8))), "tensors of ONNX's type"),
    "a port of text": (
        field(7, field(11, field(2, field(1, field(1, 8))))), "tensors of ONNX's type 8",
    ),
    "cast to text": (node(field(5, field(3, 8) + field(1, b"to"))), "operator that does not"),
    "text constant": (
        node(field(5, field(1, b"value_string") + field(4, b"a"))), "operator that does not",
    ),
    "ONNX Runtime's format": (field(2, b"\1\1ORTM"), "damaged or another"),
    "nested": (field(7, nested(8)), "nest graphs"),
    "many fields": (field(1, 8) * (2**21 + 1), "at most 2097152 fields"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STRANGE)
def test_what_another_parser_reads_otherwise_and_types_of_no_policy_are_refused(kind):
    data, sentence = STRANGE[kind]
    with pytest.raises(ValueError, match=sentence):
        check_model(data, "model.onnx")


def test_what_passes_is_what_the_parser_of_onnx_sees(folder):
    """500 mutations of fields: what passes has no field that onnx would keep as unknown."""
    check_model(data := (folder / "model.onnx").read_bytes(), "model.onnx")
    model = onnx.load_from_string(data)
    keep = slice(0, 3)
    small = helper.make_model(
        helper.make_graph(
            model.graph.node[keep], "g", model.graph.input, [], model.graph.initializer[keep]
        )
    ).SerializeToString()
    rng, passed = np.random.default_rng(0), 0
    for _ in range(500):
        changed = bytearray(small)
        for at in rng.integers(len(changed), size=rng.integers(1, 4)):
            changed[at] = rng.integers(256)
        try:
            check_model(bytes(changed), "model.onnx")
        except ValueError:
            continue
        passed += 1
        read = onnx.load_from_string(bytes(changed))
        assert all(one.domain in ("", "ai.onnx") for one in read.graph.node)
        assert not any(one.data_location for one in read.graph.initializer)
        before = read.ByteSize()
        read.DiscardUnknownFields()
        assert read.ByteSize() == before
    assert passed > 20


def test_operators_of_others_and_damaged_files_are_refused(tmp_path):
    nodes = [helper.make_node("Run", ["x"], ["y"], domain="com.example"), summed("y")]
    with pytest.raises(ValueError, match="ONNX's own operators, got one of the domain"):
        Policy(of_a_stranger(tmp_path, nodes, opsets=(("", 18), ("com.example", 1))))
    folder = of_a_stranger(tmp_path, [summed("x")])
    model = folder / "model.onnx"
    data = model.read_bytes()
    model.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="must be the file that its contract was written for"):
        Policy(folder)
    model.unlink()
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.write_bytes(data)
    model.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="links are not followed"):
        Policy(folder)


STATE = {"name": "s", "shape": [1], "dtype": "uint8"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"outputs": [{"name": "action", "shape": [2], "dtype": "float32"}]}, "must give what its"),
        (ports(shape=[2]), "must take what its"),
        (ports(shape=[1 << 40]), "whole numbers from 0"),
        (ports(outside="wrap"), "outside of x must be one of pass, clip, refuse, got 'wrap'"),
        (ports(dtype="object"), "dtype of x must be one of"),
        ({"version": 2}, "format and version must be foveate-contract 1"),
        ({"inputs": 3}, "lacks a part or has a part of another type"),
        (ports(shape=[0, 8, 3]), "shape of x must have sides above 0"),
        (ports(dtype="uint8", high=300), "high of x must be whole numbers from 0 to 255, got 300"),
        (ports(dtype="int8", high=[1.5]), "high of x must be whole numbers from -128 to 127"),
        ({"states": [STATE | {"initial": 300}]}, "initial of s must be whole numbers from 0 to"),
        ({"max_age_s": True}, "max_age_s must be a number above 0 or null"),
    ],
)
def test_a_contract_of_another_is_refused(tmp_path, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        Policy(of_a_stranger(tmp_path, [summed("x")], **change))


def test_a_model_cannot_fill_the_memory(tmp_path):
    count = helper.make_tensor("n", TensorProto.INT64, [1], [10**9])
    nodes = [helper.make_node("Expand", ["x", "n"], ["y"]), summed("y")]
    assert in_a_process(BOMB, of_a_stranger(tmp_path, nodes, [count])) == "refused True"


def test_an_exported_model_says_nothing_of_the_machine_it_was_made_on(folder):
    model = onnx.load(folder / "model.onnx")
    assert not [node.name for node in model.graph.node if node.metadata_props or node.doc_string]
