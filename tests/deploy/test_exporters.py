"""An exporter is one file that registers itself: the command line finds it by name."""

import importlib

import numpy as np
import pytest

from integer_networks import random_network, whole_network
from zeroone import IntegerModel, load, quantise
from zeroone.deploy.exporters import EXPORTERS, exporters
from zeroone.utils.checks import InputError

MINE = '''
from zeroone.deploy.exporters import register_exporter

@register_exporter("text", suffix=".txt")
def write(network, path):
    """Write all weights as text."""
    path.write_text("\\n".join(str(m.weights.tolist()) for m in network.maps))
    return [f"{path}: {len(network.maps)} maps"]
'''


@pytest.fixture(autouse=True)
def _restore():
    kept = exporters()  # those of the package register only once
    for name, exporter in kept.items():
        if not str(exporter.write.__module__).startswith("zeroone."):
            del EXPORTERS[name]  # another test's
    yield
    EXPORTERS.clear()
    EXPORTERS.update(kept)


@pytest.fixture
def network(command, tmp_path):
    """A network in the file m.safetensors, in the folder of the commands."""
    made = random_network(np.random.default_rng(0))
    IntegerModel(made).save(tmp_path / "m.safetensors")
    return made


def check_commands(command, network, tmp_path):
    code, out, _ = command("export", "m.safetensors", "--to", "text", "--out", "m.txt")
    assert (code, out) == (0, f"m.txt: {len(network.maps)} maps\n")
    lines = (tmp_path / "m.txt").read_text().splitlines()
    assert lines == [str(m.weights.tolist()) for m in network.maps]
    for words, sentence in (
        (("--to", "text", "--out", "m.c"), "an export to text is a .txt file, not m.c."),
        (("--to", "texd", "--out", "m.txt"), "Did you mean 'text'?"),
        (("--to", "exe", "--out", "m.exe"), "choose from c, html, onnx, text"),
        (("--to", "text", "--out", "m.txt", "--image", "1,2,3"), "--image is for --to html."),
    ):
        code, _, err = command("export", "m.safetensors", *words)
        assert code == 2
        assert sentence in err


def test_one_file_adds_an_exporter(command, network, tmp_path, monkeypatch):
    (tmp_path / "text_exporter.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("text_exporter")
    monkeypatch.delitem(importlib.sys.modules, "text_exporter")
    check_commands(command, network, tmp_path)


def test_an_installed_package_adds_an_exporter(command, network, tmp_path, monkeypatch):
    """Its entry point names the module, which nobody has imported."""
    (tmp_path / "packed_exporter.py").write_text(MINE)
    about = tmp_path / "packed_exporter-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: packed-exporter\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[zeroone.exporters]\ntext = packed_exporter\n")
    monkeypatch.syspath_prepend(tmp_path)
    check_commands(command, network, tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "packed_exporter")


def test_each_file_of_the_package_registers_itself():
    assert list(exporters()) == ["c", "html", "onnx"]
    for exporter in exporters().values():
        assert exporter.write.__doc__


def test_models_export_themselves(tmp_path, monkeypatch):
    """A network, its integer form and the model of it write the same files."""
    monkeypatch.chdir(tmp_path)
    network = whole_network("dense")
    integers = quantise(network)
    for to, exporter in exporters().items():
        written = set()
        for k, model in enumerate((network, integers, IntegerModel(integers))):
            (tmp_path / str(k)).mkdir(exist_ok=True)
            path = tmp_path / str(k) / f"m{exporter.suffix}"
            lines = model.export(to, str(path) if k else path)
            assert str(path) in lines[0]
            written.add(path.read_bytes())
        assert len(written) == 1, to
    page = network.export("html", "m.html", image=(1, 3, 3))
    assert "m.html" in page[0]
    with pytest.raises(InputError, match="image or --image is for --to html"):
        network.export("c", "m.c", image=(1, 3, 3))
    with pytest.raises(InputError, match=r"an export to c is a \.c file, not m\.onnx"):
        network.export("c", "m.onnx")
    with pytest.raises(InputError, match="Did you mean 'onnx'"):
        network.export("onx", "m.onnx")


def test_a_folder_is_loaded_as_its_model(tmp_path):
    network = whole_network("dense")
    network.save(tmp_path / "model.safetensors")
    assert load(tmp_path).predict(np.eye(9)).tolist() == network.predict(np.eye(9)).tolist()
    IntegerModel(quantise(network)).save(tmp_path / "model.safetensors")
    assert isinstance(load(str(tmp_path)), IntegerModel)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no model file .*model\.safetensors"):
        load(tmp_path)
