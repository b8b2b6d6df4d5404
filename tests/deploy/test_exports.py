"""Every engine gives the same integers as the numpy reference, to the bit."""

import json
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import browser
from benchmarks.engines import STRICT, by_c, by_c_program, engines, has_32_bits
from integer_networks import random_network, random_samples, whole_network
from zeroone.deploy import IntegerModel, IntegerNetwork, load, quantise
from zeroone.deploy.build import LEVELS
from zeroone.deploy.exporters.c import size_of, write_c
from zeroone.deploy.exporters.html import describe, guess_image, write_html
from zeroone.deploy.exporters.onnx import OPSET, write_onnx
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.nn.heads import SoftmaxCE
from zeroone.utils.checks import InputError

SAMPLES = 12
FLAGS = [
    ("-O0",),
    ("-O3", "-funroll-loops"),
    ("-m32",),
    # These may fuse operations, or keep more digits than a float has.
    ("-std=gnu99", "-O3", "-march=native"),
    ("-std=gnu99", "-m32", "-mfpmath=387"),
]


def network_of(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    return network, random_samples(rng, network.inputs, SAMPLES)


def how_many(request, few):
    return 1000 if request.config.getoption("--thorough") else few


KERNELS = [f"kernels, {level}" for level in LEVELS]


@pytest.mark.parametrize("engine", ["onnxruntime", *KERNELS, "c", "node"])
def test_random_networks(engine, tmp_path, request):
    if engine not in engines():
        pytest.skip(f"{engine} is not installed")
    few = {"onnxruntime": 150, "c": 25, "node": 25}.get(engine, 300)
    run = engines()[engine]
    for seed in range(how_many(request, few)):
        network, X = network_of(seed)
        assert np.array_equal(run(network, X, tmp_path), network.scores(X)), seed


@pytest.mark.parametrize("values", [np.arange(-128, 128), np.array([-128, -1, 0, 1] * 64)])
def test_every_int8_weight_survives(values, tmp_path):
    """The absolute value of -128 is no int8: it must not pass for one of -1, 0 and 1."""
    weights = np.eye(16) * 64, values.reshape(16, 16), values.reshape(16, 16)[::-1]
    stages = [Stage(Map(W.astype(np.int8), (16,)), np.zeros(16, np.int32)) for W in weights]
    network = IntegerNetwork(Inputs(16), stages, list(range(16)), SoftmaxCE())
    X = random_samples(np.random.default_rng(0), network.inputs, 40)
    path = IntegerModel(network).save(tmp_path / "m.safetensors")
    for stage, again in zip(stages, load(path).network.stages, strict=True):
        assert np.array_equal(stage.main.weights, again.main.weights)
    wanted = (X.astype(int) > 0) @ weights[1].T
    wanted = (wanted > 0) @ weights[2].T
    for name, run in engines().items():
        assert np.array_equal(run(network, X, tmp_path), wanted), name


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_c_by_any_compiler_options(flags, tmp_path, request):
    if "-m32" in flags and not has_32_bits(tmp_path):
        pytest.skip("gcc makes no programs of 32 bits here")
    for seed in range(how_many(request, 5) if flags == ("-m32",) else 5):
        network, X = network_of(1000 + seed)
        assert np.array_equal(by_c_program(network, X, tmp_path, flags), network.scores(X)), seed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_c_is_clean(tmp_path):
    """No undefined behaviour, no access beyond an array, no floats after the inputs."""
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
    """In the machine code, no function that adds bits multiplies."""
    for seed in range(200):
        network, _ = network_of(seed)
        write_c(network, tmp_path / "network.c")
        text = (tmp_path / "network.c").read_text()
        if all(name in text for name in ("window_bits", "add_bits")):
            break
    write_c(network_of_signs(), tmp_path / "signs.c")
    code = {}
    for source in ("network.c", "signs.c"):
        command = ["gcc", "-std=c99", "-Os", "-fno-inline", "-S", "-o", "-", source]
        made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        parts = re.split(r"^([a-z_]\w*)[\w.]*:$", made.stdout, flags=re.MULTILINE)  # x.constprop.0
        code |= dict(zip(parts[1::2], parts[2::2], strict=True))
    hidden = {"add_bits", "window_bits", "add_signs", "count"}
    assert hidden <= code.keys()
    for name in (hidden | {"compare", "right_of", "below", "clear"}) & code.keys():
        assert not re.search(r"^\s+\w*(mul|madd)", code[name], re.MULTILINE), name
    # In the loops around them a compiler may multiply for an address; the source does not.
    for body in re.findall(r"^static void layer_[1-9].*?^}", text, re.DOTALL | re.MULTILINE):
        assert not re.search(r"[\w)] \* ", body.replace("uint8_t *", "").replace("int32_t *", ""))


def network_of_signs():
    """Make a dense network with ternary weights in the second layer."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-60, 61, (70, 40)), rng.integers(-1, 2, (50, 70)), np.eye(5, 50) * 9
    stages = [
        Stage(Map(W.astype(np.int8), (W.shape[1],)), np.zeros(len(W), np.int32)) for W in weights
    ]
    return IntegerNetwork(Inputs(40), stages, list("abcde"), SoftmaxCE())


def test_signs_take_two_bits_in_c(tmp_path):
    network = network_of_signs()
    assert size_of(network).constants == 70 * 40 + 2 * 4 * 50 * 3 + 50 * 5 + 4 * (70 + 50 + 5)
    if shutil.which("gcc"):
        X = random_samples(np.random.default_rng(1), network.inputs, 30)
        assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))


def test_onnx_is_what_it_says(tmp_path):
    import onnx

    network, X = network_of(3)
    path = tmp_path / "m.onnx"
    write_onnx(network, path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [x.version for x in model.opset_import] == [OPSET]
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert (shape[0].dim_param, shape[1].dim_value) == ("samples", network.n_features)
    about = {prop.key: json.loads(prop.value) for prop in model.metadata_props}
    assert about["classes"] == network.classes
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


ODD = [
    '"',
    "\\",
    "??/",
    "ä\n",
    "*/ int x; /*",
    "/*",
    "//",
    "\r",
    "\x1b",
    "éé/",
    "%s",
    "??/\n",
    "\\\n",
]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("last", ODD)
def test_labels_and_names_in_c(last, tmp_path):
    names = [*(name for name in ODD if name != last), last]
    weights = np.arange(len(ODD) ** 2, dtype=np.int8).reshape(len(ODD), -1) % 64
    stages = [Stage(Map(weights, (len(ODD),)), np.zeros(len(ODD), np.int32))]
    network = IntegerNetwork(
        Inputs(len(ODD)), stages, names, SoftmaxCE(), feature_names=list(reversed(names))
    )
    write_c(network, tmp_path / "network.c")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "network.h"\nint main(void) {\n'
        "for (int k = 0; k < NETWORK_CLASSES; k++) { fputs(network_labels[k], stdout); "
        "putchar(0); }\nreturn 0; }\n"
    )
    command = ["gcc", *STRICT, "-Wcomment", "-Wtrigraphs", "-o", "program", "main.c", "network.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    said = subprocess.run([tmp_path / "program"], check=True, capture_output=True).stdout
    assert said.decode().split("\0")[:-1] == names


def test_a_label_that_c_would_cut_is_refused(tmp_path):
    network, _ = network_of(4)
    object.__setattr__(network, "classes", ["a\0b", *network.classes[1:]])
    with pytest.raises(InputError, match="holds a NUL"):
        write_c(network, tmp_path / "network.c")
    assert not list(tmp_path.iterdir())


def test_images_are_guessed():
    for seed in range(50):
        network, _ = network_of(seed)
        first = network.stages[0].main
        if first.kernel and network.inputs.taken is None and first.shape_in[0] != 2:
            assert guess_image(network) == first.shape_in
    for shape in ((1, 100, 100), (-1, -1, network.n_features), (network.n_features, 1, 1)):
        with pytest.raises(InputError, match="are no image of shape"):
            write_html(network, Path("nowhere.html"), shape)
    named = replace(network, feature_names=[f"column {k}" for k in range(network.n_features)])
    if not named.stages[0].main.kernel:
        assert guess_image(named) == ()


NEEDS_BROWSER = pytest.mark.skipif(browser.why_not() is not None, reason=str(browser.why_not()))


@NEEDS_BROWSER
def test_random_networks_in_a_browser(tmp_path, request):
    page = tmp_path / "page.html"
    write_html(network_of(0)[0], page)
    code = "return arguments[1].map(s => Array.from(run(readNetwork(arguments[0]), s).scores))"
    with browser.browser() as driver:
        driver.get(page.as_uri())
        for seed in range(how_many(request, 40)):
            network, X = network_of(seed)
            found = driver.execute_script(code, describe(network), network.check(X).tolist())
            assert np.array_equal(np.array(found), network.scores(X)), seed


@NEEDS_BROWSER
def test_the_page_in_a_browser(tmp_path):
    """It loads without errors or requests, and shows all classes and layers."""
    for wanted in (is_image, is_row):
        seed = next(seed for seed in range(99) if wanted(network_of(seed)[0]))
        network, _ = network_of(seed)
        page = tmp_path / f"{seed}.html"
        write_html(network, page)
        with browser.browser() as driver:
            driver.get(page.as_uri())
            assert browser.complaints(driver) == []
            assert browser.requests(driver) == []
            rows = driver.execute_script("return byId('classes').children.length")
            assert rows == len(network.classes)
            layers = driver.execute_script("return byId('bits').children.length")
            assert layers == len(network.stages) - 1


@NEEDS_BROWSER
def test_bits_of_a_filter_are_a_map(tmp_path):
    """Five filters of 3 x 3 stand in two rows, with gaps; bars begin at one place."""
    network = quantise(whole_network("average"))
    labels = ["a", "two words", "w" * 60, "d"]
    page = tmp_path / "page.html"
    write_html(replace(network, classes=labels), page)
    with browser.browser() as driver:
        driver.get(page.as_uri())
        bits, pixels, wide = driver.execute_script(
            "const sample = Array.from({length: 36}, (_, i) => (i % 7 ? 0 : 255)); show(sample);"
            "const canvas = document.querySelector('#bits canvas');"
            "const seen = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
            "const bits = run(network, sample).bits[0];"
            "return [[...bits], [...seen.data], canvas.width]"
        )
        lefts = "[...document.querySelectorAll('.bar')].map(b => b.getBoundingClientRect().left)"
        assert len(set(driver.execute_script(f"return {lefts}"))) == 1
    shown = np.array(pixels).reshape(-1, wide, 4)
    expected = np.zeros((8, 16, 4)).astype(int)  # gaps and places without a filter are transparent
    ink, paper = (27, 27, 31, 255), (253, 253, 252, 255)
    for k, filter_ in enumerate(np.array(bits).reshape(5, 3, 3)):
        y, x = 4 * (k // 4), 4 * (k % 4)
        expected[y : y + 3, x : x + 3] = np.where(filter_[..., None], ink, paper)
    assert 0 < sum(bits) < 45
    assert np.array_equal(shown, expected[:7, :15])


@NEEDS_BROWSER
def test_an_opened_image_is_seen_as_it_is(tmp_path):
    """The right size is taken exactly, others are not stretched, a broken file is named."""
    seed = next(seed for seed in range(99) if is_image(network_of(seed)[0]))
    network, _ = network_of(seed)
    channels, height, width = guess_image(network)
    page = tmp_path / "page.html"
    write_html(network, page)
    pixels = np.random.default_rng(0).integers(0, 200, (height, width, channels)).astype(np.uint8)
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(tmp_path / "same.png")
    Image.new("RGB", (4 * width, height), "white").save(tmp_path / "wide.png")
    (tmp_path / "broken.png").write_text("no image")
    sample = pixels.transpose(2, 0, 1).reshape(1, -1)
    if not network.inputs.are_bytes:
        low = float(network.inputs.low.min())
        high = float((network.inputs.low + 255 / network.inputs.rate).max())
        sample = (low + sample / 255 * (high - low)).astype(np.float32)
    with browser.browser() as driver:
        driver.get(page.as_uri())
        field = driver.find_element("id", "file")

        def open_image(name):
            driver.execute_script("byId('note').textContent = '...'")
            field.send_keys(str(tmp_path / name))
            for _ in range(100):
                note = driver.execute_script("return byId('note').textContent")
                if note != "...":
                    return note
                time.sleep(0.05)
            raise AssertionError(name)

        for _ in range(2):  # the same file twice
            assert open_image("same.png") == ""
            answer = driver.execute_script("return byId('answer').textContent")
            assert answer == network.predict(sample)[0]
            driver.find_element("id", "clear").click()
            assert driver.execute_script("return byId('answer').textContent") == ""
        assert open_image("wide.png") == ""
        assert "broken.png cannot be read" in open_image("broken.png")
        assert browser.complaints(driver) == []


def is_image(network):
    return guess_image(network)[:1] == (1,) and network.inputs.taken is None


def is_row(network):
    return guess_image(network) == ()


def test_a_page_cannot_be_broken_by_a_label(tmp_path):
    network, _ = network_of(4)
    evil = "</script><script>alert(1)</script>"
    object.__setattr__(network, "classes", [evil, *network.classes[1:]])
    write_html(network, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
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
