"""Running normalisation: merged statistics are those of the whole stream."""

import numpy as np
import pytest
import torch

from policies import RunningNormaliser, RunningStatistics

DATA = np.random.default_rng(0).normal(3.0, [0.1, 1.0, 50.0], (1000, 3))


def test_updates_and_merges_are_the_whole_batch():
    whole = RunningStatistics.empty(3).update(DATA)
    assert whole.count == 1000
    np.testing.assert_allclose(whole.mean, DATA.mean(0), rtol=1e-12)
    np.testing.assert_allclose(whole.m2 / 1000, DATA.var(0), rtol=1e-12)
    parts = np.split(DATA, [1, 10, 400, 400])
    one_by_one = RunningStatistics.empty(3)
    for part in parts:
        one_by_one = one_by_one.update(part)
    merged = RunningStatistics.empty(3)
    for part in reversed(parts):
        merged = merged.merge(RunningStatistics.empty(3).update(part))
    for other in (one_by_one, merged):
        assert other.count == 1000
        np.testing.assert_allclose(other.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(other.m2, whole.m2, rtol=1e-10)


def test_a_large_mean_does_not_drown_a_small_spread():
    far = 1e8 + np.random.default_rng(0).normal(0, 1, (10_000, 1))
    statistics = RunningStatistics.empty(1)
    for part in np.split(far, 100):
        statistics = statistics.update(part)
    assert statistics.m2[0] / statistics.count == pytest.approx(far.var(), rel=1e-6)


def test_normalising():
    normaliser = RunningNormaliser(3)
    x = torch.tensor([[1.0, -20.0, 0.5]])
    torch.testing.assert_close(normaliser(x), torch.tensor([[1.0, -5.0, 0.5]]))
    normaliser.statistics = RunningStatistics.empty(3).update(DATA)
    y = normaliser(torch.from_numpy(DATA)).numpy()
    np.testing.assert_allclose(y.mean(0), 0, atol=0.01)
    np.testing.assert_allclose(y.std(0), 1, atol=0.01)
    assert normaliser(torch.full((1, 3), 1e9)).abs().max() == 5
    assert normaliser(x).dtype == torch.float32
    assert normaliser.count.dtype == normaliser.mean.dtype == normaliser.m2.dtype == torch.float64


def test_a_constant_is_not_blown_up():
    normaliser = RunningNormaliser(1)
    normaliser.statistics = RunningStatistics.empty(1).update(np.full((10, 1), 0.3))
    assert normaliser(torch.tensor([0.3])).abs() < 1e-3
