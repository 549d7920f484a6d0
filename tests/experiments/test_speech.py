"""Spoken digit strings: data, strings, Conformer and scores, on tones in the real files' format."""

import numpy as np
import pytest
import torch

from experiments import learning
from experiments.__main__ import main
from experiments.config import load_config, settings_of
from experiments.data import fsdd
from experiments.layers import AttentionSettings
from experiments.speech.learning import (
    draw,
    edit_distance,
    greedy,
    learn,
    loss_of,
    voices,
    word_errors,
)
from experiments.speech.model import LogMel, SpeechConfig, SpeechModel, StringSettings
from tests.experiments.small_data import (
    packed,
    resumes,
    table_in,
    tones,
    write_recordings,
)

CONFIG = """
title: "Tones"
paper: "none"
task: speech
set: {batch: 2, layers: 2, width: 8, mlp_width: 8, fitting.steps: 4, fitting.measure_every: 2,
      held_out: 1, held_out_strings: 2, test_strings: 3}
baseline: exact
arms:
  - {name: exact, control: true}
  - {name: no attention, set: {attention.feature_map: none, attention.fit_at: 1}}
  - name: clustered
    set: {attention.feature_map: clustered_hybrid, attention.num_features: 4, attention.fit_at: 2,
          attention.options: {complex_a: false, num_query_clusters: 2, num_key_clusters: 3}}
orderings:
  - {claim: "attention helps", measure: wer, arms: [exact, no attention]}
seeds: [0]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_recordings(tmp_path_factory.mktemp("data"), packed(tones()))


def drawn(data, count=8, seed=0, **settings):
    of = voices(fsdd.load(data), lambda take: take > 4, "learn from")
    return draw(of, count, StringSettings(**settings), np.random.default_rng(seed))


def test_the_command_learns_all_variants_and_counts_what_attention_costs(experiment, data):
    out = experiment.parent / "out"
    assert main([str(experiment), "--data", data, "--out", str(out)]) == 0
    exact, none, clustered = rows = table_in(out)
    assert all(float(row["wer"]) >= 0 and float(row["loss"]) > 0 for row in rows)
    assert none["attention_flops"] == "0"
    assert 0 < int(exact["attention_flops"]) != int(clustered["attention_flops"])
    assert int(exact["flops"]) - int(exact["attention_flops"]) > int(none["flops"])


def test_clusters_are_fitted_at_their_step_and_an_interrupted_variant_gives_the_same(
    experiment, data, tmp_path
):
    config = load_config(experiment)
    settings = settings_of(config, config.variant("clustered"), False, experiment)

    def watch(model, own, seed, step, run):
        centres = model.blocks[0].attention.feature_map.key_centers
        assert centres.any() == (step > own.fit_at)

    assert resumes(learn, settings, data, tmp_path, (learning, "prepare_step"), 4, watch)


@pytest.mark.slow
def test_a_model_learns_to_tell_tones_apart(data):
    torch.manual_seed(0)
    settings = SpeechConfig(layers=1, width=16, mlp_width=16, dropout=0.0)
    model = SpeechModel(settings, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    easy = {"most_silence_ms": 40, "least_snr_db": 20.0, "most_snr_db": 20.0}
    for step in range(80):
        optimiser.zero_grad()
        loss_of(model, drawn(data, 8, step, **easy))[0].backward()
        optimiser.step()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0 or name.endswith("in_proj_bias"), name
    test = drawn(data, 40, 1000, **easy)
    assert word_errors(test.spoken(), loss_of(model.eval(), test)[1]) < 20


@pytest.mark.parametrize(
    ("subsample", "feature_map"), [(1, "oprf"), (2, "softmax"), (4, "none"), (4, "oprf")]
)
def test_what_is_heard_does_not_depend_on_the_strings_beside(data, subsample, feature_map):
    own = AttentionSettings(feature_map=feature_map)
    model = SpeechModel(SpeechConfig(attention=own, subsample=subsample, width=16), 0).eval()
    strings = drawn(data)
    together, counts = model(strings.waves, strings.lengths)
    for i, length in enumerate(strings.lengths.tolist()):
        alone, count = model(strings.waves[i : i + 1, :length], strings.lengths[i : i + 1])
        assert count == counts[i] == alone.shape[1]
        torch.testing.assert_close(alone[0], together[i, : counts[i]], rtol=1e-3, atol=1e-4)


def test_parts_share_no_recording_and_strings_follow_from_the_generator(data):
    recordings = fsdd.load(data)
    test = voices(recordings, lambda take: take < 5, "test")
    rest = voices(recordings, lambda take: take >= 5, "learn from")
    takes = [{s.tobytes() for of in v for own in of for s in own} for v in (test, rest)]
    assert takes[0].isdisjoint(takes[1])
    assert len(takes[0] | takes[1]) == len(recordings) == 100
    first, again, other = (drawn(data, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.waves, again.waves)
    assert first.spoken() != other.spoken()
    assert all(3 <= len(digits) <= 7 for digits in first.spoken())
    assert first.waves.square().sum(1) / first.lengths == pytest.approx(1.0, abs=1e-4)


def test_silences_and_noise_are_as_configured(data):
    clean = drawn(data, 20, most_silence_ms=0, least_snr_db=100.0, most_snr_db=100.0)
    assert torch.equal(clean.lengths, 800 * clean.counts)
    noisy = drawn(data, 20, most_silence_ms=0, least_snr_db=0.0, most_snr_db=0.0)
    # Of a tone and noise as strong as it, half is the tone's; its bands hold less than 2 % of noise
    power = torch.fft.rfft(noisy.waves[:, :800]).abs().square()
    share = (power.amax(1) / power.sum(1)).mean()
    assert 0.4 < share < 0.6
    spread = drawn(data, 50, most_silence_ms=100).lengths - 800 * drawn(data, 50).counts
    assert spread.max() > 2000


def test_a_tone_is_in_its_mel_band():
    time = torch.arange(4000) / 8000
    frames, counts = LogMel(20)((2 * torch.pi * 1000 * time).sin()[None], torch.tensor([4000]))
    assert frames.shape[1] == int(counts) == 1 + (4000 - 256) // 80
    top = 2595 * np.log10(1 + 4000 / 700)
    band = 2595 * np.log10(1 + 1000 / 700) / (top / 21) - 1
    assert abs(frames[0].mean(0).argmax() - band) <= 0.5
    assert frames.mean() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("said", "heard", "edits"),
    [
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [], 3),
        ([1, 2, 3, 4], [2, 3, 4, 5], 2),
        ([1, 1], [1], 1),
        ([5], [1, 2, 3], 3),
    ],
)
def test_edits_are_the_fewest(said, heard, edits):
    assert edit_distance(said, heard) == edit_distance(heard, said) == edits


def test_runs_are_one_digit_blanks_none_and_padding_is_not_heard():
    tokens = torch.tensor([[3, 3, 10, 3, 7, 7, 10, 1], [10, 2, 2, 2, 10, 10, 5, 5]])
    logits = torch.nn.functional.one_hot(tokens, 11).float()
    assert greedy(logits, torch.tensor([8, 5])) == [[3, 3, 7, 1], [2]]
    assert word_errors([[3, 3, 7, 1], [2, 5]], [[3, 3, 7, 1], [2]]) == pytest.approx(100 / 6)
