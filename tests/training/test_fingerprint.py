"""Whether something was made from the same inputs: what a fingerprint holds, and what differs."""

import hashlib

import pytest
import torch

from training.io.fingerprint import differences, fingerprint, sha256_of

BEFORE = {"seed": 0, "env": {"wind": 0.0, "camera": {"height": 48}}, "seeds": [1, 2, 3]}


def told(before, now, *more):
    return [change.describe() for change in differences(before, now, *more)]


def test_a_fingerprint_is_what_its_json_reads_back_as(tmp_path):
    file = tmp_path / "policy.safetensors"
    file.write_bytes(b"numbers")
    digest = hashlib.sha256(b"numbers").hexdigest()
    assert sha256_of(file) == sha256_of([b"num", b"bers"]) == digest
    inputs = {"seeds": range(3, 6), "size": (4, 8), "checkpoint": file, "repair": None}
    assert fingerprint(inputs) == {
        "seeds": [3, 4, 5], "size": [4, 8], "checkpoint": digest, "repair": None,
    }  # fmt: skip
    assert fingerprint(fingerprint(inputs)) == fingerprint(inputs)


def test_files_and_tensors_count_by_their_contents(tmp_path):
    ours, copy, other = (tmp_path / name for name in ("ours", "copy", "other"))
    for path, data in ((ours, b"1"), (copy, b"1"), (other, b"2")):
        path.write_bytes(data)
    weights, changed = torch.arange(6.0), torch.arange(6.0)
    changed[5] = 7
    before = fingerprint({"file": ours, "weights": weights})
    assert not differences(before, fingerprint({"file": copy, "weights": weights.clone()}))
    for key, value in (("file", other), ("weights", weights.reshape(2, 3)), ("weights", changed)):
        now = fingerprint({"file": ours, "weights": weights, key: value})
        assert [change.key for change in differences(before, now)] == [key]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fingerprint({"file": tmp_path / "nowhere"})
    with pytest.raises(TypeError, match="of type set cannot be part of a fingerprint"):
        fingerprint({"names": {1}})


def test_every_input_that_is_another_now_is_named_with_both_values():
    assert not differences(BEFORE, dict(reversed(BEFORE.items())))
    now = {"seed": 7, "env": {"wind": 0.0, "camera": {"height": 96}}, "seeds": [1, 2, 3], "new": 1}
    assert told(BEFORE, now) == [
        "seed = 0, but here it is 7",
        "env.camera.height = 48, but here it is 96",
        "new = None, but here it is 1",
    ]
    (change,) = differences(BEFORE, {**BEFORE, "seed": 7})
    assert change == ("seed", 0, 7)
    assert change.describe("the study now has") == "seed = 0, but the study now has 7"


def test_inputs_that_may_change_are_left_out_but_not_those_of_their_name_below():
    now = {**BEFORE, "seed": 7, "env": {**BEFORE["env"], "seed": 7}}
    assert told(BEFORE, now, ("seed",)) == ["env.seed = None, but here it is 7"]


def test_a_setting_that_is_absent_is_not_one_that_is_none():
    """A custom environment may have another default."""
    assert told({"env": {}}, {"env": {"steps": None}}) == [
        "env = {}, but here it is {'steps': None}"
    ]
    assert told({"env": None}, {"env": {}}) == ["env = None, but here it is {}"]
    assert not told({}, {"repair": None})  # of files from before it was known


def test_long_values_are_distinguished_by_their_ends():
    (sentence,) = told({"seeds": [*range(100)]}, {"seeds": [*range(100_000)]})
    assert sentence.startswith("seeds = [0, 1, 2, ")
    assert "98, 99], but here it is [0, 1, 2, " in sentence
    assert sentence.endswith("99998, 99999]")
    assert len(sentence) < 220
