"""The model zoo: files, cards and the page about them agree."""

from pathlib import Path

import numpy as np
import pytest

from zeroone import IntegerModel, load
from zeroone.deploy.zoo import FOLDER, cards
from zeroone.utils.checks import InputError

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"


def test_every_file_has_a_card():
    files = {path.name for path in FOLDER.iterdir() if path.suffix == ".safetensors"}
    assert files == {f"{name}.safetensors" for name in cards()}


@pytest.mark.parametrize("name", cards())
def test_a_card_is_true(name):
    card, model = cards()[name], load(f"zoo/{name}")
    assert isinstance(model, IntegerModel)
    assert (FOLDER / f"{name}.safetensors").stat().st_size == card["bytes"]
    images = np.random.default_rng(0).integers(0, 256, (3, model.n_features), dtype=np.uint8)
    assert np.array_equal(model.scores(images), model.network.scores(images))
    row = f"| `zoo/{name}` | {100 * card['test_error']:.2f}% | {card['bytes']:,} |"
    assert row in PAGE.read_text(encoding="utf-8")
    for command in card["commands"]:
        assert command in " ".join(PAGE.read_text(encoding="utf-8").replace("\\\n", "").split())


def test_an_unknown_name():
    with pytest.raises(InputError, match=r"no file zoo/nmist, and the model zoo has .*mnist"):
        load("zoo/nmist")
    with pytest.raises(InputError, match="there is no file zoo/xxx"):
        load("zoo/" + 300 * "x")


def test_files_of_that_name_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("zoo").mkdir()
    Path("zoo/mnist").write_bytes(b"")
    with pytest.raises(InputError, match="zoo/mnist"):
        load("zoo/mnist")


def test_commands_take_their_names(command, tmp_path):
    code, out, _ = command("export", "zoo/mnist", "--to", "c", "--out", str(tmp_path / "mnist.c"))
    assert code == 0
    assert "mnist.c" in out
