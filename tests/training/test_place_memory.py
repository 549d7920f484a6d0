"""Training and playing the policy that remembers places: resumed bit for bit, known to commands."""

import pytest

from tests.helpers import train
from tests.training.video import picture_of
from training import bc, es, flops, rollout
from training.algorithms import bc_config
from training.io import checkpoint
from training.io.config import UserError

ENV = {"cameras": ["front"], "front_camera": {"pitch_deg": 45}, "episode_s": 0.4}
JOB = {"env_id": "SteppingStones-v0", "env": ENV, "workers": 1}
BC = {"expert_episodes": 3, "episodes": 2, "updates": 6, "batch_size": 12, "sequence": 4}
ES = {"popsize": 4, "terrains": 1, "center_terrains": 1, "searcher": {"name": "pgpe"}}


def clone_of(folder, policy):
    return train(bc, {"iterations": 1, **JOB, **BC, "policy": policy}, folder / "clone")


def test_a_film_of_a_clone_has_its_memory_below(tmp_path):
    clone = clone_of(tmp_path, {"name": "place_memory"})
    still = tmp_path / "still.png"
    assert rollout.main([str(clone), "--video", str(still), "--still-s", "0.2"]) == 0
    assert picture_of(still).shape == (480 + 144, 640, 3)


def test_evolution_strategies_go_on_from_a_clone_and_resume_bit_for_bit(tmp_path):
    policy = {"name": "place_memory", "hidden": []}
    clone = clone_of(tmp_path, policy)
    job = {**ES, "policy": policy, "init_from": str(clone)}
    whole = train(es, {"iterations": 2, **JOB, **job}, tmp_path / "whole")
    part = train(es, {"iterations": 1, **JOB, **job}, tmp_path / "part")
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
