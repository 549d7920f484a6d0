"""ListOps: expressions against an evaluator of their text, padding, batches, and learning them."""

import numpy as np
import pytest
import torch

from experiments.__main__ import main
from experiments.layers import AttentionSettings
from experiments.listops import (
    OPERATORS,
    VOCABULARY,
    Example,
    Grammar,
    ListopsConfig,
    TextTransformer,
    batch_of,
    example,
    examples,
    guesses,
    padded,
)
from tests.experiments.small_data import table_in

SHORT = Grammar(shortest=8, longest=40, depth=3, arguments=5)
LONG = Grammar()

CONFIG = """
title: "Two digits"
paper: "none"
task: listops
set:
  grammar: {shortest: 4, longest: 4, arguments: 2, depth: 1}
  layers: 1
  width: 32
  heads: 2
  curve: 50
  test: 300
  fitting: {steps: 150, measure_every: 150, learning_rate: 0.01, warmup_steps: 20}
baseline: exact
arms:
  - {name: exact, control: true}
  - {name: none, control: true, set: {attention.feature_map: none, fitting.steps: 20}}
  - name: uptrained
    start_from: exact
    set:
      attention: {feature_map: oprf, fit_at: 1}
      fitting.steps: 10
      fitting.learning_rate: 1.0e-4
seeds: [0]
"""


def words(one):
    return [VOCABULARY[token] for token in one.tokens]


def value_of(text):
    """Slow and exact: the innermost brackets are replaced by what they come to, until a digit is
    left."""
    text = text.split()
    apply = {
        "[MIN": np.min, "[MAX": np.max, "[MED": np.median, "[SM": lambda values: sum(values) % 10,
    }  # fmt: skip
    while len(text) > 1:
        end = text.index("]")
        begin = max(i for i in range(end) if text[i] in OPERATORS)
        values = [int(word) for word in text[begin + 1 : end]]
        text = [*text[:begin], str(int(apply[text[begin]](values))), *text[end + 1 :]]
    return int(text[0])


@pytest.mark.parametrize(("grammar", "count"), [(SHORT, 300), (LONG, 15)])
def test_answers_are_the_evaluators_and_expressions_the_grammars(grammar, count):
    assert value_of("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]") == 5  # Tay et al. 2021
    assert value_of("[SM 9 9 [MED 3 6 ] ]") == 2  # a median of 4.5 is 4
    drawn = examples(grammar, "learn", 0, 0, count)
    for one in drawn:
        assert value_of(" ".join(words(one))) == one.answer
        assert grammar.shortest <= len(one.tokens) <= grammar.longest
        open_brackets = np.cumsum([(word in OPERATORS) - (word == "]") for word in words(one)])
        assert open_brackets.max() <= grammar.depth
        assert open_brackets[-1] == 0
        assert (open_brackets[:-1] > 0).all()
    assert {one.tokens[0] for one in drawn} == {10, 11, 12, 13}


def test_an_expression_follows_from_stream_seed_and_index_alone_and_streams_are_apart():
    whole = examples(SHORT, "learn", 3, 0, 50)
    assert example(SHORT, "learn", 3, 41) == whole[41]
    others = [("test", 3), ("curve", 3), ("learn", 4)]
    seen = [{*whole}, *({*examples(SHORT, stream, seed, 0, 50)} for stream, seed in others)]
    assert len(set.union(*seen)) > 190  # of 200: the shortest ones meet now and then


def test_every_expression_is_learned_from_once_beside_those_of_its_length():
    drawn = [batch_of(step, SHORT, 16, "learn", 5) for step in range(1, 9)]
    found = sorted(
        (tuple(row[: int((row != 15).sum())]), int(answer))
        for tokens, answers in drawn
        for row, answer in zip(tokens.numpy(), answers, strict=True)
    )
    assert found == sorted((one.tokens, one.answer) for one in examples(SHORT, "learn", 5, 0, 128))
    spare = sum(int((tokens == 15).sum()) for tokens, _ in drawn)
    assert spare < 0.15 * sum(tokens.numel() for tokens, _ in drawn)
    assert not torch.equal(batch_of(9, SHORT, 16, "learn", 5)[1], drawn[0][1])
    assert torch.equal(batch_of(3, SHORT, 16, "learn", 5)[0], drawn[2][0])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("softmax", "first"), ("none", "mean"), ("positive", "mean"), ("oprf", "first"),
        ("trig", "first"), ("elu", "mean"), ("angular_hybrid", "first"),
    ],
)  # fmt: skip
def test_padding_changes_no_answer_and_gradients_reach_every_parameter(name, read):
    settings = ListopsConfig(
        grammar=SHORT, attention=AttentionSettings(feature_map=name, num_features=8), layers=2,
        read=read,
    )  # fmt: skip
    model = TextTransformer(settings, 0)
    long, short = sorted(examples(SHORT, "learn", 0, 0, 40), key=lambda one: -len(one.tokens))[::39]
    assert len(short.tokens) < len(long.tokens)
    beside, alone = model(padded([short, long])[0])[0], model(padded([short])[0])[0]
    assert torch.allclose(beside, alone, atol=1e-4)
    beside.square().sum().backward()
    for key, parameter in model.named_parameters():
        if name != "none" or "before_attention" not in key:
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().sum() > 0, key


def test_guesses_are_the_most_common_answers_of_what_is_learned_from():
    known = [Example((10, 1), 3), Example((10, 2), 3), Example((11, 1), 8), Example((11, 2), 8),
             Example((11, 3), 8)]  # fmt: skip
    test = [Example((10, 4), 3), Example((10, 5), 8), Example((11, 6), 8), Example((11, 7), 3)]
    assert guesses(known, test) == {"most_common": 50.0, "by_operator": 50.0}
    assert guesses(known, test[::2]) == {"most_common": 50.0, "by_operator": 100.0}


@pytest.mark.slow
def test_two_digits_are_learned_and_an_estimate_of_the_same_attention_keeps_it(
    experiment, tmp_path
):
    assert main([str(experiment), "--out", str(tmp_path / "out")]) == 0
    rows = {row["arm"]: row for row in table_in(tmp_path / "out")}
    exact, none, uptrained = (rows[name] for name in ("exact", "none", "uptrained"))
    assert float(exact["accuracy"]) > float(exact["by_operator"]) + 20
    assert float(uptrained["accuracy"]) > float(exact["by_operator"]) + 20
    assert float(none["attention_flops"]) == 0 < float(exact["attention_flops"])
    assert exact["most_common"] == none["most_common"]
