"""Weights of samples where arrays are trained on directly."""

import numpy as np
import pytest
import torch

from zeroone.nn.inputs import check_weights
from zeroone.nn.scaling import Scaling
from zeroone.optim.preconditioner import LowRank
from zeroone.training import TrainSettings, train
from zeroone.training.epochs import BatchPlan
from zeroone.training.training_data import Subset
from zeroone.utils.checks import InputError

TIMES = torch.tensor([2, 1, 3])


def repeated(rows):
    return rows.repeat_interleave(TIMES, dim=0)


@pytest.mark.parametrize("bias", [True, False])
def test_moments_count_samples_as_often_as_they_weigh(bias):
    generator = torch.Generator().manual_seed(0)
    V = torch.randn(1, 3, 5, dtype=torch.float64, generator=generator)
    one = LowRank.observe(V, None, 0, centre=bias, weights=TIMES.double())
    other = LowRank.observe(repeated(V[0])[None], None, 0, centre=bias)
    for moments in (one, other):
        moments.basis = moments.basis * moments.strength.sqrt()[:, None]
        moments.basis = moments.basis @ moments.basis.mT
    for name in ("mean", "basis", "total"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))


def test_the_scaling_counts_them_too():
    X = torch.tensor([[0.0, 5.0], [3.0, 5.0], [9.0, 6.0]], dtype=torch.float64)
    for kind in ("common", "feature", "auto"):
        mine = Scaling.fit(X, torch.float64, kind, TIMES)
        theirs = Scaling.fit(repeated(X), torch.float64, kind)
        torch.testing.assert_close(mine.centre, theirs.centre)
        torch.testing.assert_close(mine.scale, theirs.scale)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1, 2], "3 rows but the weights have shape"),
        ([1, -1, 1], "finite and not negative"),
        ([1, np.nan, 1], "finite and not negative"),
        ([0, 0, 0], "all weights of samples are zero"),
        (["a", "b", "c"], "must be numbers"),
    ],
)
def test_weights_that_cannot_be(weights, sentence):
    with pytest.raises(InputError, match=sentence):
        check_weights(weights, 3)


def test_samples_without_weight_are_not_there():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)), rng.integers(0, 2, 50)
    weights = np.ones(50)
    weights[40:] = 0
    X_wild = X.copy()
    X_wild[40:] = 1e6
    settings = TrainSettings.from_options(hidden=(8,), epochs=5, validation=0.2)
    one = train(X_wild, y, settings, sample_weight=weights)
    other = train(X[:40], y[:40], settings)
    assert torch.equal(one.network.scores(X), other.network.scores(X))
    assert one.record["data"]["samples"] == other.record["data"]["samples"]
    exact = TrainSettings.from_options(hidden=(8,), solver="exact")
    with pytest.raises(InputError, match="weights of samples are for solver='stochastic'"):
        train(X, y, exact, sample_weight=weights)


def test_a_heavy_sample_is_spread_over_the_batches():
    weights = torch.tensor([9.0, 0.5, 2.0, 100.0])
    part = Subset(torch.zeros(4, 2), torch.zeros(4), weights)
    for batches, turns in ((1, [1, 1, 1, 1]), (3, [3, 1, 1, 3]), (20, [5, 1, 1, 20])):
        plan = BatchPlan(1, batches, 0.0, 0)
        rows, shares = zip(*plan.rows(part, plan.generator(1)), strict=True)
        seen = torch.cat(rows)
        assert torch.bincount(seen).tolist() == turns
        total = torch.zeros(4).index_add_(0, seen, torch.cat(shares))
        torch.testing.assert_close(total, weights)
