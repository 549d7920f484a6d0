"""Errors of the Gaussian kernel far from zero, and that the command prints them."""

from experiments.feature_maps import far_from_zero


def test_only_trigonometric_features_stand_a_mean_far_from_zero(capsys):
    assert far_from_zero.main(["--quick"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    errors = {" ".join(row[:-6]): [float(number) for number in row[-6:]] for row in rows}
    assert set(errors) == {f"{m}, {w}" for m in far_from_zero.MAPS for w in ("as it is", "centred")}
    for name in ("oprf", "gerf", "positive"):
        near, *_, far = errors[f"{name}, as it is"]
        assert near < 0.25
        assert far > 0.95
        assert max(errors[f"{name}, centred"]) < 0.25
    assert max(errors["trig, as it is"]) < 0.1
