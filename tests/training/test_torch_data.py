"""Data sets and loaders of torch as the data of a training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from bar_images import IMAGE, bars
from zeroone import Callback, TrainSettings, train
from zeroone.utils.checks import InputError

SETTINGS = TrainSettings.from_options(hidden=(12,), epochs=2, batch=40)


class Pairs(Dataset):
    """Samples and labels, each through a function."""

    def __init__(self, X, y, of_input=lambda x: x, of_label=lambda label: label):
        self.X, self.y, self.of_input, self.of_label = X, y, of_input, of_label

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.of_input(self.X[i]), self.of_label(self.y[i])


@pytest.fixture(scope="module")
def data():
    return bars(240, 0)


@pytest.fixture(scope="module")
def images(data):
    X, y = data
    return TensorDataset(torch.from_numpy(X).view(-1, *IMAGE), torch.from_numpy(y))


def weights(run):
    return torch.cat([op.weight.flatten() for op in run.network.operators])


@pytest.fixture(scope="module")
def expected(data):
    return train(*data, SETTINGS, test=data, image=IMAGE)


def same(run, expected):
    assert torch.equal(weights(run), weights(expected))
    for key in ("sha256", "classes"):
        assert run.record["data"][key] == expected.record["data"][key]
    return True


@pytest.mark.parametrize(
    ("of_input", "of_label"),
    [
        (lambda x: torch.from_numpy(x).view(IMAGE), int),
        (lambda x: x, torch.tensor),
        (lambda x: x.reshape(18, 18), lambda label: np.array([label])),
    ],
    ids=["tensors", "arrays", "matrices"],
)
def test_any_form_of_samples_gives_the_arrays_network(data, expected, of_input, of_label):
    made = Pairs(*data, of_input, of_label)
    same(train(made, None, SETTINGS, test=made), expected)


def test_a_loader(data, images, expected):
    before = torch.get_rng_state()
    loader = DataLoader(images, 40, shuffle=True, num_workers=1, drop_last=True)
    by_loader = replace(SETTINGS, stochastic=replace(SETTINGS.stochastic, batch=None))
    run = train(loader, None, by_loader, test=DataLoader(images))
    assert torch.equal(torch.get_rng_state(), before)
    same(run, expected)
    assert run.record["settings"]["stochastic"]["batch"] == 40
    given = train(DataLoader(images, 20), None, SETTINGS, test=data)
    same(given, expected)


def test_images_need_no_shape(images):
    settings = TrainSettings.from_options(hidden=("conv5x5:4:max2",), epochs=1, augment="crop-flip")
    run = train(images, None, settings)
    assert run.network.operators[0].shape_in == IMAGE


def test_numbers_and_names(data):
    X = np.linspace(-1, 1, 90)
    names = np.array(["low", "high"])[(X > 0).astype(int)]
    for of_input in (float, np.float32):
        run = train(Pairs(X, names, of_input, str), None, SETTINGS)
        assert run.network.classes == ["high", "low"]
        assert run.network.n_features == 1


def test_it_resumes(images, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)

    class Interrupt(Callback):
        def on_batch(self, iteration, done, total):
            if iteration == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(images, None, SETTINGS, test=images, out=tmp_path, callbacks=[Interrupt()])
    other = Subset(images, range(200))
    with pytest.raises(InputError, match="begun on other data"):
        train(other, None, SETTINGS, test=images, out=tmp_path, resume=True)
    run = train(images, None, SETTINGS, test=images, out=tmp_path, resume=True)
    assert same(run, expected)


def test_a_long_reading_is_shown(images, monkeypatch, capsys):
    monkeypatch.setattr("zeroone.training.text_progress.SILENCE", 0.0)
    monkeypatch.setattr("zeroone.data.torch_datasets.AT_ONCE", 100)
    train(images, None, SETTINGS)
    assert capsys.readouterr().err.splitlines()[:2] == [
        "reading data: 41% of 1/1",
        "reading data: 83% of 1/1",
    ]


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(3), 0


class Lengthless(Dataset):
    def __getitem__(self, i):
        return torch.zeros(3), 0


def jittered(x):
    return torch.from_numpy(x) + torch.rand(())


def growing(x):
    return torch.zeros(3 + int(x[0] > 30))


def changing(x):
    return torch.zeros(3, dtype=torch.uint8 if x[0] > 30 else torch.float32)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda d, X, y: Endless(), "Endless gives samples one after the other"),
        (lambda d, X, y: DataLoader(Endless()), "Endless gives samples one after the other"),
        (lambda d, X, y: Lengthless(), "Lengthless gives samples one after the other"),
        (lambda d, X, y: Subset(d, []), "Subset has no samples"),
        (lambda d, X, y: TensorDataset(X), r"pairs \(input, label\)"),
        (lambda d, X, y: TensorDataset(X, y, y), r"pairs \(input, label\)"),
        (lambda d, X, y: TensorDataset(X, X), "rows are no probabilities"),
        (
            lambda d, X, y: Pairs(X, y, of_label=lambda _: y[:4].reshape(2, 2)),
            r"y must be a vector .* \(240, 2, 2\)",
        ),
        (
            lambda d, X, y: Pairs(X, y, of_label=lambda _: None),
            "arrays or numbers, and alike: .*NoneType",
        ),
        (lambda d, X, y: Pairs(X, y, lambda x: "a.png"), "arrays or numbers: convert"),
        (lambda d, X, y: Pairs(X, y, lambda x: [1, [2]]), "arrays or numbers"),
        (lambda d, X, y: Pairs(X, y, growing), r"alike: .*equal size"),
        (lambda d, X, y: Pairs(X, y, changing), "alike: their inputs differ in dtype"),
        (lambda d, X, y: Pairs(X.numpy(), y, jittered), "leave random transforms out .* augment"),
        (
            lambda d, X, y: DataLoader(d, 40, sampler=WeightedRandomSampler([1.0] * 240, 240)),
            "in place of a sampler, give a Subset",
        ),
        (
            lambda d, X, y: DataLoader(d, 40, sampler=RandomSampler(d, num_samples=100)),
            "in place of a sampler, give a Subset",
        ),
        (lambda d, X, y: DataLoader(d, 40, collate_fn=list), "what collate_fn does"),
    ],
)
def test_what_cannot_be_read(data, images, make, sentence):
    X, y = (torch.from_numpy(A) for A in data)
    plain = replace(SETTINGS, stochastic=replace(SETTINGS.stochastic, batch=None))
    with pytest.raises(InputError, match=sentence):
        train(make(images, X, y), None, plain)


def test_a_fault_in_a_worker_is_one_sentence(data):
    loader = DataLoader(Pairs(*data, growing), 40, num_workers=1)
    with pytest.raises(InputError, match=r"^all samples must be .* alike: .*\.$"):
        train(loader)


def test_labels_come_from_one_place(data, images):
    with pytest.raises(InputError, match=r"train\(dataset, None, settings\)"):
        train(images, data[1])
    with pytest.raises(InputError, match="training needs labels, y, unless"):
        train(data[0])
