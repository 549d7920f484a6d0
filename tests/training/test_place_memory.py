"""Training and playing the policy that remembers places: resumed bit for bit, known to commands."""

import pytest

from training import flops
from training.algorithms import bc_config
from training.io.config import UserError


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
