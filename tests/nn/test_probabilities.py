"""Probabilities of the softmax head: labels smoothed in training do not show."""

import numpy as np
import pytest
import torch

from model_files import rewritten
from zeroone import IntegerModel, TrainSettings, ZeroOneClassifier, load, quantise, train
from zeroone.data.load import load_data
from zeroone.nn.heads import SoftmaxCE, make_head
from zeroone.utils.checks import InputError
from zeroone.utils.storage import INTEGERS


def smoothed(s):
    return make_head("softmax", smoothing=s)


@pytest.mark.parametrize("s", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("K", [2, 3, 10])
def test_smoothing_is_undone_exactly(s, K):
    p = torch.rand(50, K, generator=torch.Generator().manual_seed(K), dtype=torch.float64)
    p = (p + 0.2) / (p + 0.2).sum(dim=1, keepdim=True)
    scores = torch.log((1 - s) * p + s / K)  # the minimiser of the smoothed loss
    assert torch.allclose(smoothed(s).probabilities(scores), p, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_are_never_0_and_in_the_order_of_the_scores(dtype):
    scores = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for s in (0.0, 0.1, 0.9):
        for size in (0.1, 3, 10):
            p = smoothed(s).probabilities(size * scores)
            assert torch.allclose(p.sum(dim=1), torch.ones(200, dtype=dtype))
            assert torch.equal(p.argsort(dim=1), scores.argsort(dim=1))
        extreme = smoothed(s).probabilities(torch.tensor([[0.0, 1e4, -1e4]], dtype=dtype))
        assert bool((extreme > 0).all())
        assert bool(extreme.log().isfinite().all())


def test_a_model_file_keeps_the_smoothing(tmp_path):
    digits = load_data("digits")
    run = train(digits.X, digits.y, TrainSettings.from_options(hidden=(20,), epochs=2))
    X, whole = digits.X_test, run.network
    path = whole.save(tmp_path / "m.safetensors")
    assert whole.head.describe() == {"kind": "softmax", "smoothing": 0.1}
    assert np.array_equal(load(path).predict_proba(X), whole.predict_proba(X))
    integers = IntegerModel(quantise(whole))
    small = integers.save(tmp_path / "i.safetensors")
    assert np.array_equal(load(small).predict_proba(X), integers.predict_proba(X))
    assert np.abs(integers.predict_proba(X) - whole.predict_proba(X)).mean() < 0.01
    for file, kind in ((path, "zeroone"), (small, INTEGERS)):
        rewritten(file, lambda header, _: header["head"].pop("smoothing"), kind)
    plain = SoftmaxCE().probabilities(whole.scores(X)).numpy()
    assert np.array_equal(load(path).predict_proba(X), plain)  # as files of 0.1.0
    assert np.abs(load(small).predict_proba(X) - plain).mean() < 0.01


@pytest.mark.parametrize("value", [1, -0.1, "x", None])
def test_a_damaged_smoothing_is_refused(tmp_path, value):
    data = load_data("breast-cancer")
    settings = TrainSettings.from_options(hidden=(3,), epochs=1)
    path = train(data.X, data.y, settings).network.save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: header["head"].update(smoothing=value))
    with pytest.raises(InputError, match="smoothing must"):
        load(path)


def test_the_last_training_counts():
    data = load_data("breast-cancer")

    def trained(start=None, **options):
        settings = TrainSettings.from_options(hidden=(5,), **options)
        return train(data.X, data.y, settings, start=start).network

    first = trained(epochs=1)
    further = trained(first, epochs=1, smoothing=0.2)
    exact = trained(first, solver="exact", max_iter=1)
    assert [n.head.smoothing for n in (first, further, exact)] == [0.1, 0.2, 0.0]
    pieces = ZeroOneClassifier((5,)).partial_fit(data.X, data.y, classes=[0, 1])
    assert pieces.network_.head.smoothing == 0.1


def test_probabilities_are_better_than_the_softmax():
    """On samples that the network has not seen; results/calibration.json has more."""
    digits = load_data("digits")
    classifier = ZeroOneClassifier().fit(digits.X, digits.y)
    scores = classifier.network_.scores(digits.X_test)
    right = torch.from_numpy(digits.y_test)
    own = torch.from_numpy(classifier.predict_proba(digits.X_test))
    losses = [-p.gather(1, right[:, None]).log().mean() for p in (own, scores.softmax(dim=1))]
    assert losses[0] < 0.7 * losses[1]
    assert torch.equal(own.argmax(dim=1), scores.argmax(dim=1))
