"""Gradient descent of the experiments: it learns, goes on bit for bit, and stops at NaN."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from experiments.fitting import Fitting, fit, load_model, seeded
from experiments.learning import batch_of
from experiments.task import Learning
from training.io.config import UserError

SETTINGS = Fitting(steps=40, learning_rate=0.05, measure_every=10, warmup_steps=5)


def model_of(width=4):
    with seeded(0, 0):
        return nn.Sequential(nn.Linear(3, width), nn.Dropout(0.2), nn.Linear(width, 1))


def fitted(folder, settings=SETTINGS, model=None, loss=None, **more):
    folder.mkdir(exist_ok=True)
    model = model or model_of()
    x = torch.linspace(-1, 1, 60).reshape(20, 3)

    def squares(step):
        rows = x[batch_of(step, 20, 8, 0)]
        return (model(rows) - rows.sum(1, keepdim=True)).square().mean()

    def measure():
        return {"error": float((model(x) - x.sum(1, keepdim=True)).square().mean())}

    learning = Learning(SimpleNamespace(fitting=settings), 0, folder)
    return model, fit(model, loss or squares, learning, measure, **more)


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
    drop = {"wall_s"}
    assert [{k: v for k, v in row.items() if k not in drop} for row in done.rows] == [
        {k: v for k, v in row.items() if k not in drop} for row in again.rows
    ]


def test_a_loss_of_nan_ends_it_before_that_step_and_a_rerun_does_not_go_on(tmp_path):
    model = model_of()
    before = {}

    def broken(step):
        if step == 13:
            before.update({k: v.clone() for k, v in model.state_dict().items()})
        return model(torch.ones(2, 3)).sum() * (math.nan if step == 13 else 1.0)

    for _ in range(2):
        _, done = fitted(tmp_path / "a", model=model, loss=broken)
        assert done.diverged_at == 13
        assert [row["step"] for row in done.rows] == [10, 13]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_another_models_state_is_refused_by_the_tensor_that_differs(tmp_path):
    fitted(tmp_path / "a", dataclasses.replace(SETTINGS, steps=2))
    with pytest.raises(UserError, match=r"tensor 0.bias is \(4,\) there, where \(5,\) is needed"):
        fitted(tmp_path / "a", model=model_of(5))
    with pytest.raises(UserError, match="holds another optimiser: tensor 0/exp_avg"):
        fitted(tmp_path / "a", dataclasses.replace(SETTINGS, optimiser="adagrad"))
    with pytest.raises(UserError, match="must hold the model to begin with"):
        load_model(tmp_path, model_of())
    (tmp_path / "a" / "state.safetensors").write_bytes(b"x" * 50)
    with pytest.raises(UserError, match="safetensors"):
        fitted(tmp_path / "a")


def test_batches_follow_from_the_step_and_an_epoch_has_every_example_once():
    first = torch.cat([batch_of(step, 12, 4, 1) for step in (1, 2, 3)])
    assert sorted(first.tolist()) == list(range(12))
    assert not torch.equal(first, torch.cat([batch_of(s, 12, 4, 1) for s in (4, 5, 6)]))
    assert torch.equal(batch_of(2, 12, 4, 1), first[4:8])
    assert len(batch_of(1, 3, 4, 0)) == 3
