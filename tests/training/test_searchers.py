"""The searchers reach a known optimum, mirror their pairs, and resume exactly."""

from pathlib import Path

import pytest
import torch

import configs
from training import es
from training.algorithms import searchers
from training.algorithms.es_config import ES, ARSConfig, AutoConfig, CMAESConfig, PGPEConfig
from training.io import checkpoint

DIM = 12
SCALES = torch.logspace(0, 2, DIM, dtype=torch.float64)


def returns(x):
    """An ill-conditioned quadratic: maximum 0 at x = 1, condition number 100."""
    return -(SCALES * (x - 1).square()).sum(-1)


def run(searcher, iterations, start=0, f=returns):
    for i in range(start, start + iterations):
        population = searcher.ask(i)
        searcher.tell(population, f(population))
    return searcher


CONFIGS = [
    CMAESConfig(),
    CMAESConfig(separable=True),
    PGPEConfig(),
    PGPEConfig(optimizer="adam"),
    ARSConfig(),
    ARSConfig(orthogonal=True),
]
NAMES = ["cmaes", "cmaes-sep", "pgpe", "pgpe-adam", "ars", "ars-orthogonal"]
ITERATIONS = [250, 250, 400, 400, 400, 400]
LEAST = [-1e-8, -1e-8, -1, -0.1, -1, -1]


@pytest.fixture(params=CONFIGS, ids=NAMES)
def config(request):
    return request.param


@pytest.mark.parametrize(
    ("config", "iterations", "least"),
    list(zip(CONFIGS, ITERATIONS, LEAST, strict=True)),
    ids=NAMES,
)
def test_reaches_the_optimum(config, iterations, least):
    """Seeds are fixed; from -1125 at the start, each bound leaves a factor of 3 or more."""
    searcher = run(searchers.build(config, torch.zeros(DIM), 16), iterations)
    assert least < returns(searcher.center) <= 0


@pytest.mark.parametrize(
    ("config", "sigma", "reached", "first"),
    [
        (CMAESConfig(), 0.2404962181193054, -8.709546174512404, -0.052364406666991055),
        (
            CMAESConfig(separable=True),
            *(0.1908677269119778, -3.903074355161652, -0.11142041906661976),
        ),
        (PGPEConfig(), 0.09189130087813174, -0.7583297505249671, 0.9540414546673004),
        (
            PGPEConfig(optimizer="adam"),
            *(0.09423677596516805, -18.677123138746218, -0.016663250379672343),
        ),
    ],
    ids=NAMES[:4],
)
def test_thirty_updates_equal_those_of_evotorch(config, sigma, reached, first):
    """Numbers of EvoTorch 0.6.1 with the same random numbers, which ran searches before."""
    searcher = run(searchers.build(config, torch.zeros(DIM), 12), 30)
    found = searcher.sigma, float(returns(searcher.center)), float(searcher.center[0])
    assert found == pytest.approx((sigma, reached, first), rel=1e-6)  # between builds


def test_cma_adapts_to_a_rotated_valley():
    """Off-diagonal covariance: a rotated ellipsoid of condition 10^4 is solved as well."""
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64))[0]
    scales = torch.logspace(0, 4, 8, dtype=torch.float64)

    def f(x):
        return -(scales * ((x - 1) @ rotation).square()).sum(-1)

    searcher = run(searchers.build(CMAESConfig(), torch.zeros(8), 10), 450, f=f)
    assert f(searcher.center) > -1e-6


def test_asking_is_a_pure_function_of_state_and_seed(config):
    searcher = run(searchers.build(config, torch.zeros(DIM), 8), 3)
    before = torch.get_rng_state()
    first = searcher.ask(5)
    torch.manual_seed(99)
    assert torch.equal(searcher.ask(5), first)
    assert not torch.equal(searcher.ask(6), first)
    torch.set_rng_state(before)
    assert first.dtype == torch.float64
    assert first.shape == (8, DIM)


def test_the_global_generator_is_left_alone(config):
    before = torch.get_rng_state()
    run(searchers.build(config, torch.zeros(DIM), 8), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_pairs_mirror_each_other(config):
    searcher = run(searchers.build(config, torch.zeros(DIM), 8), 2)
    population = searcher.ask(0)
    mirrored = (population[0::2] + population[1::2]) / 2
    assert torch.allclose(mirrored, searcher.center.expand(4, -1)) == searcher.antithetic


@pytest.mark.parametrize("popsize", [4, pytest.param(16, marks=pytest.mark.records)])
def test_every_point_of_a_run_resumes_bit_for_bit_from_its_checkpoint(config, popsize, tmp_path):
    """Tensors go on with the values and the layout that they had: products round by layout."""
    whole = searchers.build(config, torch.zeros(DIM), popsize)
    for iteration in range(14):
        tensors, numbers = whole.state()
        checkpoint.save(tmp_path / f"{iteration}.st", {}, tensors, {}, {"search": numbers})
        run(whole, 1, start=iteration)
    tensors, numbers = whole.state()
    for iteration in range(14):
        saved = checkpoint.load(tmp_path / f"{iteration}.st")
        resumed = searchers.build(config, torch.ones(DIM), popsize)
        resumed.load_state(saved.search, saved.state["search"])
        run(resumed, 14 - iteration, start=iteration)
        there, counted = resumed.state()
        assert counted == numbers
        assert there.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(there[name], tensor), (iteration, name)
            assert there[name].stride() == tensor.stride(), (iteration, name)
            assert there[name].dtype == tensor.dtype, (iteration, name)


def flat(x):
    return torch.ones(len(x), dtype=torch.float64)


def test_equal_returns_leave_the_searcher_as_it_is(config):
    searcher = run(searchers.build(config, torch.zeros(DIM), 8), 3)
    before = {name: tensor.clone() for name, tensor in searcher.state()[0].items()}
    numbers = searcher.state()[1]
    run(searcher, 3, start=3, f=flat)
    assert searcher.state()[1] == numbers
    for name, tensor in searcher.state()[0].items():
        assert torch.equal(tensor, before[name]), name


def test_groups_of_parameters_have_their_own_returns(config):
    """Only the group whose returns differ moves, and a loaded state continues alike."""
    groups = torch.arange(DIM) % 2
    start = torch.zeros(DIM)
    searcher = searchers.build(config, start, 8, groups)
    for iteration in range(3):
        population = searcher.ask(iteration)
        own = population[:, groups == 1].sum(1)
        searcher.tell(population, torch.stack((torch.ones(8), own, -own), 1))
    assert torch.equal(searcher.center[groups == 0], start[groups == 0].double())
    assert searcher.center[groups == 1].sum() > 0.1
    again = searchers.build(config, torch.ones(DIM), 8, groups)
    again.load_state(*searcher.state())
    assert torch.equal(again.ask(7), searcher.ask(7))
    assert again.sigma == searcher.sigma


def test_ranks_share_ties():
    ranks = searchers.centered_ranks(torch.tensor([3.0, 1.0, 3.0, 7.0]))
    assert ranks.tolist() == pytest.approx([0, -0.5, 0, 0.5])


def test_ars_step_is_the_published_formula():
    """Two of three pairs kept, by their better return; step over the kept returns' deviation."""
    searcher = searchers.build(
        ARSConfig(sigma=0.1, learning_rate=0.5, top_fraction=0.67), torch.zeros(2), 6
    )
    population = searcher.ask(0)
    plus, minus = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([0.0, 3.0, 4.0])
    searcher.tell(population, torch.stack([plus, minus], 1).flatten())
    directions = population[0::2] / 0.1
    kept = torch.tensor([5.0, 3.0, 2.0, 4.0])
    step = (5 - 3) * directions[1] + (2 - 4) * directions[2]
    expected = 0.5 * step / 2 / kept.std(correction=0)
    assert torch.allclose(searcher.center, expected.double())


def test_orthogonal_directions():
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = searchers.orthogonalised(rows)
    gram = made[:4] @ made[:4].T
    assert torch.allclose(gram, torch.diag(rows[:4].square().sum(1)), atol=1e-12)
    assert torch.allclose(made.norm(dim=1), rows.norm(dim=1))


def test_cma_survives_an_indefinite_covariance():
    searcher = run(searchers.build(CMAESConfig(), torch.zeros(DIM), 8), 2)
    tensors, numbers = searcher.state()
    searcher.load_state(tensors | {"C": -torch.eye(DIM, dtype=torch.float64)}, numbers)
    run(searcher, 3)
    assert torch.isfinite(searcher.center).all()


def test_cma_refuses_a_covariance_that_is_too_large():
    with pytest.raises(ValueError, match=r"has 1001 parameters, and .* cmaes takes at most 1000"):
        searchers.build(CMAESConfig(), torch.zeros(1001), 8)


@pytest.mark.parametrize(("parameters", "shape"), [(1000, (1000, 1000)), (1001, (1001,))])
def test_the_default_chooses_the_covariance_by_the_number_of_parameters(parameters, shape):
    center = torch.zeros(parameters)
    found = searchers.build(AutoConfig(sigma=0.2), center, 6)
    given = searchers.build(CMAESConfig(sigma=0.2, separable=len(shape) == 1), center, 6)
    assert found.state()[0]["C"].shape == shape
    assert torch.equal(found.ask(3), given.ask(3))


def test_presets_keep_their_searcher_and_other_environments_get_the_default(tmp_path):
    preset = Path(configs.__file__).with_name("stepping_stones.yaml")
    elsewhere = ["env_id=CartPole-v1"]
    assert ES.load(preset).searcher == CMAESConfig(sigma=0.5)
    assert ES.load(preset, ["popsize=6"]).searcher == CMAESConfig(sigma=0.5)
    assert ES.load(preset, elsewhere).searcher == AutoConfig()
    given = ES.load(preset, [*elsewhere, "searcher.separable=true"]).searcher
    assert given == CMAESConfig(sigma=0.5, separable=True)
    own = tmp_path / "own.yaml"
    own.write_text("env_id: CartPole-v1\n")
    assert ES.load(own).searcher == AutoConfig()
    own.write_text("env_id: CartPole-v1\nsearcher: {name: cmaes, sigma: 0.1}\n")
    assert ES.load(own, ["env_id=Pendulum-v1"]).searcher == CMAESConfig(sigma=0.1)


def test_many_parameters_train_by_default_and_the_choice_is_printed(tmp_path, capsys):
    words = ["env_id=CartPole-v1", "iterations=1", "popsize=3", "terrains=1", "workers=1"]
    assert es.main(["--out", str(tmp_path / "run"), "--set", *words, "policy.hidden=[50,50]"]) == 0
    said = (
        "2902 parameters, cmaes with a diagonal covariance, sigma 0.5 (searcher.name = auto: full"
    )
    assert said in capsys.readouterr().out
