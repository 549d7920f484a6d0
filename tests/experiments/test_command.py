"""The command of the experiments, on image Transformers in miniature."""

import re

import pytest
import torch
from torch.nn import functional

from experiments.__main__ import CONFIGS, main
from experiments.config import load_config, settings_of
from experiments.experiment import Experiment
from experiments.images import ImagesConfig
from tests.experiments.small_data import refused, table_in
from tests.experiments.test_compositional import CONFIG as COMPOSITIONAL
from tests.experiments.test_language import SAMPLED
from tests.experiments.test_speech import CONFIG as SPEECH
from tests.experiments.test_text import CONFIG as LISTOPS

CONFIG = """
title: "Two maps"
paper: "none"
task: images
set: {batch: 8, held_out: 10, test: 30, layers: 1, width: 8, heads: 2}
quick: {fitting.steps: 3, fitting.measure_every: 2}
baseline: exact
arms:
  - {name: exact, control: true, published: {accuracy: 90.0}}
  - {name: positive, set: {attention.feature_map: positive, attention.redraw_every: 2}}
  - {name: oprf, start_from: exact, set: {attention.feature_map: oprf, attention.fit_at: 1}}
orderings:
  - {claim: "oprf at or above positive", measure: loss, arms: [oprf, positive]}
seeds: [0, 1]
"""


FEW = ("--set", "seeds=[0]")


def arguments(experiment, clothes, *more):
    out = ("--out", str(experiment.parent / "out"))
    return [str(experiment), "--quick", "--data", clothes, *out, *more]


def test_all_variants_and_seeds_are_trained_once_for_a_table_and_a_page(
    experiment, clothes, capsys
):
    assert main(arguments(experiment, clothes)) == 0
    out = experiment.parent / "out"
    rows = table_in(out)
    assert [(row["arm"], row["seed"]) for row in rows] == [
        (arm, seed) for arm in ("exact", "positive", "oprf") for seed in "01"
    ]
    assert all(0 <= float(row["accuracy"]) <= 100 and float(row["loss"]) > 0 for row in rows)
    assert int(rows[2]["attention_flops"]) != int(rows[0]["attention_flops"])
    page = (out / "report.html").read_text()
    assert "oprf at or above positive" in page
    assert re.search("holds|the other way|not told apart", page)
    assert "<td>90.00</td>" in page
    capsys.readouterr()
    assert main(arguments(experiment, clothes)) == 0
    assert "train" not in capsys.readouterr().out
    assert main(arguments(experiment, clothes, "--record", str(out.parent / "kept"))) == 0
    assert (out.parent / "kept" / "table.csv").read_bytes() == (out / "table.csv").read_bytes()


def test_uptraining_begins_with_the_other_variants_weights_and_its_own_map(experiment, clothes):
    few = ("--set", "seeds=[0]", "quick={fitting.steps: 1, fitting.learning_rate: 1.0e-12}")
    assert main(arguments(experiment, clothes, *few)) == 0
    rows = table_in(experiment.parent / "out")
    exact, positive, oprf = (float(row["loss"]) for row in rows)
    assert abs(oprf - exact) < 0.1  # as the estimate is of the same attention
    assert positive != oprf


def test_some_variants_bring_what_they_begin_with_and_the_rest_can_follow(
    experiment, clothes, capsys
):
    assert main(arguments(experiment, clothes, *FEW, "--arms", "oprf")) == 0
    out = experiment.parent / "out"
    assert [row["arm"] for row in table_in(out)] == ["exact", "oprf"]
    assert "--variants oprf" in (out / "report.html").read_text()
    assert main(arguments(experiment, clothes, *FEW)) == 0
    assert [row["arm"] for row in table_in(out)] == ["exact", "positive", "oprf"]
    error = refused(arguments(experiment, clothes, "--variants", "positiv"), capsys)
    assert "--variants must be of exact, positive, oprf, got 'positiv'" in error


@pytest.mark.parametrize(
    ("config", "change", "sentence"),
    [
        (CONFIG, "baseline=none", "baseline must be one of the variants exact, positive, oprf"),
        (CONFIG, "set={batches: 3}", "batches"),
        (CONFIG, "set={patch_px: 5}", "patch_px must divide 28, got 5"),
        (CONFIG, "set={held_out: 300}", "held_out must be less than 300 images, got 300"),
        (CONFIG, "task=pictures", "task must be one of"),
        (CONFIG, "set={heads: 3}", "variant exact"),
        (COMPOSITIONAL, "set.held_out=300", "held_out must be less than 300 images, got 300"),
        (COMPOSITIONAL, "set.windows=[20,6]", "window must lie between 1 and 3"),
        (COMPOSITIONAL, "set.components=40", "must lie between 1 and the 36 numbers of a patch"),
        (COMPOSITIONAL, "set.draws=50", "draws must be at least features, got 50 and 60"),
        (COMPOSITIONAL, "set.learner=kernel", "learner"),
        (COMPOSITIONAL, "set.activation=identity", "must be relu for a network, got identity"),
        (LISTOPS, "set={grammar: {shortest: 100, longest: 50}}", "longest must be at least shor"),
        (LISTOPS, "set={grammar: {shortest: 900, longest: 901, depth: 2}}", "gave none in"),
        (LISTOPS, "set={heads: 5}", "variant exact"),
        (SAMPLED, "set.batch=900", "must be at most the 3334 tokens of the text"),
        (SAMPLED, "set.proposal={feature_map: trigs}", "trigs"),
        (SPEECH, "set={kernel: 4}", "kernel must be odd, got 4"),
        (SPEECH, "set={strings.least_digits: 8}", "must be at most most_digits, 7, got 8"),
        (SPEECH, "set={strings.least_snr_db: 11}", "must be at most most_snr_db, 10.0, got"),
        (SPEECH, "set={held_out: 15}", "speaker to learn from, and ann lacks the digit 0"),
        (SPEECH, "set={heads: 3}", "variant exact"),
    ],
)
def test_bad_settings_are_one_sentence_before_anything_is_made(
    tmp_path, data_sets, capsys, config, change, sentence
):
    path, out = tmp_path / "bad.yaml", tmp_path / "out"
    path.write_text(config)
    given = [path, "--data", data_sets, "--out", out, "--set", change]
    assert sentence in refused(given, capsys)
    assert not (out / "trials").exists()


def test_other_results_are_not_mixed_recorded_or_continued(experiment, clothes, capsys):
    """Whether they are finished or not; models of before have no inputs.json."""
    out, kept = experiment.parent / "out", experiment.parent / "kept"
    given = arguments(experiment, clothes, *FEW)
    assert main(given) == 0
    assert main([*given, "--record", str(kept)]) == 0
    before = (kept / "table.csv").read_bytes()
    steps = "made with settings.fitting.steps = 3, but the experiment now has"
    assert f"{steps} 4" in refused([*given, "quick={fitting.steps: 4}"], capsys)
    full = [word for word in [*given, "--record", str(kept)] if word != "--quick"]
    assert steps in refused(full, capsys)
    full[full.index("--out") + 1] = str(experiment.parent / "nothing")
    assert "there are none" in refused(full, capsys)
    assert (kept / "table.csv").read_bytes() == before
    batch = "settings.batch = 8, but the experiment now has 4"
    for arm, reason in (("exact", batch), ("oprf", f"start_inputs.{batch}")):
        inputs = {path: path.read_text() for path in out.glob("trials/*/inputs.json")}
        for path in inputs:
            path.with_name("result.json").unlink(missing_ok=True)
            if path.parent.name != f"{arm}-s0":
                path.unlink()
        error = refused([*given, "set={batch: 4}"], capsys)
        assert f"{arm}-s0/inputs.json was made with {reason}" in error
        for path, text in inputs.items():
            path.write_text(text)
    assert main(given) == 0
    full[full.index("--out") + 1] = str(experiment.parent)
    assert "holds files that are of no experiment" in refused(full, capsys)


def test_quick_results_have_a_place_of_their_own(experiment, clothes, monkeypatch):
    monkeypatch.chdir(experiment.parent)
    words = (str(experiment), "--data", clothes, "--arms", "exact")
    assert main([*words, "--quick", "--set", "seeds=[0]"]) == 0
    assert main([*words, "--set", "seeds=[0]", "set={fitting.steps: 1, width: 8}"]) == 0
    results = experiment.parent / "results"
    assert {path.name for path in results.iterdir()} == {"two", "two_quick"}


def test_every_shipped_experiment_loads():
    files = sorted(CONFIGS.glob("*.yaml"))
    assert files
    for path in files:
        experiment = load_config(path)
        for arm in experiment.arms:
            settings_of(experiment, arm, True, path)


def test_a_loss_of_nan_is_shown_and_left_out_of_means(experiment, clothes, monkeypatch):
    """Of the second seed alone."""
    honest = functional.cross_entropy

    def broken(logits, labels):
        loss = honest(logits, labels)
        second = torch.is_grad_enabled() and torch.initial_seed() > 1e6
        return loss * float("nan") if second else loss

    monkeypatch.setattr(functional, "cross_entropy", broken)
    assert main(arguments(experiment, clothes)) == 0
    out = experiment.parent / "out"
    rows = table_in(out)
    assert all((row["accuracy"] == "") == (row["seed"] == "1") for row in rows)
    page = (out / "report.html").read_text()
    assert "NaN in 1 of 2" in page
    assert "<td>NaN in 1 of 2</td>" in page  # what is ordered does not hold by the other


def test_a_variant_keeps_defaults_of_nested_settings_and_waits_for_the_one_it_starts_from(
    experiment, tmp_path
):
    whole = load_config(experiment, ["set={fitting.steps: 7}"])
    exact, _, oprf = Experiment(whole, experiment, tmp_path / "out").trials[:3]
    assert oprf.requires == exact.model
    own = settings_of(whole, whole.variant("oprf"), False, experiment)
    assert own.fitting.steps == 7
    assert own.fitting.warmup_steps == ImagesConfig().fitting.warmup_steps > 0
    assert own.attention.fit_at == 1


TABLE = """arm,seed,accuracy,loss
exact,0,50,1.0
positive,0,40,2.5
positive,1,40,2.75
oprf,0,41,2.0
oprf,1,41,2.125
"""


def test_a_table_alone_is_compared_with_the_claims(experiment, tmp_path, capsys):
    """Of the requested variants and seeds."""
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    for words in (str(tmp_path), str(table)):
        assert main([str(experiment), "--claims", words]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "oprf at or above positive",
            "  not told apart: oprf before positive, by 0.562 (-0.232 to 1.357)",
            "not told apart: 1",
        ]
    table.write_text(TABLE.replace("oprf,1,41,2.125", "oprf,1,,"))
    for change, sentence in (
        ((), "NaN in 1 of 2: oprf before positive, by 0.500"),
        (FEW, "too few seeds: oprf before positive, by 0.500"),
        (("--variants", "positive"), "no paper ranks these variants\n"),
    ):
        assert main([str(experiment), "--claims", str(tmp_path), *change]) == 0
        assert sentence in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("2.5", "1e400", "variant positive, seed 0: a value is no number"),
        ("accuracy,loss", "accuracy,lost", "must have a column loss"),
        ("oprf,0", "gerf,0", "variants must be of exact, positive, oprf, got 'gerf'"),
        ("arm,seed", "arm,sead", "a row has a variant and a seed, got 'exact', 'None'"),
        ("2.5", "much", "variant positive, seed 0: a value is no number"),
        ("positive,1", "positive,one", "variant positive, seed one: a value is no number"),
        ("exact,0,50,1.0", "exact,0,50,1.0,7", "variant exact, seed 0: a value is no number"),
        ("exact,0", "exact,\0", "table.csv"),
        ("oprf,1", "oprf,0", "variant oprf has seed 0 twice"),
    ],
)
def test_a_table_that_is_none_is_one_sentence(experiment, tmp_path, capsys, old, new, sentence):
    (tmp_path / "table.csv").write_text(TABLE.replace(old, new, 1))
    assert sentence in refused([experiment, "--claims", tmp_path], capsys)
    error = refused([experiment, "--claims", tmp_path / "none.csv"], capsys)
    assert "none.csv must be an experiment's table.csv" in error
