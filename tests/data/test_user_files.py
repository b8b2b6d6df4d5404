"""A user's own data, the splits, and bytes that stay bytes."""

import numpy as np
import pytest
import torch
from PIL import Image

from zeroone import TrainSettings, load, train
from zeroone.data.load import load_data
from zeroone.data.published import cache_root
from zeroone.data.registry import REGISTRY
from zeroone.data.splits import stratified_cut
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError


def write(path, text):
    path.write_text(text)
    return str(path)


def test_csv_with_a_header_and_a_named_label(tmp_path):
    text = "kind,width,height\nowl,1,2.5\ncat, 3 ,4\nowl,5,-6e1\n"
    split = load_data(write(tmp_path / "a.csv", text), label="kind")
    assert split.X.tolist() == [[1, 2.5], [3, 4], [5, -60]]
    assert split.y.tolist() == ["owl", "cat", "owl"]


def test_csv_without_a_header_takes_the_last_column(tmp_path):
    split = load_data(write(tmp_path / "a.csv", "1,2,0\n3,4,1\n\n"))
    assert split.X.tolist() == [[1, 2], [3, 4]]
    assert split.y.tolist() == [0, 1]
    assert split.y.dtype.kind == "i"


@pytest.mark.parametrize(
    "labels",
    [
        ("007", "7"),
        ("1_0", "10"),
        ("+1", "1"),
        (str(2**63), str(2**63 + 1)),
        ("-0", "0"),
        ("1", "٣"),
    ],
)
def test_csv_labels_that_are_written_otherwise_are_other_classes(tmp_path, labels):
    rows = "".join(f"{k},{label}\n" for k, label in enumerate(labels))
    assert load_data(write(tmp_path / "a.csv", rows)).y.tolist() == list(labels)


def test_csv_labels_of_64_bits_are_numbers(tmp_path):
    most = 2**63 - 1
    split = load_data(write(tmp_path / "a.csv", f"1,{most}\n2,{most - 1}\n3,{-most}\n"))
    assert split.y.tolist() == [most, most - 1, -most]


@pytest.mark.parametrize(
    ("text", "label", "sentence"),
    [
        ("", None, "is empty"),
        ("a,b\n", None, "a header but no samples"),
        ("a,b\n\n\n1,x\n2\n", None, "line 5: 1 cells, the first has 2"),
        ("a,b\n1,x\n2,\n3,\n", None, "2 samples have no label in 'b', the first is sample 2"),
        ("a,b\nred,x\n2,y\n", None, r"sample 1: 'a' is not a number \('red'\)"),
        ("a,b\n1,x\n,y\n", None, "sample 2: 'a' is empty"),
        ("a,b\n1,x\n", "c", r"has no column 'c' \(found: a, b\)"),
        ("1\n2\n", None, "one column only"),
        ("a,b\n1,2\n2,0.25\n", None, "column 'b' holds continuous numbers, such as 0.25"),
        ("a,b\n1,2\n2,nan\n", None, "the label column 'b' contains NaN"),
    ],
)
def test_faults_in_csv_are_named(tmp_path, text, label, sentence):
    with pytest.raises(InputError, match=sentence):
        load_data(write(tmp_path / "a.csv", text), label=label)


def test_csv_whose_columns_are_called_by_numbers(tmp_path):
    text = "0,1,2,label\n5,6,7,0\n8,9,10,1\n"
    assert load_data(write(tmp_path / "a.csv", text)).y.tolist() == [0, 1]
    strings = "0,1,2,label\n5,6,7,owl\n8,9,10,cat\n"
    split = load_data(write(tmp_path / "b.csv", strings), label="label")
    assert split.y.tolist() == ["owl", "cat"]


def test_a_csv_that_is_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x80\x81")
    with pytest.raises(InputError, match="not a text file"):
        load_data(str(tmp_path / "a.csv"))


def image_folder(tmp_path, mode="RGB"):
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir(parents=True)
        for k in range(3):
            shape = (4, 5, 3) if mode == "RGB" else (4, 5)
            pixels = rng.integers(0, 256, size=shape, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    return tmp_path


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_folder_of_images(tmp_path, mode, channels):
    folder = image_folder(tmp_path / "pets", mode)
    (folder / "cats" / "notes.txt").write_text("not an image")
    split = load_data(str(folder))
    assert split.X.shape == (6, channels * 20)
    assert split.X.dtype == np.uint8
    assert split.shape == (channels, 4, 5)
    assert split.y.tolist() == ["cats"] * 3 + ["dogs"] * 3
    pixels = np.asarray(Image.open(folder / "dogs" / "1.png"))
    planes = pixels.transpose(2, 0, 1) if mode == "RGB" else pixels
    assert np.array_equal(split.X[4], planes.ravel())


def test_faults_in_an_image_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"at least two classes \(found 0 with images\)"):
        load_data(str(tmp_path))
    folder = image_folder(tmp_path / "pets")
    Image.new("RGB", (7, 7)).save(folder / "dogs" / "other.png")
    with pytest.raises(InputError, match=r"other\.png is 7 x 7 pixels, the first image is 5 x 4"):
        load_data(str(folder))
    (folder / "dogs" / "other.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"other\.png cannot be read as an image"):
        load_data(str(folder))


def test_images_of_more_than_8_bits_are_refused(tmp_path):
    folder = image_folder(tmp_path / "pets")
    deep = Image.fromarray(np.full((4, 5), 40_000, dtype=np.uint16))
    deep.save(folder / "dogs" / "deep.png")
    with pytest.raises(InputError, match=r"deep\.png has pixels of more than 8 bits"):
        load_data(str(folder))
    (folder / "dogs" / "deep.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n")
    with pytest.raises(InputError, match=r"deep\.png cannot be read as an image"):
        load_data(str(folder))


def test_damaged_npz_files(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(50, 4)), y=np.zeros(50))
    data = bytearray(path.read_bytes())
    data[200:220] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as"):
        load_data(str(path))
    np.savez(path, X=np.zeros(5), y=np.zeros(5))
    with pytest.raises(InputError, match=r"X has shape \(5,\); X must be a matrix"):
        load_data(str(path))


def test_unknown_names_get_a_suggestion():
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        load_data("minst")


def test_the_cut_is_stratified_and_repeatable():
    y = np.repeat([0, 1, 2, 3], [100, 50, 10, 1])
    rest, cut = stratified_cut(y, 0.1, seed=3)
    assert sorted([*rest, *cut]) == list(range(161))
    assert np.bincount(y[cut], minlength=4).tolist() == [10, 5, 1, 0]  # the last keeps its one
    again = stratified_cut(y, 0.1, seed=3)[1]
    assert np.array_equal(cut, again)
    assert not np.array_equal(cut, stratified_cut(y, 0.1, seed=4)[1])
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(InputError, match="strictly between 0 and 1"):
            stratified_cut(y, share, 0)
    with pytest.raises(InputError, match="leaves nothing to cut off"):
        stratified_cut(np.array([0, 1]), 0.1, 0)


def test_scaling_is_learned_on_the_training_part_only():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 2
    settings = TrainSettings.from_options(hidden=(4,), epochs=1, validation=0.25, seed=7)
    X_test = 1000 + rng.normal(size=(10, 3))
    run = train(X, y, settings, test=(X_test, np.arange(10) % 2))
    rest, cut = stratified_cut(y, 0.25, 7)
    assert run.network.scaling.centre.numpy() == pytest.approx(X[rest].mean(axis=0), abs=1e-6)
    assert run.record["data"]["samples"] == {"train": 150, "validation": 50, "test": 10}
    assert 0 <= run.record["result"]["validation_error"] <= 1
    assert len(cut) == 50


def test_scaling_matches_the_definition_on_bytes():
    X = np.random.default_rng(0).integers(0, 256, size=(5000, 7), dtype=np.uint8)
    scaling = Scaling.fit(torch.from_numpy(X))
    centred = X - X.mean(axis=0)
    assert scaling.centre.numpy() == pytest.approx(X.mean(axis=0), rel=1e-6)
    assert float(scaling.scale) == pytest.approx(centred.std(), rel=1e-6)
    assert scaling.apply(torch.from_numpy(X)).numpy() == pytest.approx(
        centred / centred.std(), abs=1e-5
    )
    assert float(Scaling.fit(torch.ones(3, 2)).scale) == 1.0


@pytest.mark.parametrize("n", [1, 258, 259, 5000])
def test_scaling_of_bytes_is_that_of_numbers(n):
    """One pass over bytes gives what two passes over floating point numbers do, to rounding."""
    generator = torch.Generator().manual_seed(n)
    X = torch.randint(0, 256, (n, 6), dtype=torch.uint8, generator=generator)
    X[:, 0], X[:, 1], X[:, 2] = 255, 0, 254  # constants
    X[0, 2] = 254 + (n > 1)  # and one that nearly is
    bytewise = Scaling.fit(X, torch.float64, "feature")
    numbers = Scaling.fit(X.double(), torch.float64, "feature")
    assert torch.equal(bytewise.centre, X.double().mean(dim=0))
    assert torch.allclose(bytewise.scale, numbers.scale, rtol=1e-9)
    assert bytewise.scale[:2].tolist() == [1, 1]


def test_bytes_stay_bytes_until_a_batch_is_taken():
    X = np.random.default_rng(0).integers(0, 256, size=(50, 6), dtype=np.uint8)
    run = train(X, np.arange(50) % 2, TrainSettings.from_options(hidden=(4,), epochs=1))
    inputs = run.network.inputs(X)
    assert inputs.dtype == torch.uint8
    assert inputs.data_ptr() == X.ctypes.data  # not even copied
    assert np.array_equal(run.network.predict(X), run.network.predict(X.astype(np.float64)))


PUBLISHED_MEANS = {
    "mnist": (0.1307,),
    "fashion-mnist": (0.2860,),
    "cifar10": (0.4914, 0.4822, 0.4465),
    "cifar100": (0.5071, 0.4865, 0.4409),
}


@pytest.mark.parametrize("name", PUBLISHED_MEANS)
def test_the_large_sets_where_they_are_there(name):
    """Left out where the set is not in the cache: 'zeroone data get NAME' brings it."""
    spec = REGISTRY[name]
    split = spec.cached(cache_root())
    if split is None:
        pytest.skip(f"{name} is not in the cache")
    assert split.X.shape == (spec.n_train, spec.n_features)
    assert split.X_test.shape == (spec.n_test, spec.n_features)
    planes = split.X.reshape(spec.n_train, spec.shape[0], -1)
    means = [planes[:, c].mean(dtype=np.float64) / 255 for c in range(spec.shape[0])]
    assert means == pytest.approx(PUBLISHED_MEANS[name], abs=1e-4)


def test_inputs_that_hardly_differ_from_0_are_constant(tmp_path):
    """The scale of a few denormal numbers is 0 in float32, which no file may hold."""
    X = np.zeros((60, 3))
    X[0] = 1e-45
    for scaling in ("common", "feature"):
        settings = TrainSettings.from_options(hidden=(4,), epochs=1, scaling=scaling)
        network = train(X, np.arange(60) % 2, settings).network
        assert bool((network.scaling.scale == 1).all())
        assert load(network.save(tmp_path / "m.safetensors")).n_features == 3


def test_truths_are_numbers(tmp_path):
    path = tmp_path / "truths.csv"
    path.write_text("a,b,kind\nTrue,0.5,x\nfalse,2,y\n")
    assert load_data(str(path)).X.tolist() == [[1, 0.5], [0, 2]]
    path.write_text("a,b,kind\nTrue,0.5,x\nmaybe,2,y\n")
    with pytest.raises(InputError, match="sample 2: 'a' is not a number"):
        load_data(str(path))
