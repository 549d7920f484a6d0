"""Whether a sweeping policy looks, in its quick form."""

import json

import numpy as np

from experiments.robots import sweep_sight


def test_figures(tmp_path, capsys):
    words = [sweep_sight.SHIPPED[0], "--quick", "--out", str(tmp_path)]
    assert sweep_sight.main(words) == 0
    results = json.loads((tmp_path / "sweep_sight.json").read_text())["results"]
    assert list(results) == [sweep_sight.SHIPPED[0]]
    assert list(results[sweep_sight.SHIPPED[0]]) == list(sweep_sight.COLUMNS)
    assert all(0 <= share <= 1 for both in results.values() for c in both.values() for share in c)
    assert (tmp_path / "sweep_sight.png").stat().st_size > 1000
    assert "0.000 +- 0.000" in capsys.readouterr().out  # nothing is in a bowl after a second


def test_the_policy_gets_its_pose_and_the_one_picture():
    class Echo:
        def reset(self):
            self.begun = True

        def act(self, observation):
            return observation

    echo, rgb = Echo(), np.ones((2, 2, 3), np.uint8)
    policy = sweep_sight.OnePicture(echo, rgb)
    policy.reset()
    assert echo.begun
    seen = policy.act({"rgb": np.zeros((2, 2, 3), np.uint8), "pose": np.arange(3)})
    assert seen["rgb"] is rgb
    assert seen["pose"].tolist() == [0, 1, 2]


def test_a_policy_of_another_task_is_one_sentence(capsys):
    assert sweep_sight.main(["stepping_stones_angular_8x8"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "was trained in SteppingStones-v0, not in BimanualSweep-v0" in error
