"""Images that are shifted and flipped while a network is trained on them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from bar_images import IMAGE, LAYERS, bars, train_both
from zeroone import Callback, TrainSettings, ZeroOneClassifier, train
from zeroone.pretraining import PretrainingSettings
from zeroone.training import register_augmentation
from zeroone.training.augment import BORDER, Augment, crop_flip, flip, name_of
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import Share

CONVOLUTION = {"hidden": ("conv5x5:4:max2",), "epochs": 3, "batch": 40}


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
    augment = Augment(crop_flip, (2, 5, 7))
    changed = augment.apply(X, source := torch.Generator().manual_seed(9), Share(len(X)))
    draws = torch.Generator().manual_seed(9)
    down, right = torch.randint(2 * BORDER + 1, (2, 40, 1), generator=draws)
    flip = torch.randint(2, (40, 1), generator=draws)
    assert torch.equal(source.get_state(), draws.get_state())  # the next batch draws others
    for i in range(40):
        wide = np.pad(X[i].reshape(2, 5, 7).numpy(), [(0, 0), (BORDER, BORDER), (BORDER, BORDER)])
        d, r = int(down[i]), int(right[i])
        cut = wide[:, d : d + 5, r : r + 7]
        expected = cut[:, :, ::-1] if flip[i] else cut
        assert np.array_equal(changed[i].reshape(2, 5, 7).numpy(), expected)
    assert changed.dtype == torch.uint8
    assert 5 < int(flip.sum()) < 35
    for places in (torch.arange(0, 40, 2), torch.tensor([7, 3])):  # of a rank
        share = Share(len(X), places)
        own = augment.apply(X[places], torch.Generator().manual_seed(9), share)
        assert torch.equal(own, changed[places])


def test_half_of_the_images_are_flipped():
    X = torch.arange(2 * 3 * 4).repeat(200, 1) + 100 * torch.arange(200)[:, None]
    torch.manual_seed(0)
    images = X.reshape(200, 2, 3, 4)
    changed = flip(images)
    mirrored = [torch.equal(a, b.flip(2)) for a, b in zip(changed, images, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(changed, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 80 < sum(mirrored) < 120


def test_augmented_training_differs_and_needs_images(data):
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
        return PretrainingSettings(**{"epochs": 1} | options).training(LAYERS).augment

    assert augment(backbone="resnet18") == "crop-flip"
    assert augment(backbone="resnet18", augment="none") == "none"
    assert augment(backbone="small") == "none"
    with pytest.raises(InputError, match="unknown augment 'flop'"):
        augment(backbone="small", augment="flop")


def noisy(images):
    return images + torch.randint(40, images.shape, dtype=torch.uint8)


def weights(data, **options):
    settings = TrainSettings.from_options(**CONVOLUTION | options)
    run = train(data["X"], data["y"], settings, image=IMAGE)
    return run.network.operators[0].weight, run.record["settings"]["augment"]


def test_a_function_of_ones_own_in_batches_of_images(data):
    shapes = set()

    def watched(images):
        shapes.add((tuple(images.shape[1:]), images.dtype))
        return noisy(images).float()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    W, name = weights(data, augment=noisy)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)  # the seed of the run counts, not that of torch
    again, _ = weights(data, augment=watched)
    assert torch.equal(W, again)
    assert shapes == {(IMAGE, torch.uint8)}
    assert name == f"{__name__}.noisy"
    assert not torch.equal(W, weights(data)[0])


def test_a_function_by_its_name_and_in_a_classifier(data):
    W, _ = weights(data, augment=noisy)
    register_augmentation("noisy")(noisy)
    again, name = weights(data, augment="noisy")
    assert torch.equal(W, again)
    assert name == "noisy"
    few = ZeroOneClassifier((4,), epochs=2, image_shape=IMAGE, options={"augment": noisy})
    plain = ZeroOneClassifier((4,), epochs=2, image_shape=IMAGE)
    made = [c.fit(data["X"], data["y"]).network_.operators[0].weight for c in (few, plain)]
    assert not torch.equal(*made)
    assert few.record_["settings"]["augment"] == f"{__name__}.noisy"


class Interrupt(Callback):
    def on_batch(self, iteration, done, total):
        if iteration == 2:
            raise KeyboardInterrupt


def test_it_resumes_bit_for_bit_with_the_same_function_only(data, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    settings = TrainSettings.from_options(**CONVOLUTION, augment=noisy)
    place = {"image": IMAGE, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        train(data["X"], data["y"], settings, callbacks=[Interrupt()], **place)
    other = replace(settings, augment=crop_flip)
    refusal = f"begun with augment='{__name__}.noisy', not 'zeroone.*crop_flip'"
    with pytest.raises(InputError, match=refusal):
        train(data["X"], data["y"], other, resume=True, **place)
    run = train(data["X"], data["y"], settings, resume=True, **place)
    assert torch.equal(run.network.operators[0].weight, weights(data, augment=noisy)[0])


class Scaled(torch.nn.Module):
    def forward(self, images):
        return images[:, :, 1:]


def test_names_and_wrong_results(data):
    assert name_of(partial(noisy)) == name_of(noisy) == f"{__name__}.noisy"
    assert name_of(partial(noisy, k=2)) == f"{__name__}.noisy, (), {{'k': 2}}"
    assert name_of(Scaled()) == f"{__name__}.Scaled"
    for wrong, found in ((Scaled(), r"\(40, 1, 17, 18\)"), (lambda images: None, "NoneType")):
        with pytest.raises(InputError, match=rf"must return images of shape .*, not {found}\.$"):
            weights(data, augment=wrong)
    with pytest.raises(InputError, match="unknown augment 7"):
        TrainSettings(augment=7)


def test_the_command_line_finds_a_registered_one(command):
    register_augmentation("noisy")(noisy)
    code, _, err = command("train", "--data", "digits", "--out", "run", "--augment", "nosy")
    assert (code, "choose from none, crop-flip, flip, noisy" in err) == (2, True)
