"""Damaged files of runs and studies: one sentence with the file and the key, exit status 2."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers import refused, train
from tests.training.study_jobs import conduct
from tests.training.test_full_disk import BC, ES
from training import bc, es, evaluate, flops, plots, rollout
from training.algorithms.es import EvolutionStrategies
from training.analysis.gaze import Gaze
from training.command.errors import UserError
from training.io import checkpoint
from training.io.metrics import read_metrics
from training.io.state_files import Count, check, read_json


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of each trainer."""
    folder = tmp_path_factory.mktemp("runs")
    return {"es": train(es, ES, folder / "es"), "bc": train(bc, BC, folder / "bc")}


def latest(run, copy):
    shutil.copytree(run, copy)
    path = checkpoint.in_run(copy)[-1]
    return path, checkpoint.load(path)


PROGRESS = [
    ({"env_steps": "x"}, "progress.env_steps = 'x', but input should be a valid integer"),
    ({"env_steps": 10**30}, "progress.env_steps = 1000000000000000000000000000000, but input"),
    ({"level": 7}, "is at level 7, which the curriculum does not have"),
    ({"recent_success": [None]}, "progress.recent_success.0 = None, but input should be a valid"),
    ({"fitted": "no"}, "progress.fitted = 'no', but input should be a valid boolean"),
    ({"more": 1}, "unknown key progress.more; the keys known there are"),
]


def resumed(capsys, trainer, run, file, sentence):
    """Resuming a run is refused with a sentence that names the file."""
    refused(capsys, trainer, ["--resume", run, "--set", "iterations=4"], file, sentence)


@pytest.mark.parametrize(("changes", "sentence"), PROGRESS)
def test_a_run_with_damaged_counters(runs, tmp_path, capsys, changes, sentence):
    path, whole = latest(runs["es"], tmp_path / "run")
    state = {**whole.state, "progress": {**whole.state["progress"], **changes}}
    checkpoint.save(path, whole.policy, whole.search, whole.config, state)
    resumed(capsys, es, tmp_path / "run", path, sentence)


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (None, "search is of type NoneType"),
        ({"more": 1.0}, "search holds the numbers more, where none are needed"),
        ({"a": "x"}, "search.a = 'x', but input should be a valid number"),
    ],
)
def test_a_run_whose_search_is_damaged(runs, tmp_path, capsys, search, sentence):
    path, whole = latest(runs["es"], tmp_path / "run")
    state = {**whole.state, "search": search}
    checkpoint.save(path, whole.policy, whole.search, whole.config, state)
    config = es.load_config(tmp_path / "run" / "config.yaml")
    with pytest.raises(UserError) as caught:
        EvolutionStrategies(config, checkpoint.load(path))
    assert str(path) in str(caught.value)
    assert sentence.partition(" is of type")[0] in str(caught.value)


def without(tensors, name):
    return {key: tensor for key, tensor in tensors.items() if key != name}


OPTIMISER = [
    (lambda found: without(found, "0/exp_avg"), "holds 17 tensors of the optimiser, where 18 were"),
    (lambda found: {**without(found, "0/step"), "0/other": torch.zeros(())}, "tensor 0/other is"),
    (lambda found: {**found, "0/exp_avg": torch.zeros(2)}, "tensor 0/exp_avg is (2,) of float32"),
    (lambda found: {**found, "0/step": torch.tensor(torch.nan)}, "has numbers that are not finite"),
]


@pytest.mark.parametrize(("damage", "sentence"), OPTIMISER)
def test_a_clone_with_a_damaged_optimiser(runs, tmp_path, capsys, damage, sentence):
    path, whole = latest(runs["bc"], tmp_path / "run")
    checkpoint.save(path, whole.policy, damage(whole.search), whole.config, whole.state)
    resumed(capsys, bc, tmp_path / "run", path, sentence)


DEPTH, PROPRIO = "observation/depth", "observation/proprio"
DATA = [
    (lambda found: without(found, PROPRIO), f"tensor {PROPRIO} is absent there, but"),
    (lambda found: without(found, "actions"), "cannot read the demonstrations"),
    (lambda found: {**found, DEPTH: found[DEPTH].double()}, f"tensor {DEPTH} is "),
    (lambda found: {**found, "more": found[DEPTH] + 1}, "tensor observation/more is "),
    (lambda found: {**found, "held_out": found["held_out"] | True}, "holds out 20 of 20 decisions"),
]


@pytest.mark.parametrize(("damage", "sentence"), DATA)
def test_a_clone_with_damaged_demonstrations(runs, tmp_path, capsys, damage, sentence):
    path, whole = latest(runs["bc"], tmp_path / "run")
    state = {**whole.state, "progress": {**whole.state["progress"], "data_sha256": []}}
    checkpoint.save(path, whole.policy, whole.search, whole.config, state)  # of an earlier version
    data = tmp_path / "run" / "data" / "000001.safetensors"
    save_file({k: v.contiguous() for k, v in damage(load_file(data)).items()}, data)
    resumed(capsys, bc, tmp_path / "run", data, sentence)


def test_an_optimiser_from_before_its_tensors_were_counted_goes_on(runs, tmp_path):
    path, whole = latest(runs["bc"], tmp_path / "run")
    state = without(whole.state, "optimiser_tensors")
    checkpoint.save(path, whole.policy, whole.search, whole.config, state)
    more = ["--resume", str(tmp_path / "run"), "--set", "iterations=3"]
    assert bc.main(more) == 0


COSTS, EVALUATION, RUN = "costs.json", "evaluations/exact-s0.json", "runs/exact-s0/provenance.json"
STUDY = [
    (COSTS, ["costs", "exact", "total"], None, "costs.exact.total = None, but input should"),
    (COSTS, ["costs"], [], "costs = [], but input should be an object"),
    (EVALUATION, ["seeds"], {}, "seeds = {}, but input should be a valid array"),
    (EVALUATION, ["records", 0, "reward"], "x", "records.0.reward = 'x', but"),
    (RUN, ["git"], "x", "git = 'x', but input should be an object"),
]


@pytest.mark.parametrize(("name", "place", "value", "sentence"), STUDY)
def test_a_study_with_a_damaged_file(plain, tmp_path, capsys, name, place, value, sentence):
    path, whole = plain
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    data = json.loads((out / name).read_text())
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    (out / name).write_text(json.dumps(data))
    refused(capsys, lambda words: conduct(path, out, *words), ["--page"], str(out / name), sentence)


def damage_rows(metrics, iteration):
    """The first row is of that iteration."""
    head, first, *rest = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([head, iteration + "," + first.partition(",")[2], *rest]))


@pytest.mark.parametrize("iteration", ["x", "", "nan", "1e400", "-3", "1.5", "9" * 30])
def test_a_run_with_damaged_rows(runs, tmp_path, iteration):
    shutil.copytree(runs["es"], tmp_path / "run")
    damage_rows(tmp_path / "run" / "metrics.csv", iteration)
    with pytest.raises(UserError) as caught:
        read_metrics(tmp_path / "run")
    assert f"metrics.csv: iteration = '{iteration[:40]}', where a whole" in str(caught.value)


GAZE = {"edges_kept": 0.5, "edges": 0.4, "past_kept": 0.1, "past": 0.2}


def nested(deep):
    """JSON of lists within lists."""
    return "[" * deep + "]" * deep


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps(GAZE | {"past": 1.5}), "past = 1.5, but input should be less than or equal"),
        (json.dumps(GAZE | {"past": float("nan")}), "past = nan, but input should be"),
        (json.dumps([GAZE]), "it is of type list, where keys with values are needed"),
        (json.dumps(GAZE)[:-9], "is damaged, or no JSON: "),
        (nested(100_000), "is damaged, or no JSON: it is nested more than 100 deep"),
        ('{"edges": ' + "9" * 5000 + "}", "is damaged, or no JSON: Exceeds the limit"),
        ("\udcff", "is damaged, or no JSON: 'utf-8' codec can't decode"),
    ],
)
def test_a_damaged_gaze_file(tmp_path, text, sentence):
    path = tmp_path / "gaze.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(UserError) as caught:
        read_json(Gaze, path)
    assert str(caught.value).startswith(str(path)), caught.value
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_whole_file_is_read(tmp_path):
    path = tmp_path / "gaze.json"
    path.write_text(json.dumps(GAZE | {"views": 28}))
    assert read_json(Gaze, path) == Gaze(**GAZE)
    assert check(dict[str, Count], {"a": 2**63 - 1}, path) == {"a": 2**63 - 1}


LONG = "x" * 300


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (es, ["--config", LONG]), (es, ["--out", LONG]), (es, ["--resume", LONG]),
        (es, ["--set", f"init_from={LONG}"]), (rollout, [LONG]),
        (evaluate, ["--policy", "blind", "--out", LONG]), (flops, [f"{LONG}.yaml"]),
        (flops, ["stepping_stones", "--calls", "1", "--json", LONG]), (plots, [LONG, "--out", "a"]),
    ],
)  # fmt: skip
def test_a_name_of_300_letters(tmp_path, monkeypatch, capsys, command, arguments):
    monkeypatch.chdir(tmp_path)
    refused(capsys, command.main, arguments, LONG)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [("config.yaml", "pipe"), ("metrics.csv", "device"), ("provenance.json", "folder")],
)
def test_a_run_with_what_is_no_file(runs, tmp_path, capsys, name, kind):
    run = tmp_path / "run"
    shutil.copytree(runs["es"], run)
    (run / name).unlink()
    {
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
    }[kind](run / name)
    resumed(capsys, es, run, run, "")
