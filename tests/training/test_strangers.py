"""A stranger's file may claim anything: one sentence, at once, and next to no memory."""

import json
import os

import pytest
import torch

import envs
from tests.cheap import cheap
from training.algorithms import es_config, implicit_bc_config
from training.collect import environments
from training.command.errors import UserError
from training.compare.config import StudyConfig
from training.io import checkpoint
from training.io import config as configuration

HUGE = 10**12


@pytest.fixture
def little():
    """Checks that a test takes little memory, and less than 10 s."""
    with cheap(10):
        yield


def claiming(path, shipped, policy=None, env=None):
    """A shipped policy that says it is another."""
    whole = checkpoint.load(checkpoint.resolve(shipped))
    config = {**whole.config, "env": {**whole.config["env"], **(env or {})}}
    config["policy"] = {**config["policy"], **(policy or {})}
    checkpoint.save(path, whole.policy, {}, config, {})
    return path


STONES, SWEEP = "stepping_stones", "bimanual_sweep_angular_8x2"
CLAIMS = [
    (STONES, {"num_features": 20_000_000}, "num_features must be at most 4096"),
    (STONES, {"num_features": 4000}, "num_features times num_lambda_features must be at most"),
    (STONES, {"qk_dim": HUGE}, "qk_dim = 1000000000000, but input should be less than"),
    (STONES, {"controller": "mlp", "hidden": [HUGE]}, "its settings allocate"),
    (STONES, {"controller": "mlp", "hidden": [1] * 10**6}, "hidden must be at most 64 widths"),
    (STONES, {"feature_map": "clustered_hybrid", "num_clusters": 10**5}, "num_clusters squared"),
    (STONES, {"patch": [HUGE, HUGE]}, "numbers in all"),
    (STONES, {"init_seed": 10**30}, "init_seed = 1000000000000000000000000000000, but input"),
    (SWEEP, {"depth": 200}, "its settings allocate"),
    (SWEEP, {"mlp_ratio": 1e300}, "policy.mlp_ratio = 1e+300, but input should be less"),
    (SWEEP, {"hidden": [HUGE, HUGE]}, "numbers for an action"),
    (SWEEP, {"patch": [1, 1]}, "makes 62500 tokens of the image"),
]


@pytest.mark.parametrize(("shipped", "policy", "sentence"), CLAIMS)
def test_a_policy_is_not_built_before_its_file_is_asked(
    little, tmp_path, shipped, policy, sentence
):
    path = claiming(tmp_path / "a.safetensors", shipped, policy)
    with pytest.raises(UserError) as caught:
        checkpoint.load_policy(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("shipped", "env", "sentence"),
    [
        (SWEEP, {"table_m": [1e30, 1e30]}, "table_m"),
        (STONES, {"episode_s": 1e12}, "episode_s"),
        (STONES, {"stone_length_m": [1e-9, 1e-9]}, "stone_length_m"),
    ],
)
def test_an_environment_is_not_made_larger_than_any(little, tmp_path, shipped, env, sentence):
    path = claiming(tmp_path / "a.safetensors", shipped, env=env)
    with pytest.raises(UserError, match=sentence):
        checkpoint.load_policy(path)


def raw(path, header, data=b"", size=None):
    """A safetensors file of any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + data)
    return path


def tensor(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


META = {"format": "foveate-checkpoint", "version": "1", "config": "{}", "state": "{}"}
BROKEN = [
    ({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, 12, "is not a complete safetensors file"),
    ({"a": tensor(0, 8, [HUGE])}, 8, "is not a complete safetensors file"),
    ({"a": tensor(0, 0, [0, 2**62, 2**62])}, 0, "which PyTorch does not have"),
    ({"a": tensor(0, 8, [2])}, 4, "is not a complete safetensors file"),
    ({"a": {"shape": [2]}}, 8, "is not a complete safetensors file"),
    ({"__metadata__": {**META, "config": "[" * 10**6}}, 0, "without a readable config and state"),
    ({"__metadata__": {**META, "config": '{"a": 1e999}'}}, 0, None),
    ({"__metadata__": {**META, "state": "null"}}, 0, "without a readable config and state"),
    ({"__metadata__": {**META, "config": "9" * 5000}}, 0, "without a readable config and state"),
    (b"[" * 10**6, 0, "is not a complete safetensors file"),
    (b" " * 20 * 2**20, 0, "has a header of 20971520 bytes, where at most 16777216 are read"),
]


@pytest.mark.parametrize(("header", "data", "sentence"), BROKEN)
def test_a_file_that_is_none_is_one_sentence(little, tmp_path, header, data, sentence):
    if isinstance(header, dict):
        header = {"__metadata__": META, **header}
    path = raw(tmp_path / "a.safetensors", header, bytes(data))
    if sentence is None:
        assert checkpoint.load(path).config
        return
    with pytest.raises(UserError) as caught:
        checkpoint.load(path)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_header_that_claims_more_than_the_file_has(little, tmp_path):
    for size in (2**62, 10**9, 0):
        with pytest.raises(UserError, match="is not a complete safetensors file"):
            checkpoint.load(raw(tmp_path / "a.safetensors", META, size=size))


def test_a_file_of_holes_is_not_read(little, tmp_path):
    """A gigabyte on paper that take no room on a disk."""
    path, size = tmp_path / "a.safetensors", 10**9
    raw(path, {"__metadata__": META, "policy/a": tensor(0, size, [size // 4])})
    os.truncate(path, path.stat().st_size + size)
    found = checkpoint.load(path)
    with pytest.raises(UserError, match=r"tensor a is \(250000000,\) of float32 there"):
        checkpoint.load_into(torch.nn.Linear(2, 3), found)
    os.truncate(path, 10**13)
    with pytest.raises(UserError, match="has 10000000000000 bytes, where at most 1073741824 are"):
        checkpoint.load(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_policy_is_refused(tmp_path, value):
    """One number of it is enough: attention would select a NaN token as the best."""
    whole = checkpoint.load(checkpoint.resolve(STONES))
    broken = {name: tensor.clone() for name, tensor in whole.policy.items()}
    broken["selection.query"][3, 1] = value
    checkpoint.save(tmp_path / "a.safetensors", broken, {}, whole.config, {})
    with pytest.raises(
        UserError, match=r"a broken policy: tensor selection.query has numbers that"
    ):
        checkpoint.load_policy(tmp_path / "a.safetensors")


JOBS = [
    (es_config, {"popsize": HUGE}, "popsize"), (es_config, {"terrains": HUGE}, "terrains"),
    (es_config, {"workers": 10**6}, "workers"),
    (es_config, {"popsize": 10**4, "terrains": 10**4}, "popsize times terrains"),
    (es_config, {"curriculum": [{}] * 2000}, "curriculum"), (es_config, {"seed": 10**30}, "seed"),
    (es_config, {"checkpoints_kept": 10**30}, "checkpoints_kept"),
    (implicit_bc_config, {"batch_size": HUGE}, "batch_size"),
    (implicit_bc_config, {"episodes": HUGE}, "episodes"),
    (implicit_bc_config, {"learning_rate": 1e308}, "learning_rate"),
]  # fmt: skip


@pytest.mark.parametrize(("trainer", "changes", "key"), JOBS)
def test_a_job_that_fits_on_no_machine_is_refused(little, tmp_path, trainer, changes, key):
    path = tmp_path / "job.yaml"
    path.write_text(configuration.to_yaml(changes, "A stranger's."))
    with pytest.raises(UserError, match=f"{key}.*(at most|should be)"):
        trainer.load_config(path, [])


STUDY = {
    "title": "t", "stages": [{"trainer": "es", "config": "x"}], "arms": [{"name": "a"}],
    "baseline": "a",
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"episodes": HUGE}, {"parallel": HUGE}, {"workers": HUGE}, {"seeds": [10**30]},
        {"seeds": list(range(2000))}, {"stages": STUDY["stages"] * 100},
        {"arms": [{"name": f"a{i}"} for i in range(400)], "baseline": "a0"},
        {"curves": [{"name": "c", "xlabel": "x", "points": [{"x": 0}], "episodes": HUGE}]},
    ],
)  # fmt: skip
def test_a_study_that_never_ends_is_refused(little, changes):
    with pytest.raises(UserError, match=r"at most|should be|items"):
        configuration.validate(StudyConfig, STUDY | changes, "study.yaml")


def test_every_number_of_a_known_environment_is_within_bounds():
    for known in envs.tasks():
        if known.settings is None:
            continue
        for name, field in known.settings.__pydantic_fields__.items():
            if field.annotation is not int:
                continue
            with pytest.raises(UserError, match=name):
                environments.resolved(known.env_id, {name: HUGE})
