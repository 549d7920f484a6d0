"""Language models and softmax sampling, on a text of twelve words."""

import math

import pytest
import torch

from experiments.__main__ import main
from experiments.fitting import Fitting
from experiments.language import learning
from experiments.language.learning import (
    LanguageConfig,
    LanguageModel,
    SampledSoftmaxConfig,
    learn_sampled_softmax,
)
from experiments.language.proposals import (
    Proposal,
    ProposalSettings,
    distances,
    draw,
    sampled_loss,
    shares,
)
from tests.experiments.small_data import resumes, table_in, write_stories

SMALL = """width: 16, batch: 8, span: 8, dropout: 0, valid: 200, test: 200,
       fitting: {steps: 60, measure_every: 60, learning_rate: 0.1}"""
ERRORS = f"""
title: "Errors"
paper: "none"
task: softmax_errors
set: {{{SMALL}, queries: 40, draws: 2, temperature: 2.0, length_penalty: 0.1}}
baseline: exact
arms:
  - {{name: exact, control: true}}
  - {{name: uniform, start_from: exact, set: {{proposal.feature_map: uniform}}}}
  - {{name: few, start_from: exact, set: {{proposal: {{feature_map: trig, num_features: 8}}}}}}
  - {{name: many, start_from: exact, set: {{proposal: {{feature_map: oprf, num_features: 2000}}}}}}
seeds: [0]
"""
SAMPLED = f"""
title: "Sampled"
paper: "none"
task: sampled_softmax
set: {{{SMALL}, negatives: 4}}
baseline: full
arms:
  - {{name: full, control: true}}
  - {{name: unigram, control: true, set: {{proposal.feature_map: unigram}}}}
  - {{name: angular, set: {{proposal.feature_map: angular_hybrid}}}}
  - {{name: clustered, set: {{proposal.feature_map: clustered_hybrid, fit_at: 20}}}}
seeds: [0]
"""


@pytest.fixture
def folder(tmp_path):
    return write_stories(tmp_path / "data")


def table_of(folder, config):
    path, out = folder.parent / "own.yaml", folder.parent / "out"
    path.write_text(config)
    assert main([str(path), "--out", str(out), "--data", str(folder.parent)]) == 0
    rows = table_in(out)
    return {row["arm"]: {k: float(v) for k, v in row.items() if k != "arm"} for row in rows}


def test_a_model_is_learned_once_and_maps_are_measured_against_its_softmax(folder):
    found = table_of(folder, ERRORS)
    assert found["exact"]["perplexity"] < 4  # two of eleven words can follow
    assert len({row["perplexity"] for row in found.values()}) == 1
    assert found["exact"]["wasserstein"] == found["exact"]["ks"] == 0
    assert found["many"]["negative"] == 0 < found["few"]["negative"] < 1
    # Relative errors are of order 1 / sqrt(m), and far below what knowing nothing costs.
    assert found["many"]["wasserstein"] < 0.5 * found["uniform"]["wasserstein"]
    assert found["many"]["wasserstein"] < found["few"]["wasserstein"]
    assert found["few"]["features"] == 16
    assert 0.5 < found["exact"]["key_length"] < 2  # the penalty of lengths
    lengths = (folder.parent / "out/trials/exact-s0/lengths.csv").read_text().splitlines()
    assert lengths[0] == "quantile,queries,keys"
    assert len(lengths) == 8


@pytest.mark.slow
def test_words_drawn_by_any_map_teach_nearly_as_well_as_all_words(folder):
    found = table_of(folder, SAMPLED)
    for arm, row in found.items():
        assert row["perplexity"] < 5, arm
        assert 0 <= row["distance"] < 1
    assert found["full"]["distance"] == pytest.approx(0, abs=1e-6)
    assert found["angular"]["features"] > found["unigram"]["features"] == 0


def test_an_interrupted_model_goes_on_with_its_memory_bit_for_bit(folder, tmp_path):
    fitting = Fitting(steps=6, measure_every=2, learning_rate=0.01)
    proposal = ProposalSettings(feature_map="clustered_hybrid", num_features=4)
    settings = SampledSoftmaxConfig(
        proposal=proposal, fit_at=2, fitting=fitting, width=8, batch=4, span=8, valid=100, test=100
    )
    data = str(folder.parent)
    assert resumes(learn_sampled_softmax, settings, data, tmp_path, (learning, "draw"), 4)


def test_reading_in_parts_is_reading_at_once():
    model = LanguageModel(LanguageConfig(width=6, batch=3), 20, 0).eval()
    tokens = torch.arange(30).reshape(10, 3) % 20
    at_once = model.read_on(tokens, True)
    parts = [model.read_on(tokens[:4], True), model.read_on(tokens[4:], False)]
    assert torch.allclose(torch.cat(parts), at_once, atol=1e-6)
    assert not torch.allclose(model.read_on(tokens[4:], True), parts[1], atol=1e-3)


def test_words_drawn_in_proportion_to_the_softmax_give_its_loss_whatever_is_drawn():
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(50, 5, generator=generator)
    keys = torch.randn(30, 5, generator=generator)
    targets = torch.arange(50) % 30
    logits = 1.5 * queries @ keys.mT
    full = torch.nn.functional.cross_entropy(logits, targets)
    drawn = draw(logits.exp(), targets, 7, generator, among_all=False)
    assert not (drawn.words == targets[:, None]).any()
    assert torch.isclose(sampled_loss(queries, keys, targets, drawn, 1.5, False), full, rtol=1e-5)
    # Of any other words the sum of exponentials is right on average: here within 5 of its standard
    # errors, which 50 sums exceed by chance for one in 30,000 seeds.
    others, log_chance, _ = draw(torch.ones(50, 30), targets, 20_000, generator, 0.5, False)
    terms = (logits.gather(1, others) - log_chance).exp().double() * 29 / 30
    rest = logits.exp().double().sum(1) - logits.exp().gather(1, targets[:, None]).squeeze(1)
    error = terms.std(1) / math.sqrt(terms.shape[1])
    assert ((terms.mean(1) - rest).abs() < 5 * error).all()


TRUE, UNEVEN = [0.5, 0.2, 0.15, 0.1, 0.04, 0.01], [1.0, 2.0, 9.0, 1.0, 20.0, 30.0]


@pytest.mark.parametrize(
    ("weights", "correct_true", "among_all", "finds_it"),
    [
        (UNEVEN, True, True, True),
        (UNEVEN, False, False, False),
        (TRUE, True, False, False),
        (TRUE, False, False, True),
    ],
)
def test_the_best_logits_are_those_of_all_words_where_all_are_corrected_and_all_drawn(
    weights, correct_true, among_all, finds_it
):
    """Six words, learned from twenty drawn ones. If only drawn words are corrected, words must be
    drawn from the softmax itself."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.zeros(6, 1, requires_grad=True)
    queries = torch.ones(1000, 1)
    optimiser = torch.optim.Adam([keys], lr=0.05)
    targets = torch.multinomial(torch.tensor(TRUE), 1000, True, generator=generator)
    found = []
    for _ in range(150):
        drawn = draw(
            torch.tensor(weights).expand(1000, -1), targets, 20, generator, among_all=among_all
        )
        optimiser.zero_grad()
        sampled_loss(queries, keys, targets, drawn, 1.0, correct_true).backward()
        optimiser.step()
        found.append(keys.detach().squeeze(1).softmax(0))
    there = targets.bincount(minlength=6) / len(targets)
    error = (torch.stack(found[-50:]).mean(0) - there).abs().max()
    assert (error < 0.03) == finds_it


def test_distances_between_single_words_are_their_places_apart():
    both = torch.eye(9)
    far, farthest = distances(both[[2, 4, 8]], both[[2, 7, 0]])
    assert far.tolist() == [0, 3, 8]
    assert farthest.tolist() == [0, 1, 1]
    rows = shares(torch.tensor([[1.0, -5.0, 3.0], [-1.0, -2.0, -3.0]]))
    assert torch.allclose(rows, torch.tensor([[0.25, 0, 0.75], [1 / 3, 1 / 3, 1 / 3]]))


@pytest.mark.parametrize("name", ["trig", "hyperbolic", "angular_hybrid", "clustered_hybrid"])
def test_weights_of_long_vectors_are_numbers(name):
    proposal = Proposal(ProposalSettings(feature_map=name), 6, torch.ones(40), 0)
    generator = torch.Generator().manual_seed(0)
    queries, keys = (30 * torch.randn(n, 6, generator=generator) for n in (5, 40))
    proposal.fit(queries, keys)
    weights = proposal.weights(queries, keys)
    assert weights.isfinite().all()
    assert torch.allclose(shares(weights).sum(-1), torch.ones(5))
