"""CarRacing's benchmark in its quick form: what looking finely costs, and what fits into a time."""

import json

import pytest

pytest.importorskip("Box2D", reason="needs the extra box2d")

from experiments.robots import car_racing
from training.compare.config import load_config, study_file


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("car_racing")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(car_racing, "STRIDES", (4, 1))  # 529 tokens and 8100
        assert car_racing.main(["--quick", "--minutes", "30", "--out", str(out)]) == 0
    assert (out / "car_racing.png").stat().st_size > 1000
    return json.loads((out / "car_racing.json").read_text())["results"]


def test_exact_scores_cost_the_square_of_the_tokens_and_linear_ones_the_tokens(results):
    flops = {(row["attention"], row["tokens"]): row["scores_flops"] for row in results["look"]}
    for name in car_racing.MAPS:
        growth = flops[name, 8100] / flops[name, 529]
        power = 2 if name == "exact softmax" else 1
        assert growth == pytest.approx((8100 / 529) ** power, rel=0.02)
    assert all(row["scores_ms"] > 0 for row in results["look"])
    assert all(row["step_flops"] > row["scores_flops"] for row in results["look"])


def test_an_arm_trains_as_long_as_the_time_lasts(results):
    study = load_config(study_file("car_racing"))
    assert [row["arm"] for row in results["arms"]] == [arm.name for arm in study.arms]
    for row in results["arms"]:
        assert 0.5 < row["iterations"] * row["iteration_s_at_most"] / 1800 <= 1
        assert row["iterations_of_the_study"] > 10
