"""Which trainer takes which policy: the table of docs/reference/policies.md, a test a cell."""

import pytest
import yaml

from training import bc, demos, es, ppo
from training.io import checkpoint

DOT, PICTURE = "tests.training.dot_env:Dot-v0", "tests.training.picture_env:Picture-v0"
PARTS = "tests.training.custom_parts"
IAP = {"hidden": [8], "num_features": 4, "num_lambda_features": 2}
PERFORMER = {"name": "vision_performer"}
IMPLICIT = {
    **PERFORMER, "form": "implicit", "patch": [8, 8], "embed_dim": 8, "depth": 1, "heads": 2,
    "context_dim": 8, "hidden": [8], "negatives": 4, "samples": 8, "num_features": 4,
    "num_lambda_features": 2,
}  # fmt: skip
POLICIES = {
    "IAP dense": {**IAP, "controller": "mlp"},
    "IAP lstm": {**IAP, "controller": "lstm"},
    "IAP gru": {**IAP, "controller": "gru"},
    "IAP last action": {**IAP, "controller": "mlp", "last_action": True},
    "IAP vote": {**IAP, "controller": "vote"},
    "place memory": {"name": "place_memory", "hidden": [8]},
    "place memory gru": {"name": "place_memory", "memory": "gru", "hidden": [8]},
    "Vision-Performer pooled": {**PERFORMER, "form": "pooled"},
    "Vision-Performer pooled lstm": {**PERFORMER, "form": "pooled", "controller": "lstm"},
    "Vision-Performer implicit": IMPLICIT,
    "CNN": {"name": "cnn"},
    "custom policy": {"name": f"{PARTS}:Cloned", "gain": 0.5},
    "custom controller": {**IAP, "controller": f"{PARTS}:Line"},
    "custom recurrent controller": {**IAP, "controller": f"{PARTS}:Counting"},
}
JOBS = {
    es: {
        "popsize": 4, "terrains": 1, "center_terrains": 1, "fit_after": 1, "num_features": None,
        "searcher": {"name": "pgpe"},
    },
    bc: {
        "expert_episodes": 2, "episodes": 2, "updates": 2, "batch_size": 8, "fit_after": 1,
    },
    ppo: {
        "steps": 8, "episodes": 1, "center_episodes": 1, "n_epochs": 1, "batch_size": 8,
        "fit_after": 1,
    },
}  # fmt: skip
_FORM = "policy.form = 'implicit', but input should be 'pooled'"
_STEPS = "in training.ppo, which learns from single steps, got"
REFUSED = {
    (es, "Vision-Performer implicit"): _FORM,
    (ppo, "Vision-Performer implicit"): _FORM,
    (ppo, "IAP lstm"): f"{_STEPS} lstm",
    (ppo, "IAP gru"): f"{_STEPS} gru",
    (ppo, "Vision-Performer pooled lstm"): f"{_STEPS} lstm",
    (ppo, "custom recurrent controller"): f"{_STEPS} {PARTS}:Counting",
    (ppo, "place memory"): f"{_STEPS} memory linear",
    (ppo, "place memory gru"): f"{_STEPS} memory gru",
    (ppo, "custom policy"): f"the probabilities of decisions, got {PARTS}:Cloned",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demos")
    arguments = ["--env", PICTURE, "--episodes", "4", "--workers", "1", "--valid-share", "0.25"]
    assert demos.main([*arguments, "--out", str(directory)]) == 0
    return str(directory)


SELDOM = "IAP lstm", "IAP last action", "place memory gru", "Vision-Performer pooled lstm"
"""Cells that differ little from others: the second set has them."""


@pytest.mark.parametrize(
    "policy",
    [pytest.param(one, marks=pytest.mark.records) if one in SELDOM else one for one in POLICIES],
)
@pytest.mark.parametrize("trainer", JOBS, ids=lambda trainer: trainer.__name__.split(".")[1])
def test_a_trainer_takes_a_policy_or_says_why_not(trainer, policy, recorded, tmp_path, capsys):
    job = {"env_id": DOT, **JOBS[trainer], "policy": POLICIES[policy]}
    if policy == "IAP vote" or policy.startswith("place memory"):
        job |= {"env_id": "SteppingStones-v0", "env": {"episode_s": 0.3}}
    if policy == "Vision-Performer implicit" and trainer is bc:
        job = {  # it learns from recorded demonstrations
            "env_id": PICTURE, "demonstrations": recorded, "policy": POLICIES[policy],
            "updates": 2, "batch_size": 4, "val_frames": 4, "evaluate_every": 0, "threads": 1,
        }  # fmt: skip
    path, run = tmp_path / "job.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump({"iterations": 1, "workers": 1, **job}))
    status = trainer.main(["--config", str(path), "--out", str(run)])
    refused = REFUSED.get((trainer, policy))
    if refused is not None:
        assert status == 2
        assert refused in capsys.readouterr().err
        return
    assert status == 0
    checkpoint.load_policy(run)
