"""The study command: whole, rerun, widened, and careful with bad input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests import helpers
from tests.training.study_jobs import (
    BARE,
    CURVE,
    STUDY,
    TWO_STAGES,
    WALK,
    checkpoints,
    conduct,
    figures,
    files,
    write_study,
)
from training import study
from training.compare.jobs import MISSING
from training.compare.runs import all_runs
from training.compare.study import plan
from training.io import checkpoint

ROOT = Path(__file__).resolve().parents[2]


def refused(capsys, path, out, sentence):
    helpers.refused(capsys, study, ["--config", path, "--out", out], sentence)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study of two stages with a curve and videos: its file, its directory."""
    folder = tmp_path_factory.mktemp("finished")
    shape = {"stages": TWO_STAGES, "curves": [CURVE], "headline": "exact", "compare_stages": True}
    path = write_study(folder, {"env_id": WALK}, **shape)
    assert conduct(path, folder / "out") == 0
    return path, folder / "out"


def test_a_study_and_what_it_leaves(finished):
    _, out = finished
    assert sorted(p.name for p in out.iterdir() if p.name != ".lock") == [
        "costs.json", "evaluations", "pareto.png", "policies", "report.html", "runs", "study.yaml",
        "videos",
    ]  # fmt: skip
    runs = {p.name: int(checkpoint.in_run(p)[-1].stem) for p in (out / "runs").iterdir()}
    assert runs == {
        f"{arm}-s{seed}{stage}": iterations
        for arm in ("favor-m-16", "exact")
        for seed in (0, 1)
        for stage, iterations in (("-1", 2), ("", 1))
    }
    assert sorted(p.name for p in (out / "videos").iterdir()) == [
        "exact-s0.mp4", "favor-m-16-s0.mp4",
    ]  # fmt: skip
    names = [*(f"{arm}-s{seed}" for arm in ("favor-m-16", "exact") for seed in (0, 1)), "oracle"]
    names += ["exact-s0-1", "exact-s1-1"]  # its first stage is compared
    places = ("", "--head-wind-0.05")
    assert set(figures(out)) == {f"{name}{place}.json" for name in names for place in places}
    costs = json.loads((out / "costs.json").read_text())["costs"]
    assert costs["exact"]["latency_ms"] > 0
    assert costs["exact"]["attention"] < costs["exact"]["total"]


def test_the_files_of_a_study_belong_together(finished):
    """The last stage starts from the one before, the evaluation is of it, on evaluation scenes; the
    first seed's policies are put aside; seeds reach policies and their features."""
    _, out = finished
    runs = out / "runs"
    start = checkpoint.load(runs / "exact-s1" / "checkpoints" / "000000.safetensors")
    end = checkpoint.load(runs / "exact-s1-1" / "checkpoints" / "000002.safetensors")
    assert all(torch.equal(start.policy[name], end.policy[name]) for name in end.policy)
    entry = figures(out)["exact-s1--head-wind-0.05.json"]
    assert entry["seeds"] == [100_000, 100_001, 100_002]
    assert entry["env_settings"] == {"wind": 0.05}
    assert figures(out)["exact-s1.json"]["episodes"] == 5
    names = sorted(path.name for path in (out / "policies").iterdir())
    assert names == ["exact-s0.safetensors", "favor-m-16-s0.safetensors"]
    whole = checkpoint.load(checkpoint.resolve(runs / "exact-s0"))
    alone = checkpoint.load(out / "policies" / "exact-s0.safetensors")
    assert alone.search == {}
    assert all(torch.equal(whole.policy[name], alone.policy[name]) for name in whole.policy)
    assert alone.config == whole.config
    configs = [checkpoint.load(checkpoint.resolve(runs / f"favor-m-16-s{s}")).config
               for s in (0, 1)]  # fmt: skip
    found = [(c["seed"], c["policy"]["init_seed"], c["policy"]["feature_seed"]) for c in configs]
    assert found == [(0, 0, 0), (1, 1, 1)]


def test_the_page_shows_what_each_stage_brings(finished):
    _, out = finished
    page = (out / "report.html").read_text()
    table = page[page.index("What each stage brings") :].split("</table>")[0]
    rewards = [figures(out)[f"exact-s{seed}-1.json"]["reward_mean"] for seed in (0, 1)]
    assert f"; {sum(rewards) / 2:.3f}</td>" in table
    assert "head wind, 0.05" in table
    assert "after stage 2" in table
    outcomes = [
        [[r["success"] for r in figures(out)[f"exact-s{s}{end}.json"]["records"]] for s in (0, 1)]
        for end in ("-1", "")
    ]
    gain = 100 * np.subtract(*outcomes[::-1]).mean()
    assert f"<td>{gain:+.1f} <small>" in table


def test_a_finished_study_stays_as_it_is(finished, capsys):
    """An image that is gone is drawn again."""
    path, out = finished
    before = files(out)
    assert conduct(path, out) == 0
    assert files(out) == before
    assert "nothing to do" in capsys.readouterr().out
    (out / "pareto.png").unlink()
    assert conduct(path, out) == 0
    assert {p: data for p, (_, data) in files(out).items()} == {
        p: data for p, (_, data) in before.items()
    }


def test_a_study_made_in_parts(plain, tmp_path, capsys):
    """With variants and seeds added, and with some jobs alone and the runs that they need; the page
    lists all that is missing. It comes to the same as one that was made at once."""
    path, whole = plain
    assert not (whole / "videos").exists()  # as nothing can be rendered there
    few, out = write_study(tmp_path, arms=STUDY["arms"][:1]), tmp_path / "out"
    assert conduct(few, out, "--set", "seeds=[1]") == 0
    assert [path.name for path in (out / "runs").iterdir()] == ["favor-m-16-s1"]
    assert "--set &#39;seeds=[1]&#39;" in (out / "report.html").read_text()
    first = files(out / "runs")
    capsys.readouterr()
    assert conduct(path, out, "--only", "evaluate exact-s1", "oracle") == 0
    printed = capsys.readouterr().out
    assert "[2/3]" in printed  # the oracle is evaluated already
    assert {p.name for p in (out / "runs").iterdir()} == {"exact-s1", "favor-m-16-s1"}
    assert f"parts are left, {out / 'report.html'} lists them" in printed
    assert "The study is not finished: " in (out / "report.html").read_text()
    before = files(out)
    for word in ("evaluate exact-s1", "Exact, S1"):  # as names of variants are written
        assert conduct(path, out, "--only", word) == 0
        assert files(out) == before
    assert conduct(path, out, "--variants", "exact-s1", "exact-s7") == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith(
        "error: words that select jobs of the study must be in a job's label"
    )
    assert sentence.endswith("got 'exact-s7'\n")
    assert conduct(path, out) == 0
    assert {path: files(out / "runs")[path] for path in first} == first
    assert checkpoints(out) == checkpoints(whole)
    assert figures(out) == figures(whole)
    assert set(json.loads((out / "costs.json").read_text())["costs"]) == {"FAVOR+ m = 16", "exact"}


def test_what_results_depend_on_cannot_change(plain, tmp_path, capsys):
    _, out = plain
    before = files(out)
    sentence = "was trained with searcher.name = 'pgpe', but"
    refused(capsys, write_study(tmp_path, {"searcher": {"name": "ars"}}), out, sentence)
    sentence = "oracle.json was measured with env_settings.wind = None, but the study now has 0.1"
    refused(capsys, write_study(tmp_path, env={"wind": 0.1}), out, sentence)
    assert files(out) == before
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("")
    refused(capsys, write_study(tmp_path), tmp_path / "else", "holds files that are of no study")


@pytest.mark.slow
def test_more_episodes_can_follow_and_fewer_be_read(plain, tmp_path, capsys):
    """As if all had been configured from the start; existing episodes are not repeated."""
    _, before = plain
    whole, out = tmp_path / "whole", tmp_path / "out"
    for folder in (whole, out):
        shutil.copytree(before, folder)
    shutil.rmtree(whole / "evaluations")
    path = write_study(tmp_path, episodes=STUDY["episodes"] + 1)
    for folder in (whole, out):
        assert conduct(path, folder) == 0
    assert figures(out) == figures(whole)
    old, new = (json.loads((f / "evaluations" / "oracle.json").read_text()) for f in (before, out))
    assert new["records"][:-1] == old["records"]
    assert not list((out / "evaluations").glob("*.jsonl"))
    capsys.readouterr()
    assert conduct(write_study(tmp_path), out) == 0
    assert "evaluate" not in capsys.readouterr().out
    fewer = len(old["records"])
    assert f"{fewer} scenes (seeds" in (out / "report.html").read_text()


TWICE = [{"name": "a b"}, {"name": "A-B"}]
MISTAKES = [
    ({"stages": [{"trainer": "sac", "config": "es.yaml"}]},
     "stages.0: trainer must be one of es, bc, ppo, got 'sac'"),
    ({"stages": [*STUDY["stages"], {"trainer": BARE.name, "config": "es.yaml"}]},
     "must be es or bc or ppo,"),
    ({"arms": [*STUDY["arms"], STUDY["arms"][0]]}, "variant names must differ"),
    ({"arms": TWICE, "baseline": "a b"}, "files are named 'a-b' for both 'a b' and 'A-B'"),
    ({"arms": [{"name": "oracle"}], "baseline": "oracle"}, "both the reference oracle and"),
    ({"baseline": "softmax"}, "baseline must be one of the variants FAVOR+ m = 16, exact, got"),
    ({"arms": [*STUDY["arms"], {"name": "x", "set": {"popzise": 2}}]},
     "unknown key popzise; the keys known there are"),
    ({"arms": [*STUDY["arms"], {"name": "x", "set": {"policy.patch": [0, 5]}}]},
     "policy: patch must be [rows, columns] of at least 1"),
    ({"curves": [CURVE | {"points": [{"x": 1, "set": {"rain": 1}}]}]}, "curve head wind, setting"),
    ({"curves": [CURVE | {"points": [{"x": 1 + 1e-13}, {"x": 1 + 2e-13}]}]},
     "has two points at one x, to 12 digits"),
    ({"seeds": [1, 1]}, "seeds must be distinct, got [1, 1]"),
    ({"evaluation_seed": 90_000}, "evaluation_seed must be at least 100000 where training makes"),
    ({"stages": [*STUDY["stages"], {"trainer": "es", "config": "es.yaml",
                                    "set": {"policy.hidden": [5]}}]},
     "variant FAVOR+ m = 16, stage 2: its policy's tensor controller"),
    ({"demonstrations": "--env 'x"},
     "demonstrations = \"--env 'x\", where arguments of training.demos are needed: No closing"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES)
def test_bad_input(tmp_path, capsys, changes, sentence):
    refused(capsys, write_study(tmp_path, **changes), tmp_path / "out", sentence)
    assert not (tmp_path / "out").exists()


def test_other_bad_input(tmp_path, capsys):
    """Errors are in the words of the file and of the command line."""
    out = tmp_path / "out"
    preset = ROOT / "configs" / "stepping_stones.yaml"
    refused(capsys, preset, out, "stepping_stones.yaml is no study: it has neither stages nor var")
    path = write_study(tmp_path)
    assert conduct(path, out, "--set", "speed=1") == 2
    assert f"{path} with --set speed=1: unknown key speed" in capsys.readouterr().err
    assert conduct(path, out, "--unpack", str(tmp_path)) == 2
    assert f"{tmp_path} holds no record of a study: a record has a" in capsys.readouterr().err
    points = [{"x": 1, "set": {"gap": 1}}]
    job = {"env_id": "SteppingStones-v0"}
    path = write_study(tmp_path, job, curves=[CURVE | {"points": points}])
    refused(capsys, path, out, "unknown key gap; the keys known there are")
    job = {"env_id": "tests.training.picture_env:Picture-v0", "policy": {}}
    curve = {"name": "a", "xlabel": "x", "repair": "full", "points": [{"x": 0}]}
    path = write_study(tmp_path, job, curves=[curve], references=[])
    refused(capsys, path, out, "repair must be none without depth images")
    assert not out.exists()
    renamed = {key: value for key, value in STUDY.items() if key != "arms"}
    path.write_text(yaml.safe_dump(renamed | {"variants": [{}]}))
    refused(capsys, path, out, "variants.0.name is missing")


def test_what_was_made_from_a_run_that_is_gone(plain, finished, tmp_path, capsys):
    path, whole = plain
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "runs" / "exact-s0")
    refused(capsys, path, out, "exact-s0, which is not there any more; bring that run back, or")
    path, whole = finished
    out = tmp_path / "stages"
    shutil.copytree(whole, out)
    first = out / "runs" / "exact-s0-1"
    shutil.rmtree(first)
    sentence = f"exact-s0 was trained from another policy than {first} has now; bring"
    refused(capsys, path, out, sentence)
    shutil.copytree(out / "runs" / "exact-s1-1", first)  # as if it had been trained otherwise
    for iteration in ("000000", "000001"):
        assert (out / "runs" / "exact-s0" / "checkpoints" / f"{iteration}.safetensors").is_file()
    config = first / "config.yaml"
    config.write_bytes((whole / "runs" / "exact-s0-1" / "config.yaml").read_bytes())
    refused(capsys, path, out, f"= 0 in {config} differs from 1, with which")


def test_metrics_without_a_row_are_left_out(plain, tmp_path):
    path, whole = plain
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    for metrics in out.glob("runs/exact-s*/metrics.csv"):
        metrics.write_text(metrics.read_text().splitlines(keepends=True)[0])
    assert conduct(path, out) == 0
    assert "All finished runs of a stage took" in (out / "report.html").read_text()


def test_the_page_alone(plain, tmp_path):
    path, _ = plain
    assert conduct(path, tmp_path / "out", "--page") == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "The study is not finished: 12 of its parts" in text
    assert not (tmp_path / "out" / "runs").exists()


OF_PACKAGES = {"fetch_reach": "gymnasium_robotics"}
"""Packages of the environments of studies, where no extra of this project brings them."""


@pytest.mark.parametrize("preset", sorted((ROOT / "configs" / "studies").glob("*.yaml")),
                         ids=lambda path: path.stem)  # fmt: skip
def test_shipped_studies_load(preset, tmp_path):
    if preset.stem in OF_PACKAGES:
        pytest.importorskip(OF_PACKAGES[preset.stem])
    settings = study.load_config(preset, ["seeds=[0]"])
    runs = all_runs(settings, preset, tmp_path / "out")
    assert len(runs) == len(settings.arms)
    for unit in plan(settings, tmp_path / "out", runs):
        assert unit.status() == MISSING


def test_a_place_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    refused(capsys, write_study(tmp_path), tmp_path / "file" / "out", "cannot be written")
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.yaml").write_text("title: A small study\n")
    (out / "evaluations").write_text("a file where a folder must be")
    capsys.readouterr()
    assert conduct(write_study(tmp_path), out) == 2
    assert "a file of the study cannot be written" in capsys.readouterr().err


@pytest.mark.records
def test_variants_cloned_from_demonstrations_that_it_records(tmp_path, capsys):
    """A task with balls and bowls: the page shows their share, and loss while training."""
    demonstrations = tmp_path / "demos"
    env_id = "tests.training.picture_env:Picture-v0"
    policy = {
        "name": "vision_performer", "patch": [8, 8], "embed_dim": 8, "depth": 1, "heads": 2,
        "context_dim": 8, "hidden": [8], "negatives": 4, "samples": 4, "pose_octaves": 1,
    }  # fmt: skip
    job = {
        "env_id": env_id, "iterations": 2, "updates": 2, "batch_size": 8, "warm_up": 1,
        "val_frames": 8, "evaluate_every": 2, "episodes": 1, "workers": 1, "threads": 1,
        "policy": policy, "demonstrations": str(demonstrations),
    }  # fmt: skip
    (tmp_path / "bc.yaml").write_text(yaml.safe_dump(job))
    words = f"--env {env_id} --episodes 8 --workers 1 --valid-share 0.25 --out {demonstrations}"
    path = write_study(
        tmp_path, stages=[{"trainer": "bc", "config": "bc.yaml"}], seeds=[4],
        demonstrations=words, episodes=2, references=[],
    )  # fmt: skip
    out = tmp_path / "out"
    assert conduct(path, out) == 0
    assert figures(out)["exact-s4.json"]["in_bowls_mean"] == 1.0
    text = (out / "report.html").read_text()
    assert "loss on held-out data" in text
    assert ">in bowls<" in text
    before = files(tmp_path)
    assert conduct(path, out) == 0
    assert files(tmp_path) == before
    changes = {"stages": [{"trainer": "bc", "config": "bc.yaml"}], "episodes": 2, "references": []}
    many = words.replace("--episodes 8", "--episodes 12")
    path = write_study(tmp_path, seeds=[4], demonstrations=many, **changes)
    refused(capsys, path, out, "out has runs with demonstrations = '--env tests.training.picture")
