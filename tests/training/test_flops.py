"""The FLOP counter against known operators and closed formulas, and the flops command."""

import numpy as np
import pytest
import torch
from torch import nn

import attention
from attention.scores import block_rows
from tests.policies import vision_cases
from tests.training import flop_formulas
from training.analysis import step_cost
from training.analysis.op_costs import COSTS
from training.analysis.op_counter import OTHER, OpCounter, UncountedError
from training.analysis.step_cost import (
    COMPONENTS,
    comparison,
    count,
    decisions_ms,
    measure,
    measure_all,
    table,
)
from training.command.errors import UserError

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU"))]  # fmt: skip


def by_component(step):
    return {name: flops for name, flops in count(step).by_component.items() if flops}


@pytest.mark.parametrize(
    ("step", "flops"),
    [
        (lambda: torch.ones(3, 4) @ torch.ones(4, 5), 2 * 3 * 4 * 5),
        (lambda: torch.ones(2, 3, 4) @ torch.ones(2, 4, 5), 2 * 2 * 3 * 4 * 5),
        (lambda: torch.ones(3, 4) @ torch.ones(4), 2 * 3 * 4),
        (lambda: torch.einsum("bik,bjk->bij", torch.ones(2, 3, 4), torch.ones(2, 5, 4)), 240),
        (lambda: nn.functional.linear(torch.ones(7, 3), torch.ones(5, 3), torch.ones(5)), 245),
        (
            lambda: nn.functional.conv1d(
                torch.ones(1, 4, 9), torch.ones(6, 2, 3), torch.ones(6), groups=2
            ),
            (2 * 2 * 3 + 1) * 6 * 7,
        ),
        (
            lambda: nn.functional.conv2d(
                torch.ones(2, 4, 9, 1), torch.ones(6, 4, 3, 1), stride=2, padding=(1, 0)
            ),
            2 * 4 * 3 * 2 * 6 * 5,
        ),
        (
            lambda: nn.functional.conv_transpose1d(
                torch.ones(1, 4, 9), torch.ones(4, 6, 3), torch.ones(6)
            ),
            2 * 6 * 3 * 4 * 9 + 6 * 11,
        ),
        (lambda: nn.functional.glu(torch.ones(3, 4)), 2 * 6),
        (lambda: torch.ones(3, 4) + torch.ones(4), 12),
        (lambda: torch.ones(3, 4).exp_(), 12),
        (lambda: torch.ones(3, 4).mul(2).tanh().relu(), 36),
        (lambda: torch.where(torch.ones(3) > 0, 1.0, 0.0), 6),
        (lambda: torch.ones(3, 4).sum(0), 12),
        (lambda: torch.ones(3, 4).mean(0), 12 + 4),
        (lambda: nn.functional.avg_pool2d(torch.ones(1, 4, 5), 3), (9 + 1) * 1),
        (lambda: torch.ones(3, 4).topk(2), 12),
        (lambda: torch.ones(3, 4).cummax(0), 12),
        (lambda: torch.ones(3, 4).logcumsumexp(1), 3 * 12),
        (lambda: torch.ones(3, 4).var(1), 4 * 12 + 3),
        (lambda: nn.functional.max_pool2d(torch.ones(1, 4, 6), 2), 4 * 6),
        (lambda: torch.linalg.inv(torch.eye(3)), 2 * 27),
        (lambda: torch.linalg.solve(torch.eye(3), torch.ones(3, 2)), 2 / 3 * 27 + 2 * 9 * 2),
        (lambda: torch.fft.rfft(torch.ones(5, 8)), 5 * 8 * 3 * 2.5),
        (lambda: torch.ones(3, 4).index_add(0, torch.tensor([2]), torch.ones(1, 4)), 4),
        (lambda: nn.functional.log_softmax(torch.ones(3, 4), -1), 5 * 12),
        (lambda: torch.ones(3, 4).softmax(-1), 5 * 12),
        (lambda: nn.functional.normalize(torch.ones(3, 4), dim=-1), (2 * 12 + 3) + 3 + 12),
        (lambda: torch.ones(3, 4).mT.reshape(2, 6)[:, :2].clone().to(torch.float64), 0),
        (lambda: torch.cat([torch.ones(3), torch.zeros(2)])[torch.tensor([1, 0])], 0),
    ],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_operators_cost_what_the_table_says(step, flops, mode):
    with mode(), OpCounter() as counter:
        step()
    assert counter.total == flops == sum(counter.by_operator.values())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_fused_attention_costs_its_two_products_and_its_softmax(mode):
    """Beside scaling, which only the unfused path does apart from the products."""
    q, k, v = torch.ones(2, 3, 40, 8), torch.ones(2, 3, 50, 8), torch.ones(2, 3, 50, 5)
    with mode(), OpCounter() as counter:
        nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    assert counter.total - counter.by_operator["mul"] == 2 * 3 * 40 * 50 * (2 * 8 + 5 + 2 * 5)


LAYERS = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(4),
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "Upsample": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "Mish": nn.Mish,
    "Dropout": lambda: nn.Dropout(0.5),
    "GRU": lambda: nn.Sequential(nn.Flatten(2), nn.GRU(36, 3)),
    "TransformerEncoderLayer": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(36, 2, 8, batch_first=True)
    ),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_others_are_counted(name, train):
    """By PyTorch's decompositions, where the table has no row for what they run."""
    layer = LAYERS[name]().train(train)
    assert count(lambda: layer(torch.ones(2, 4, 6, 6))).total >= 2 * 4 * 6 * 6 * (
        train or name != "Dropout"
    )


def test_a_recurrent_layer_costs_as_much_as_its_cells():
    layer, cell = nn.GRU(5, 3), nn.GRUCell(5, 3)
    steps, state = torch.ones(4, 2, 5), torch.zeros(2, 3)
    by_cells = sum(count(lambda x=x: cell(x, state)).total for x in steps)
    assert count(lambda: layer(steps)).total == by_cells


def test_layers_run_whole_again_after_counting():
    """Not before: an operator that is taken apart counts inside."""
    layer = LAYERS["GRU"]().eval()

    def step():
        nn.functional.mish(torch.ones(3))
        layer(torch.ones(2, 4, 6, 6))

    assert "addmm" in count(step).by_operator
    flags = torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError), OpCounter():
        raise RuntimeError
    assert flags == (torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled())


def test_an_operator_without_a_cost_is_one_sentence(monkeypatch):
    def step():
        return torch.linalg.qr(torch.ones(3, 3))

    with pytest.raises(
        UncountedError, match=r"linalg_qr.* not known; define .*'linalg_qr'\]"
    ) as told:
        count(step)
    assert isinstance(told.value, UserError)
    monkeypatch.setitem(COSTS, "linalg_qr", lambda arguments, result: 7)
    assert count(step).total == 7


def test_work_belongs_to_the_innermost_component():
    def step():
        x = torch.ones(4) + 1
        with attention.component("controller"):
            x = x * 2
            with attention.component("score"):
                x = x * torch.ones(2, 1)
            x.exp()

    assert by_component(step) == {OTHER: 4, "controller": 4 + 8, "score": 8}


TOKENS = [(96, 96), (1536, 1536), (40, 300)]


def tokens(queries, keys, dim, device):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, dim, generator=generator).to(device) for n in (queries, keys))
    return nn.functional.normalize(x, dim=-1), nn.functional.normalize(y, dim=-1)


def agrees(counted, formula):
    expected = {"projection": formula.projection, "exponentials": formula.exponentials}
    expected["score"] = formula.score
    assert counted == {name: flops for name, flops in expected.items() if flops}
    assert sum(counted.values()) == formula.total


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("queries", "keys"), TOKENS)
@pytest.mark.parametrize("num_features", [8, 256])
@pytest.mark.parametrize("name", ["positive", "hyperbolic", "trig"])
def test_feature_maps_cost_their_formula(name, num_features, queries, keys, device):
    dim = 8
    x, y = tokens(queries, keys, dim, device)
    fm = attention.feature_map(name, dim, num_features).to(device)
    block = block_rows(fm.output_dim, x)
    formula = flop_formulas.feature_map_scores(name, dim, num_features, queries, keys, block)
    agrees(by_component(lambda: fm.token_scores(x, y)), formula)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("queries", "keys"), TOKENS)
@pytest.mark.parametrize("shared_projections", [True, False])
@pytest.mark.parametrize("base", [("hyperbolic", "trig"), ("positive", "trig")])
def test_the_angular_hybrid_costs_its_formula(base, shared_projections, queries, keys, device):
    dim, m, n = 8, 8, 5
    x, y = tokens(queries, keys, dim, device)
    options = {"shared_projections": shared_projections, "base": base}
    fm = attention.feature_map("angular_hybrid", dim, m, num_lambda_features=n, **options)
    fm = fm.to(device)
    formula = flop_formulas.angular_hybrid_scores(dim, m, n, queries, keys, **options)
    agrees(by_component(lambda: fm.token_scores(x, y)), formula)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("queries", "keys"), TOKENS)
def test_exact_scores_cost_their_formula(queries, keys, device):
    dim = 8
    x, y = tokens(queries, keys, dim, device)
    formula = flop_formulas.exact_scores(dim, queries, keys, block_rows(keys, x))
    exact = attention.ExactSoftmax(dim)
    agrees(by_component(lambda: exact.token_scores(x, y)), formula)


class Small(nn.Module):
    """A policy of one layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def reset(self):
        pass

    def act(self, observation):
        with attention.component("controller"):
            return self.layer(torch.as_tensor(observation["proprio"])).numpy()


def test_measure_gives_flops_latency_and_size():
    cost = measure(Small(), {"proprio": torch.ones(3).numpy()}, calls=5, warm_up=1)
    assert cost.flops == {name: 14 if name == "controller" else 0 for name in (*COMPONENTS, OTHER)}
    assert cost.total == 14
    assert cost.parameters == 8
    assert 0 < cost.latency_ms < 1000
    header, row = table({"small": cost}).splitlines()
    assert dict(zip(header.split(), row.split(), strict=True))["total"] == "14"


@pytest.mark.parametrize("feature_map", ["angular_hybrid", "positive", "softmax"])
def test_a_vision_policy_is_measured_whole_and_in_parts(feature_map):
    policy = vision_cases.make(feature_map=feature_map)
    cost = measure_all({"it": (policy, vision_cases.observation())}, calls=3, warm_up=1)["it"]
    assert cost.flops["encoder"] > 0
    assert cost.attention == cost.total - sum(
        cost.flops[name] for name in ("tokens", "encoder", "controller", OTHER)
    )
    assert cost.encode_flops == cost.total - cost.flops["controller"]
    assert min(cost.attention_ms, cost.encode_ms, cost.latency_ms) > 0
    header, row = table({"it": cost}).splitlines()
    shown = dict(zip(header.split(), row.split(), strict=True))
    for name in ("encoder", "score", "attention", "total"):
        number = getattr(cost, name, cost.flops.get(name))
        assert shown[name] == f"{number:,}"


def test_what_is_timed_as_attention_is_what_is_counted_as_attention():
    policy = vision_cases.make(depth=3)
    observation = vision_cases.observation()
    parts = step_cost._inner_parts(policy, observation, "cpu")
    whole = measure(policy, observation, calls=1, warm_up=0)
    assert count(parts["attention"]).total == whole.attention > 0
    assert not any(module._forward_pre_hooks for module in policy.modules())


def test_policies_are_timed_in_turn():
    calls = []

    class Noting(Small):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def act(self, observation):
            calls.append(self.name)
            return super().act(observation)

    seen = {"proprio": torch.ones(3).numpy()}
    subjects = {name: (Noting(name), seen) for name in "ab"}
    costs = measure_all(subjects, calls=3, warm_up=1)
    assert "".join(calls).find("ababab") >= 0
    assert list(costs) == ["a", "b"]
    header, *rows = comparison(costs).splitlines()
    assert "encoding" not in header
    assert [row.split()[:3] for row in rows] == [["a", "0", "-"], ["b", "0", "-"]]


def test_decisions_are_timed_over_an_episode_with_a_full_memory():
    class Remembering(Small):
        def __init__(self):
            super().__init__()
            self.seen, self.carried = [], 0

        def reset(self):
            self.seen, self.carried = [], 0

        def act(self, observation):
            self.seen.append(int(observation["proprio"][0]))
            self.carried += 1
            return super().act(observation)

    class Forgetful(Remembering):
        carried = property(lambda self: 0, lambda self, numbers: None)

    walk = [{"proprio": np.full(3, step, np.float32)} for step in range(15)]
    subjects = {"it": (Remembering(), walk), "not": (Forgetful(), walk)}
    times_ms = decisions_ms(subjects, calls=20)
    assert {name: len(found) for name, found in times_ms.items()} == {"it": 20, "not": 20}
    assert min(min(found) for found in times_ms.values()) > 0
    whole = [step % 15 for step in range(20)]
    assert subjects["it"][0].seen == [0, *whole, *whole]
    assert subjects["not"][0].seen == [0, *range(10), *whole]
