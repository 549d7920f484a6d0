"""Training and measures that all tasks share: resuming, NaN, the error of attention, devices.

On PyTorch's device `meta`, which refuses tensors of the CPU, models are tested for other devices.
"""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import attention
from experiments import fitting
from experiments.__main__ import main
from experiments.compositional.learning import CompositionalConfig, Inputs, SkeletonNetwork
from experiments.data.fashion_mnist import Pictures
from experiments.fitting import Fitting, fit, load_model, seeded
from experiments.images import ImagesConfig, ImageTransformer
from experiments.language.learning import LanguageConfig, LanguageModel, full_loss, queries_over
from experiments.layers import AttentionSettings
from experiments.learning import TRUST, batch_of, trust
from experiments.listops import ListopsConfig, TextTransformer
from experiments.speech.model import SpeechConfig, SpeechModel
from experiments.task import Learning
from tests.experiments.small_data import refused, table_in
from training.command.files import write_atomically
from training.io.config import UserError

META = "meta"
SETTINGS = Fitting(steps=40, learning_rate=0.05, measure_every=10, warmup_steps=5)


def model_of(width=4):
    with seeded(0, 0):
        return nn.Sequential(nn.Linear(3, width), nn.Dropout(0.2), nn.Linear(width, 1))


def fitted(folder, settings=SETTINGS, model=None, loss=None, measure=None, **more):
    folder.mkdir(exist_ok=True)
    model = model or model_of()
    x = torch.linspace(-1, 1, 60).reshape(20, 3)

    def squares(step):
        rows = x[batch_of(step, 20, 8, 0)]
        return (model(rows) - rows.sum(1, keepdim=True)).square().mean()

    def error():
        return {"error": float((model(x) - x.sum(1, keepdim=True)).square().mean())}

    learning = Learning(SimpleNamespace(fitting=settings), 0, folder)
    return model, fit(model, loss or squares, learning, measure or error, **more)


def test_a_known_function_is_learned_and_every_measurement_is_a_row(tmp_path):
    _, done = fitted(tmp_path / "a")
    assert [row["step"] for row in done.rows] == [10, 20, 30, 40]
    assert done.rows[-1]["error"] < 0.2 * done.rows[0]["error"]
    head, *rows = (tmp_path / "a" / "metrics.csv").read_text().splitlines()
    assert head == "step,train_loss,wall_s,error"
    assert len(rows) == 4


@pytest.mark.parametrize("optimiser", ["adamw", "adagrad"])
def test_an_interrupted_fit_goes_on_bit_for_bit_dropout_too(tmp_path, optimiser):
    settings = dataclasses.replace(SETTINGS, optimiser=optimiser)
    whole, done = fitted(tmp_path / "a", settings)

    def stop(step):
        if step == 27:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "b", settings, before=stop)
    other, again = fitted(tmp_path / "b", settings)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    for row in (*done.rows, *again.rows):
        row.pop("wall_s")
    assert done.rows == again.rows


@pytest.mark.parametrize("kept", [0, 1])
def test_no_row_is_lost_when_the_last_save_is_cut_short(tmp_path, monkeypatch, kept):
    """After so many of its two files."""
    fitted(tmp_path / "a")
    written = []

    def write(path, data):
        if len(written) == 2 * 3 + kept:  # the fourth measurement is the last
            raise KeyboardInterrupt
        written.append(path.name)
        write_atomically(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "b")
    fitted(tmp_path / "b")
    whole, again = (
        [line.split(",") for line in (tmp_path / name / "metrics.csv").read_text().splitlines()]
        for name in ("a", "b")
    )
    assert [row[:2] + row[3:] for row in whole] == [row[:2] + row[3:] for row in again]


def test_a_loss_of_nan_ends_it_before_that_step_and_a_rerun_does_not_go_on(tmp_path):
    model = model_of()
    before = {}

    def broken(step):
        if step == 13:
            before.update({k: v.clone() for k, v in model.state_dict().items()})
        return model(torch.ones(2, 3)).sum() * (math.nan if step == 13 else 1.0)

    for _ in range(2):
        _, done = fitted(tmp_path / "a", model=model, loss=broken)
        assert done.progress.diverged_at == 13
        assert [row["step"] for row in done.rows] == [10, 13]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_another_models_state_is_refused_by_the_tensor_that_differs(tmp_path):
    fitted(tmp_path / "a", dataclasses.replace(SETTINGS, steps=2))
    with pytest.raises(UserError, match=r"tensor 0.bias is \(4,\) there, where \(5,\) is needed"):
        fitted(tmp_path / "a", model=model_of(5))
    with pytest.raises(UserError, match="holds another optimiser: tensor 0/exp_avg"):
        fitted(tmp_path / "a", dataclasses.replace(SETTINGS, optimiser="adagrad"))
    with pytest.raises(UserError, match="must hold the initial model"):
        load_model(tmp_path, model_of())
    (tmp_path / "a" / "state.safetensors").write_bytes(b"x" * 50)
    with pytest.raises(UserError, match="safetensors"):
        fitted(tmp_path / "a")


def rewritten(path, change=None, fit=None, seal=True):
    """A state with one tensor or its facts changed, its checksum unchanged or removed."""
    with safe_open(path, "pt") as file:
        metadata = dict(file.metadata())
    tensors = load_file(path)
    if change is not None:
        tensors["model/0.weight"] = change(tensors["model/0.weight"])
    metadata["fit"] = json.dumps(json.loads(metadata["fit"]) | (fit or {}))
    if not seal:
        del metadata["checksum"]
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    "changes",
    [
        {"change": lambda weight: weight * math.nan}, {"change": lambda weight: weight * -3},
        {"change": torch.neg}, {"fit": {"step": 10**9}}, {"fit": {"step": 20}},
        {"fit": {"rows": []}}, {"fit": {"diverged_at": 5}},
    ],
)  # fmt: skip
def test_a_state_that_was_changed_is_refused(tmp_path, changes):
    fitted(tmp_path / "a")
    state = tmp_path / "a" / "state.safetensors"
    rewritten(state, **changes)
    with pytest.raises(UserError, match="is damaged: it holds something else than was written"):
        fitted(tmp_path / "a")
    with pytest.raises(UserError, match="is damaged: it holds something else than was written"):
        load_model(tmp_path / "a", model_of())


def test_a_state_of_before_has_no_checksum_and_loads(tmp_path):
    model, _ = fitted(tmp_path / "a")
    state = tmp_path / "a" / "state.safetensors"
    rewritten(state, seal=False)
    again, _ = fitted(tmp_path / "a")
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items())
    with pytest.raises(UserError, match="is of step 40, where training has 20 steps"):
        fitted(tmp_path / "a", dataclasses.replace(SETTINGS, steps=20))


def test_a_state_of_an_earlier_version_is_resumed(tmp_path):
    """After step 20 of the same fit, written before the loop of the trainers ran it."""
    (tmp_path / "b").mkdir()
    before = Path(__file__).with_name("state_of_before.safetensors")
    shutil.copy(before, tmp_path / "b" / "state.safetensors")
    with safe_open(before, "pt") as file:
        early = json.loads(file.metadata()["fit"])["rows"]
    whole, done = fitted(tmp_path / "a")
    other, again = fitted(tmp_path / "b")
    for name, value in whole.state_dict().items():  # other processors round otherwise
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-5)
    assert again.rows[:2] == early
    assert [row["error"] for row in again.rows] == pytest.approx(
        [row["error"] for row in done.rows], rel=1e-3
    )


def test_a_row_without_a_number_is_null_in_the_state_and_nan_when_it_is_resumed(tmp_path):
    few = dataclasses.replace(SETTINGS, steps=20)
    broken = {"measure": lambda: {"error": math.nan}}
    fitted(tmp_path / "a", few, **broken)
    text = (tmp_path / "a" / "state.safetensors").read_bytes()
    assert b"NaN" not in text
    assert b"null" in text
    _, done = fitted(tmp_path / "a", **broken)
    assert [row["step"] for row in done.rows] == [10, 20, 30, 40]
    assert all(math.isnan(row["error"]) for row in done.rows)
    assert (tmp_path / "a" / "metrics.csv").read_text().count(",nan\n") == 4


def test_batches_follow_from_the_step_and_an_epoch_has_every_example_once():
    first = torch.cat([batch_of(step, 12, 4, 1) for step in (1, 2, 3)])
    assert sorted(first.tolist()) == list(range(12))
    assert not torch.equal(first, torch.cat([batch_of(s, 12, 4, 1) for s in (4, 5, 6)]))
    assert torch.equal(batch_of(2, 12, 4, 1), first[4:8])
    assert len(batch_of(1, 3, 4, 0)) == 3


def measured(name, scale, m=16):
    """Of one layer over drawn tokens, whose queries and keys are so long."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layer = attention.RandomFeatureAttention(16, 2, name, m, seed=0, batch_first=True)
    tokens = torch.randn(3, 12, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layer.in_proj_weight[:32] *= scale
    found = trust(torch.nn.ModuleList([layer]), lambda: layer(tokens, tokens, tokens))
    q, k, _ = (part.detach() for part in layer.project(tokens, tokens, tokens))
    return found, layer, q, k


def test_trust_is_of_the_layers_own_queries_and_keys():
    found, layer, q, k = measured("trig", 2.0)
    seen = attention.diagnose(layer.feature_map, q, k)
    assert found["negative"] == pytest.approx(100 * seen.negative_estimates, rel=1e-5)
    assert found["clamped"] == pytest.approx(100 * seen.clamped_rows, rel=1e-5)
    assert found["negative"] > 1
    assert found["lengths"] == pytest.approx(float(q.norm(dim=-1).mean() * k.norm(dim=-1).mean()))


def test_more_features_are_nearer_to_softmax_and_longer_vectors_farther():
    near, far = measured("trig", 0.5)[0], measured("trig", 1.0)[0]
    assert near["distance"] < far["distance"]
    assert measured("trig", 1.0, 1024)[0]["distance"] < 0.5 * far["distance"]
    assert far["lengths"] == pytest.approx(4 * near["lengths"], rel=1e-4)
    assert measured("positive", 2.0)[0]["negative"] == 0
    exact = attention.RandomFeatureAttention(16, 2, "softmax", batch_first=True)
    tokens = torch.zeros(1, 4, 16)
    assert set(trust(exact, lambda: exact(tokens, tokens, tokens)).values()) == {0.0}


def test_the_experiment_in_miniature(tmp_path, clothes):
    few = ("--set", "seeds=[0]", "--arms", "FAVOR+", "angular hybrid")
    out = tmp_path / "out"
    assert main(["signed_maps", "--quick", "--data", clothes, "--out", str(out), *few]) == 0
    rows = {row["arm"]: row for row in table_in(out)}
    assert set(rows) == {"exact", "FAVOR+", "angular hybrid"}
    assert {measure.name for measure in TRUST} < rows["exact"].keys()
    assert float(rows["angular hybrid"]["distance"]) > float(rows["exact"]["distance"]) == 0
    (metrics,) = (out / "trials").glob("angular-hybrid-s0/metrics.csv")
    assert "clamped" in metrics.read_text().splitlines()[0]


@pytest.mark.parametrize("name", ["softmax", "none", "oprf", "angular_hybrid", "elu"])
def test_all_of_a_transformer_goes_to_the_device(name):
    hybrid = {"num_lambda_features": 2} if name == "angular_hybrid" else {}
    own = AttentionSettings(feature_map=name, num_features=2, **hybrid)
    pictures = Pictures(torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(2).long()).to(META)
    image = ImageTransformer(ImagesConfig(attention=own, width=8), 0).to(META)
    image(pictures.images).sum().backward()
    text = TextTransformer(ListopsConfig(attention=own, width=8), 0).to(META)
    text(torch.zeros(2, 9, dtype=torch.int64, device=META)).sum().backward()
    speech = SpeechModel(SpeechConfig(attention=own, width=8, layers=1), 0).to(META)
    waves, lengths = torch.zeros(2, 800, device=META), torch.full((2,), 800, device=META)
    speech(waves, lengths)[0].sum().backward()


def test_a_language_model_and_a_skeletons_network_go_to_the_device():
    settings = LanguageConfig(width=8, batch=2)
    model = LanguageModel(settings, 20, 0).to(META)
    words = torch.zeros(5, 2, dtype=torch.int64, device=META)
    full_loss(settings, model, model.read_on(words, at_start=True), words).backward()
    assert queries_over(model.eval(), torch.zeros(40, dtype=torch.int64, device=META))[0].is_meta
    network = CompositionalConfig(learner="network", components=None, channels=4, hidden=8)
    images = torch.zeros(2, 28, 28, dtype=torch.uint8, device=META)
    angles = Inputs(network, images)(images, torch.Generator())
    SkeletonNetwork(network, 0).to(META)(angles).sum().backward()


def test_a_device_that_is_not_here_is_one_sentence(capsys):
    error = refused(["listops", "--quick", "--set", "device=cuda:99"], capsys)
    assert "device cuda:99 cannot be used here" in error
