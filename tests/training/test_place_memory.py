"""Training and playing the policy that remembers places: resumed bit for bit, known to commands."""

import pytest
import yaml

from tests.training.video import picture_of
from training import bc, es, flops, rollout
from training.algorithms import bc_config
from training.io import checkpoint
from training.io.config import UserError

ENV = {"cameras": ["front"], "front_camera": {"pitch_deg": 45}, "episode_s": 0.4}
JOB = {"env_id": "SteppingStones-v0", "env": ENV, "workers": 1}
BC = {"expert_episodes": 3, "episodes": 2, "updates": 6, "batch_size": 12, "sequence": 4}
ES = {"popsize": 4, "terrains": 1, "center_terrains": 1, "searcher": {"name": "pgpe"}}
POLICIES = {
    "linear": {},
    "none": {"memory": "none"},
    "gru": {"memory": "gru", "hidden": [8]},
    "learned keys": {"keys": "learned", "key_stride": 6},
    "learned choice": {"write_tokens": 8},
    "random choice": {"write_tokens": 8, "write_choice": "random"},
}


def train(trainer, tmp_path, name, iterations, **job):
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"iterations": iterations, **JOB, **job}))
    assert trainer.main(["--config", str(path), "--out", str(tmp_path / name)]) == 0
    return tmp_path / name


@pytest.mark.parametrize("arm", POLICIES)
def test_a_clone_resumes_bit_for_bit(arm, tmp_path):
    policy = {"name": "place_memory", **POLICIES[arm]}
    whole = train(bc, tmp_path, "whole", 2, **BC, policy=policy)
    part = train(bc, tmp_path, "part", 1, **BC, policy=policy)
    assert bc.main(["--resume", str(part), "--set", "iterations=2"]) == 0
    assert checkpoint.resolve(whole).read_bytes() == checkpoint.resolve(part).read_bytes()


def test_a_film_of_a_clone_has_its_memory_below(tmp_path):
    clone = train(bc, tmp_path, "clone", 1, **BC, policy={"name": "place_memory"})
    still = tmp_path / "still.png"
    assert rollout.main([str(clone), "--video", str(still), "--still-s", "0.2"]) == 0
    assert picture_of(still).shape == (480 + 144, 640, 3)


def test_evolution_strategies_go_on_from_a_clone_and_resume_bit_for_bit(tmp_path):
    policy = {"name": "place_memory", "hidden": []}
    clone = train(bc, tmp_path, "clone", 1, **BC, policy=policy)
    job = {**ES, "policy": policy, "init_from": str(clone)}
    whole = train(es, tmp_path, "whole", 2, **job)
    part = train(es, tmp_path, "part", 1, **job)
    assert es.main(["--resume", str(part), "--set", "iterations=2"]) == 0
    assert checkpoint.resolve(whole).read_bytes() == checkpoint.resolve(part).read_bytes()


def test_what_it_costs_is_counted_part_by_part(capsys):
    assert flops.main(["configs/stepping_stones_memory.yaml", "--calls", "2"]) == 0
    title, costs = capsys.readouterr().out.splitlines()
    found = dict(zip(title.split()[1:], costs.split()[-len(title.split()) + 1 :], strict=True))
    for part in ("tokenising", "projection", "exponentials", "score", "controller"):
        assert int(found[part].replace(",", "")) > 1000, part
    assert int(found["state"]) == 106 + 3 + 2  # sums, their units, odometry


def test_a_wrong_setting_is_one_sentence():
    preset = "configs/stepping_stones_memory.yaml"
    with pytest.raises(UserError, match=r"policy\.memory = 'lstm', but input should be 'none', "):
        bc_config.load_config(preset, ["policy.memory=lstm"])
    with pytest.raises(UserError, match="fit_pitch must be false with memory linear"):
        bc_config.load_config(preset, ["policy.fit_pitch=true"])
