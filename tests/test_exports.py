"""Every engine gives the same integers as the numpy reference, to the bit."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import browser
from engines import by_c, by_c_program, engines, has_32_bits
from integer_networks import random_network, random_samples
from zeroone.checks import InputError
from zeroone.deploy import IntegerModel
from zeroone.deploy.c import write_c
from zeroone.deploy.html import describe, guess_image, write_html
from zeroone.deploy.onnx import OPSET, write_onnx

SAMPLES = 12


def network_of(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    return network, random_samples(rng, network.inputs, SAMPLES)


def how_many(request, few):
    return 1000 if request.config.getoption("--thorough") else few


@pytest.mark.parametrize("engine", ["onnxruntime", "c", "node"])
def test_random_networks(engine, tmp_path, request):
    if engine not in engines():
        pytest.skip(f"{engine} is not installed")
    few = {"onnxruntime": 150, "c": 25, "node": 25}[engine]
    run = engines()[engine]
    for seed in range(how_many(request, few)):
        network, X = network_of(seed)
        assert np.array_equal(run(network, X, tmp_path), network.scores(X)), seed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("flags", [("-O0",), ("-O3", "-funroll-loops"), ("-Os",), ("-m32",)])
def test_c_by_any_compiler_options(flags, tmp_path, request):
    if flags == ("-m32",) and not has_32_bits(tmp_path):
        pytest.skip("gcc makes no programs of 32 bits here")
    for seed in range(how_many(request, 40) // 8):
        network, X = network_of(1000 + seed)
        assert np.array_equal(by_c_program(network, X, tmp_path, flags), network.scores(X)), seed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_c_is_clean(tmp_path):
    """No undefined behaviour, no reading beyond an array, nothing floating after the inputs."""
    flags = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-g")
    for seed in range(6):
        network, X = network_of(2000 + seed)
        assert np.array_equal(by_c_program(network, X, tmp_path, flags), network.scores(X))
        source = (tmp_path / "network.c").read_text()
        assert "malloc" not in source
        hidden = re.search(r"static void add_bits.*?^}", source, re.DOTALL | re.MULTILINE)
        assert hidden is None or " * " not in hidden.group()
        if network.inputs.are_bytes:
            assert not re.search(r"\b(float|double)\b", source)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_hidden_layers_multiply_nothing(tmp_path):
    """In the machine code: no instruction that multiplies in what adds up bits."""
    for seed in range(200):
        network, _ = network_of(seed)
        write_c(network, tmp_path / "network.c")
        if "window_bits" in (text := (tmp_path / "network.c").read_text()) and "add_bits" in text:
            break
    command = ["gcc", "-std=c99", "-Os", "-fno-inline", "-S", "-o", "-", "network.c"]
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^([a-z_]\w*)[\w.]*:$", out, flags=re.MULTILINE)  # add_bits.constprop.0 too
    code = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert {"add_bits", "window_bits"} <= code.keys()
    for name in {"add_bits", "window_bits", "compare", "right_of", "below"} & code.keys():
        assert not re.search(r"\bi?mul\w*\b|\bmadd\b", code[name]), name


def test_onnx_is_what_it_says(tmp_path):
    import onnx

    network, X = network_of(3)
    path = write_onnx(network, tmp_path / "m.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [x.version for x in model.opset_import] == [OPSET]
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert (shape[0].dim_param, shape[1].dim_value) == ("samples", network.n_features)
    from zeroone.deploy.runtime import open_session

    session = open_session(str(path), 1)
    raw = network.check(X)
    for rows in (1, 5, 12):
        scores, best = session.run(["scores", "class"], {"inputs": raw[:rows]})
        assert np.array_equal(scores, network.scores(X[:rows]))
        assert np.array_equal(np.array(network.classes)[best], network.predict(X[:rows]))
        assert np.array_equal(best, scores.argmax(axis=1))


def test_names_that_c_cannot_have(tmp_path):
    network, _ = network_of(0)
    for name in ("3x.c", "a-b.c", "é.c", "a b.c"):
        with pytest.raises(InputError, match="a name in C"):
            write_c(network, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_labels_in_c(tmp_path):
    network, X = network_of(4)
    odd = ['"', "\\", "??/", "ä\n", "<>"][: len(network.classes)]
    object.__setattr__(network, "classes", [*odd, *network.classes[len(odd) :]])
    assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))


def test_images_are_guessed():
    network, _ = network_of(0)
    for seed in range(50):
        network, _ = network_of(seed)
        if network.stages[0].main.kernel:
            assert guess_image(network) == network.stages[0].main.shape_in
    with pytest.raises(InputError, match="are no image of shape"):
        write_html(network, Path("nowhere.html"), (1, 100, 100))


@pytest.mark.skipif(browser.why_not() is not None, reason=str(browser.why_not()))
def test_the_page_in_a_browser(tmp_path):
    """It loads with no error and no request, and its scores are the reference's."""
    seeds = [
        next(s for s in range(99) if wanted(network_of(s)[0])) for wanted in (is_image, is_row)
    ]
    for seed in seeds:
        network, X = network_of(seed)
        page = write_html(network, tmp_path / f"{seed}.html")
        raw = network.check(X).tolist()
        with browser.browser() as driver:
            driver.get(page.as_uri())
            found = driver.execute_script(
                "return arguments[0].map(s => Array.from(run(network, s).scores))", raw
            )
            assert np.array_equal(np.array(found), network.scores(X))
            assert browser.complaints(driver) == []
            assert browser.requests(driver) == []
            assert driver.execute_script("return byId('answer').textContent") in network.classes
            rows = driver.execute_script("return byId('classes').children.length")
            assert rows == len(network.classes)
            layers = driver.execute_script("return byId('bits').children.length")
            assert layers == len(network.stages) - 1


def is_image(network):
    return bool(network.stages[0].main.kernel) and network.inputs.taken is None


def is_row(network):
    return not network.stages[0].main.kernel and guess_image(network) is None


def test_a_page_cannot_be_broken_by_a_label(tmp_path):
    network, _ = network_of(4)
    evil = "</script><script>alert(1)</script>"
    object.__setattr__(network, "classes", [evil, *network.classes[1:]])
    text = write_html(network, tmp_path / "p.html").read_text()
    assert evil not in text
    data = re.search(r'id="network">(.*?)</script>', text).group(1)
    assert json.loads(data)["classes"][0] == evil
    assert json.loads(data)["stages"] == json.loads(json.dumps(describe(network)["stages"]))


def test_runtime_is_the_reference():
    network, X = network_of(7)
    model = IntegerModel(network)
    assert np.array_equal(model.scores(X), network.scores(X))
    assert np.array_equal(model.predict(X), network.predict(X))
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(model.predict_proba(X).argmax(axis=1), network.scores(X).argmax(axis=1))
