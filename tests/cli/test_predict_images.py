"""``zeroone predict`` on image files: grey or RGB as the model takes them, of its size only."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from zeroone import Network, load, quantise
from zeroone.deploy import IntegerModel
from zeroone.nn.scaling import Scaling

SHAPES = {"grey": (1, 6, 5), "colour": (3, 6, 5)}
RNG = np.random.default_rng(0)


@pytest.fixture(params=["rows", "grey", "colour"])
def model(request, tmp_path):
    """A model of bytes in the file m.safetensors: dense, or of grey or colour images."""
    shape = SHAPES.get(request.param, (30,))
    X = RNG.integers(0, 256, (20, int(np.prod(shape)))).astype(np.uint8)
    hidden = ["conv3x3:9:max2", 8] if len(shape) == 3 else [16, 8]
    scaling = Scaling.fit(torch.from_numpy(X))
    classes = ["cat", "dog", "owl", "yak"]
    network = Network.build(shape, hidden, 4, "softmax", scaling=scaling, classes=classes, seed=1)
    network.save(tmp_path / "m.safetensors")
    IntegerModel(quantise(network)).save(tmp_path / "i.safetensors")
    return network


@pytest.fixture
def pixels(tmp_path):
    """Grey and colour images in the folder new, one of them further down."""
    (tmp_path / "new/more").mkdir(parents=True)
    made = {}
    for name, mode in (("a.png", "L"), ("b.PNG", "RGB"), ("more/c.bmp", "RGB")):
        array = RNG.integers(0, 256, (6, 5) if mode == "L" else (6, 5, 3)).astype(np.uint8)
        made[name] = Image.fromarray(array, mode)
        made[name].save(tmp_path / "new" / name)
    (tmp_path / "new/notes.txt").write_text("no image")
    (tmp_path / "new/.hidden.png").write_bytes(b"no image")
    return made


def rows(network, images):
    """What the model should see: the definition, by Pillow's own conversions."""
    if network.shape_in[0] == 3:
        return np.stack([np.asarray(x.convert("RGB")).transpose(2, 0, 1).ravel() for x in images])
    return np.stack([np.asarray(x.convert("L")).ravel() for x in images])


@pytest.mark.parametrize("file", ["m.safetensors", "i.safetensors"])
def test_a_folder_and_a_file(command, model, pixels, file):
    wanted = load(file).predict(rows(model, pixels.values())).tolist()
    code, out, _ = command("predict", file, "--data", "new", "--json", "answers.json")
    lines = [f"new/{name}\t{label}" for name, label in zip(pixels, wanted, strict=True)]
    assert (code, out.splitlines()) == (0, lines)
    with open("answers.json") as answers:  # noqa: PTH123
        found = json.load(answers)
    assert found["files"] == [f"new/{name}" for name in pixels]
    assert found["predicted"] == wanted
    assert command("predict", file, "--data", "new/b.PNG")[1] == f"new/b.PNG\t{wanted[1]}\n"


def test_another_size_is_refused(command, model, tmp_path):
    Image.fromarray(np.zeros((7, 5), np.uint8)).save(tmp_path / "tall.png")
    code, _, err = command("predict", "m.safetensors", "--data", "tall.png")
    takes = "30 numbers" if len(model.shape_in) == 1 else "5 x 6"
    sentence = f"zeroone: tall.png is 5 x 7 pixels, the network takes {takes}.\n"
    assert (code, err) == (2, sentence)


def test_wrong_images_get_one_sentence(command, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "a.png")
    words = ["--hidden", "5", "--epochs", "1", "--quiet", "--out", "run"]
    command("train", "--data", "digits", *words)
    Network.build((64,), [5], 2, "softmax").save(tmp_path / "m.safetensors")
    for model, data, sentence in (
        ("m.safetensors", "empty", "empty holds no images"),
        ("m.safetensors", "bad.png", "bad.png cannot be read as an image"),
        ("m.safetensors", "away.png", "there is no image away.png"),
        ("run", "a.png", "the model was not trained on bytes"),
    ):
        code, _, err = command("predict", model, "--data", data)
        assert (code, err.count("\n")) == (2, 1), data
        assert sentence in err
    monkeypatch.setitem(sys.modules, "PIL", None)
    _, _, err = command("predict", "m.safetensors", "--data", "a.png")
    assert err == "zeroone: this needs PIL: pip install 'zeroone-nn[images]'.\n"
