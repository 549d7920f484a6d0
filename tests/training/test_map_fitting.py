"""Feature maps that depend on data are fitted once in training, to the policy's own tokens."""

import copy
import shutil
from functools import partial

import numpy as np
import pytest
import torch
import yaml
from threadpoolctl import threadpool_limits

import attention
import policies
from attention.hybrid.clusters import k_means
from tests.training import test_bc, test_es, test_implicit_bc
from training import bc, es
from training.collect.environments import make_env
from training.io import checkpoint

recorded = test_implicit_bc.recorded
CLUSTERED = {
    "controller": "mlp", "hidden": [8], "patch": [8, 8], "feature_map": "clustered_hybrid",
    "num_clusters": 3,
}  # fmt: skip
ES = {**test_es.SMALL, "iterations": 3, "fit_after": 2, "policy": CLUSTERED, "checkpoints_kept": 9}
BC = {**test_bc.SMALL, "iterations": 3, "updates": 4, "fit_after": 8, "policy": CLUSTERED,
      "checkpoints_kept": 9}  # fmt: skip
IMPLICIT = {**test_implicit_bc.SMALL, "iterations": 3, "updates": 2, "fit_after": 4,
            "evaluate_every": 0, "checkpoints_kept": 9,
            "policy": {**test_implicit_bc.POLICY, "depth": 2, "feature_map": "clustered_hybrid",
                       "num_clusters": 3}}  # fmt: skip
JOBS = {"es": (es.main, ES), "bc": (bc.main, BC), "implicit": (bc.main, IMPLICIT)}


@pytest.fixture
def train(tmp_path, recorded):
    """Trains a job, changed, in a directory of a name, which is returned."""
    return partial(trained, tmp_path, recorded)


def trained(folder, recorded, kind, name, *arguments, **changes):
    main, job = JOBS[kind]
    if kind == "implicit":
        job = {**job, "demonstrations": str(recorded)}
    path, out = folder / f"{name}.yaml", folder / name
    path.write_text(yaml.safe_dump({**job, **changes}))
    where = ["--resume", str(out)] if out.exists() else ["--config", str(path), "--out", str(out)]
    assert main([*where, *(["--set", *arguments] if arguments else [])]) == 0
    return out


@pytest.fixture(scope="module")
def wholes(tmp_path_factory, recorded):
    """An undisturbed run of each kind."""
    folder = tmp_path_factory.mktemp("wholes")
    return {kind: trained(folder, recorded, kind, kind) for kind in JOBS}


def maps(policy):
    return [part for part in policy.modules() if isinstance(part, attention.FeatureMap)]


def centres(run):
    """The query centres of the maps in each checkpoint of a run, by iteration."""
    found = {}
    for path in checkpoint.in_run(run):
        tensors = checkpoint.load(path).policy
        names = sorted(name for name in tensors if name.endswith("query_centers"))
        found[int(path.stem)] = torch.stack([tensors[name] for name in names])
    return found


@pytest.mark.parametrize("kind", JOBS)
def test_maps_are_fitted_once(kind, wholes):
    """A run resumed before or after it is the same: test_uptraining.py and the contract."""
    found = centres(wholes[kind])
    assert not found[1].any()
    assert found[2].abs().amax(-1).gt(0).all()  # every centre of every head and block
    assert found[3].equal(found[2])  # frozen


@pytest.mark.parametrize("kind", JOBS)
def test_a_fitted_policy_acts_the_same_once_it_is_loaded(kind, wholes):
    run = wholes[kind]
    saved = checkpoint.load(checkpoint.resolve(run))
    loaded, config = checkpoint.load_policy(run)
    with make_env(config["env_id"], config["env"]) as env:
        observation, _ = env.reset(seed=1)
        fresh = policies.build(loaded.config, env.observation_space, env.action_space)
    changed = fresh.act(observation)
    fresh.load_state_dict(saved.policy)
    for policy in (fresh, copy.deepcopy(fresh)):
        policy.reset()
        loaded.reset()
        np.testing.assert_array_equal(policy.act(observation), loaded.act(observation))
    assert (changed != loaded.act(observation)).any()


def own_tokens(run, count=8):
    """A run's policy, and its queries and keys of some observations."""
    policy, config = checkpoint.load_policy(run)
    with make_env(config["env_id"], config["env"]) as env:
        seen = [env.reset(seed=seed)[0] for seed in range(count)]
    return policy, *policy.selection.project(policy.attended_tokens(stacked(seen)))


def stacked(seen):
    """Observations as a batch, by the names of their parts."""
    return {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in seen[0]}


def test_oprf_is_fitted_to_its_own_tokens(train):
    """Random directions are all that is known before."""
    run = train("bc", "run", policy={**CLUSTERED, "feature_map": "oprf"})
    saved = [checkpoint.load(path).policy for path in checkpoint.in_run(run)]
    found = [tensors["selection.features.A"] for tensors in saved]
    assert found[0].equal(found[1])
    assert not found[1].equal(found[2])
    assert found[2].equal(found[3])
    _, q, k = own_tokens(run)
    best = attention.feature_map("oprf", 4, 8).fit(q, k).A
    assert (found[3] - best).abs() < (found[0] - best).abs()


def test_a_run_of_an_earlier_version_goes_on_as_it_began(train, tmp_path):
    """Its configuration and its checkpoints lack what is new."""
    whole, old = train("bc", "whole", "fit_after=null"), tmp_path / "old"
    shutil.copytree(whole, old)
    text = (whole / "config.yaml").read_text()
    (old / "config.yaml").write_text(text.replace("fit_after: null\n", ""))
    rows = (whole / "metrics.csv").read_text().splitlines(keepends=True)
    (old / "metrics.csv").write_text("".join(rows[:3]))
    for path in checkpoint.in_run(old)[3:]:
        path.unlink()
    for path in checkpoint.in_run(old):
        saved = checkpoint.load(path)
        del saved.config["fit_after"], saved.state["progress"]["fitted"]
        checkpoint.save(path, saved.policy, saved.search, saved.config, saved.state)
    train("bc", "old")
    assert not any(found.any() for found in centres(old).values())
    assert yaml.safe_load((old / "config.yaml").read_text())["fit_after"] is None
    ours, theirs = (checkpoint.in_run(run)[-1] for run in (whole, old))
    assert ours.read_bytes() == theirs.read_bytes()


def test_evolution_strategies_keep_what_cloning_fitted(train, wholes):
    clone = wholes["bc"]
    fine = train("es", "fine", f"init_from={clone}")
    found = centres(fine)
    assert found[0].equal(centres(clone)[3])
    assert found[3].equal(found[0])
    bare = train("bc", "bare", "iterations=1", "fit_after=null")
    assert centres(train("es", "other", f"init_from={bare}"))[2].any()


def test_a_run_too_short_to_fit_says_so(train, capsys):
    train("bc", "run", "iterations=1")
    assert (
        "fit_after = 8: the clusters of clustered_hybrid are found after 8 updates, and this "
        "run makes 4;" in capsys.readouterr().out
    )
    train("bc", "other", "iterations=1", "policy.feature_map=oprf")
    assert "fit_after" not in capsys.readouterr().out


def test_k_means_does_not_depend_on_the_number_of_threads():
    points = torch.randn(9000, 4, generator=torch.Generator().manual_seed(0)).double()
    found = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            found.append(k_means(points, 5, seed=0))
    assert found[0].equal(found[1])
