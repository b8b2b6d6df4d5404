"""Images that are shifted and flipped while a network is trained on them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bar_images import IMAGE, LAYERS, bars, train_both
from zeroone import TrainSettings
from zeroone.pretraining import InitialSettings
from zeroone.training.augment import BORDER, CropFlip
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import Share


@pytest.fixture(scope="module")
def data():
    return {"X": bars(240, 0)[0], "y": bars(240, 0)[1], "test": bars(90, 1), "image": IMAGE}


def test_images_are_not_changed_once_features_are_made(data, tmp_path):
    settings = replace(LAYERS, augment="crop-flip")
    with pytest.raises(InputError, match="augment is for the backbone's training"):
        train_both(data, tmp_path, settings)


def test_crop_and_flip_against_a_plain_loop():
    rng = torch.Generator().manual_seed(3)
    X = torch.randint(0, 255, (40, 2 * 5 * 7), dtype=torch.uint8, generator=rng)
    changed = CropFlip((2, 5, 7)).apply(X, torch.Generator().manual_seed(9), Share(len(X)))
    draws = torch.Generator().manual_seed(9)
    down, right = torch.randint(2 * BORDER + 1, (2, 40, 1), generator=draws)
    flip = torch.randint(2, (40, 1), generator=draws)
    for i in range(40):
        wide = np.pad(X[i].reshape(2, 5, 7).numpy(), [(0, 0), (BORDER, BORDER), (BORDER, BORDER)])
        d, r = int(down[i]), int(right[i])
        cut = wide[:, d : d + 5, r : r + 7]
        expected = cut[:, :, ::-1] if flip[i] else cut
        assert np.array_equal(changed[i].reshape(2, 5, 7).numpy(), expected)
    assert changed.dtype == torch.uint8
    assert 5 < int(flip.sum()) < 35


def test_augmented_training_differs_and_needs_images(data):
    from zeroone import train

    plain = TrainSettings.from_options(hidden=("conv5x5:4:max2",), epochs=1, batch=40)
    first = train(data["X"], data["y"], plain, image=IMAGE)
    settings = replace(plain, augment="crop-flip")
    runs = [train(data["X"], data["y"], settings, image=IMAGE) for _ in range(2)]
    weights = [run.network.operators[0].weight for run in (first, *runs)]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[0], weights[1])
    dense = TrainSettings.from_options(hidden=(4,), augment="crop-flip")
    with pytest.raises(InputError, match="is for images, these are not"):
        train(data["X"], data["y"], dense)
    with pytest.raises(InputError, match="augment is for batches"):
        TrainSettings.from_options(solver="exact", augment="crop-flip")


def test_resnets_are_augmented_unless_told_otherwise():
    def augment(**options):
        return InitialSettings(**{"epochs": 1} | options).training(LAYERS).augment

    assert augment(body="resnet18") == "crop-flip"
    assert augment(body="resnet18", augment="none") == "none"
    assert augment(body="small") == "none"
    with pytest.raises(InputError, match="unknown augment 'flop'"):
        augment(body="small", augment="flop")
