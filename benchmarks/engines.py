"""All engines that run an integer network, behind one call: the scores of a matrix of samples.

python benchmarks/deploy.py          # compares them on MNIST
pytest tests/deploy/test_exports.py  # compares them on random networks
"""

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import browser
from zeroone.deploy import IntegerModel, IntegerNetwork
from zeroone.deploy.build import LEVELS, kernels
from zeroone.deploy.exporters import html as pages
from zeroone.deploy.exporters.c import write_c
from zeroone.deploy.kernel import KernelNetwork

Scores = NDArray[np.int32]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2")
RUN = """
const fs = require("fs");
const { network, kind, samples, width } = JSON.parse(fs.readFileSync(process.argv[2]));
const bytes = fs.readFileSync(samples);
const floats = () => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
const all = kind === "float32" ? floats() : bytes;
const ready = readNetwork(network);
const scores = [];
for (let i = 0; i < all.length; i += width) {
  scores.push(Array.from(run(ready, all.slice(i, i + width)).scores));
}
process.stdout.write(JSON.stringify(scores));
"""


def by_numpy(network: IntegerNetwork, X: NDArray[Any], _folder: Path) -> Scores:
    return network.scores(X)


def by_onnxruntime(network: IntegerNetwork, X: NDArray[Any], _folder: Path) -> Scores:
    raw = network.check(X)
    return IntegerModel(network, threads=1).session.run(["scores"], {"inputs": raw})[0]


def by_kernels(network: IntegerNetwork, X: NDArray[Any], folder: Path, level: int) -> Scores:
    """Run the kernels of a level, or ONNX Runtime for networks that they do not support."""
    made = KernelNetwork.of(network, level=level)
    return by_onnxruntime(network, X, folder) if made is None else made.scores(network.check(X))


def by_c(
    network: IntegerNetwork, X: NDArray[Any], folder: Path, flags: tuple[str, ...] = ()
) -> Scores:
    """Compile the C export strictly and call it in this process."""
    source = folder / "network.c"
    write_c(network, source)
    library = folder / "network.so"
    command = ["gcc", *STRICT, *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    handle = ctypes.CDLL(str(library))
    raw = np.ascontiguousarray(network.check(X))
    scores = np.zeros((len(raw), len(network.classes)), dtype=np.int32)
    for sample, row in zip(raw, scores, strict=True):
        handle.network_scores(
            sample.ctypes.data_as(ctypes.c_void_p), row.ctypes.data_as(ctypes.c_void_p)
        )
    import _ctypes

    _ctypes.dlclose(handle._handle)  # the next library has the same name
    return scores


def by_c_program(
    network: IntegerNetwork, X: NDArray[Any], folder: Path, flags: tuple[str, ...] = ()
) -> Scores:
    """Compile the C export as a program that reads samples and writes scores: for -m32."""
    source = folder / "network.c"
    write_c(network, source)
    kind = "uint8_t" if network.inputs.are_bytes else "float"
    (folder / "main.c").write_text(
        '#include <stdio.h>\n#include "network.h"\n'
        f"int main(void) {{ static {kind} x[NETWORK_INPUTS]; int32_t s[NETWORK_CLASSES];\n"
        "while (fread(x, sizeof x, 1, stdin) == 1) { network_scores(x, s); "
        "fwrite(s, sizeof s, 1, stdout); } return 0; }\n"
    )
    program = folder / "program"
    files = [str(folder / "main.c"), str(source)]
    subprocess.run(["gcc", *STRICT, *flags, "-o", str(program), *files], check=True)
    raw = np.ascontiguousarray(network.check(X)).tobytes()
    out = subprocess.run([str(program)], input=raw, check=True, capture_output=True).stdout
    return np.frombuffer(out, dtype=np.int32).reshape(-1, len(network.classes))


def by_node(network: IntegerNetwork, X: NDArray[Any], folder: Path) -> Scores:
    """Run the code of the HTML page in Node."""
    engine = Path(pages.__file__).with_name("network.js").read_text(encoding="utf-8")
    (folder / "run.js").write_text(engine + RUN, encoding="utf-8")
    raw = network.check(X)
    (folder / "samples.bin").write_bytes(np.ascontiguousarray(raw).tobytes())
    job = {"network": pages.describe(network), "kind": raw.dtype.name, "width": raw.shape[1]}
    job["samples"] = str(folder / "samples.bin")
    (folder / "job.json").write_text(json.dumps(job))
    command = ["node", str(folder / "run.js"), str(folder / "job.json")]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return np.array(json.loads(out), dtype=np.int32)


def by_browser(network: IntegerNetwork, X: NDArray[Any], folder: Path) -> Scores:
    """Run the HTML page in Chromium."""
    page = folder / "page.html"
    pages.write_html(network, page)
    code = "return arguments[0].map(s => Array.from(run(window.ready, s).scores))"
    raw, scores = network.check(X), []
    with browser.browser() as driver:
        driver.get(page.as_uri())
        driver.execute_script("window.ready = readNetwork(arguments[0])", pages.describe(network))
        for k in range(0, len(raw), 200):
            scores += driver.execute_script(code, raw[k : k + 200].tolist())
    return np.array(scores, dtype=np.int32)


def engines() -> dict[str, Callable[[IntegerNetwork, NDArray[Any], Path], Scores]]:
    """Return the engines of this machine; numpy's is the reference."""
    found = {"numpy": by_numpy, "onnxruntime": by_onnxruntime}
    if shutil.which("gcc"):
        found["c"] = by_c
    if kernels().library is not None:
        for level in range(kernels().level + 1):
            found[f"kernels, {LEVELS[level]}"] = partial(by_kernels, level=level)
    if shutil.which("node"):
        found["node"] = by_node
    if browser.why_not() is None:
        found["browser"] = by_browser
    return found


def has_32_bits(folder: Path) -> bool:
    """Return whether gcc can make 32-bit programs that run here."""
    if not shutil.which("gcc"):
        return False
    (folder / "probe.c").write_text("#include <stdio.h>\nint main(void) { return 0; }\n")
    command = ["gcc", "-m32", "-o", str(folder / "probe"), str(folder / "probe.c")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return False
    return subprocess.run([str(folder / "probe")], check=False).returncode == 0
