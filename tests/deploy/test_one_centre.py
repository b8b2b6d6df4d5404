"""Below a convolution, pixels share their centre, so filters need one threshold each."""

import numpy as np
import pytest
import torch

from benchmarks.engines import engines
from zeroone import TrainSettings, ZeroOneClassifier, load, quantise, train
from zeroone.data.load import load_data
from zeroone.deploy.exporters.c import size_of
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError

DIGITS = load_data("digits")
RGB = np.random.default_rng(0).integers(0, 256, (60, 3 * 6 * 5)).astype(np.uint8)


def test_a_channel_has_one_centre():
    """And all pixels one scale, as if they were samples of one number."""
    X = torch.from_numpy(RGB)
    found = Scaling.fit(X, torch.float64, channels=3)
    pixels = X.double().reshape(60, 3, 30)
    means = pixels.mean(dim=(0, 2))
    assert torch.allclose(found.centre.reshape(3, 30), means[:, None].expand(3, 30))
    spread = (pixels - means[:, None]).square().mean().sqrt()
    assert torch.allclose(found.scale, spread)
    by_pixel = Scaling.fit(X, torch.float64, "feature")
    assert torch.equal(by_pixel.centre, Scaling.fit(X, torch.float64, "feature", channels=3).centre)


def trained(hidden, **options):
    settings = TrainSettings.from_options(hidden=hidden, epochs=3, **options)
    return train(DIGITS.X, DIGITS.y, settings, image=(1, 8, 8), scores=False).network


@pytest.mark.parametrize(
    ("hidden", "places"),
    [
        (("conv3x3:4:max2", 9), 1),
        (("conv3x3:4:pad1:max2", 9), 9),
        (("conv3x3:4:pad1:stride2", 9), 4),
        (("conv5x5:4:pad2", 9), 25),
        (("conv3x3:4:pad1:average2", 9), 9),
    ],
)
def test_thresholds_differ_only_around_the_image(hidden, places, tmp_path):
    network = trained(hidden)
    assert len(network.scaling.centre.unique()) == 1
    integers = quantise(network)
    thresholds = integers.stages[0].thresholds.reshape(4, -1)
    assert len(np.unique(thresholds, axis=1).T) == places
    assert (integers.stages[0].thresholds.ndim == 1) == (places == 1)
    X = DIGITS.X_test[:20]
    for name, run in engines().items():
        assert np.array_equal(run(integers, X, tmp_path), integers.scores(X)), name
    agree = integers.predict(DIGITS.X) == network.predict(DIGITS.X)
    assert agree.mean() > 0.9


def test_models_with_a_centre_for_each_pixel_stay_as_they_are(tmp_path):
    """Files of earlier versions have such."""
    new = trained(("conv3x3:4:max2", 9))
    old = trained(("conv3x3:4:max2", 9))
    old.scaling = Scaling.fit(torch.from_numpy(DIGITS.X).float(), kind="common")
    assert len(old.scaling.centre.unique()) > 30
    again = load(old.save(tmp_path / "m.safetensors"))
    assert torch.equal(again.scores(DIGITS.X), old.scores(DIGITS.X))
    integers = quantise(again)
    assert integers.stages[0].thresholds.shape == (4, 6, 6)
    assert (integers.predict(DIGITS.X) == old.predict(DIGITS.X)).mean() > 0.9
    assert size_of(integers).constants > size_of(quantise(new)).constants


def test_every_way_to_train_shares_centres():
    images = {"image_shape": (8, 8), "epochs": 1}
    for scaling in ("auto", "common"):
        clf = ZeroOneClassifier(("conv3x3:4",), options={"scaling": scaling}, **images)
        assert len(clf.fit(DIGITS.X, DIGITS.y).network_.scaling.centre.unique()) == 1
    pieces = ZeroOneClassifier(("conv3x3:4",), **images)
    pieces.partial_fit(DIGITS.X, DIGITS.y, classes=np.unique(DIGITS.y))
    assert len(pieces.network_.scaling.centre.unique()) == 1
    dense = ZeroOneClassifier((4,), **images).fit(DIGITS.X, DIGITS.y)
    assert len(dense.network_.scaling.centre.unique()) > 30
    with pytest.raises(InputError, match="are no images of shape"):
        train(RGB, np.arange(60) % 2, TrainSettings(hidden=("conv3x3:4",)), image=(7, 8, 8))
