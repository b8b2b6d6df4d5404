"""``zeroone bench inference``: the speed of an integer network beside ReLU networks.

All networks have the same shape and random weights, and take turns: seconds do not depend on what
a network has learned. Each gets its inputs in its own type, so that none pays for a conversion.
"""

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import nn

from benchmarks.bench_train import N_CLASSES, N_FEATURES, as_widths
from zeroone.commands.checks import check_output
from zeroone.commands.console import print_table
from zeroone.deploy import IntegerModel, IntegerNetwork, quantise, write_integers
from zeroone.deploy.build import LEVELS, kernels
from zeroone.deploy.exporters.onnx import make_model
from zeroone.deploy.runtime import open_session
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training.text_progress import say
from zeroone.utils.checks import count
from zeroone.utils.records import new_record, write_record

BATCHES = (1, 16, 256, 4096)
OURS, TORCH = "0/1 int8", "ReLU float32, torch"
LEAST_SECONDS = 0.05  # of a single measurement


def random_bytes(n: int) -> NDArray[np.uint8]:
    """Make samples in the shape of MNIST."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, N_FEATURES), dtype=np.uint8)


def make_layers(widths: Sequence[int]) -> nn.Sequential:
    """Make a ReLU network of these widths."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_relu(hidden: Sequence[int]) -> nn.Sequential:
    """Make one for images of MNIST, with the same random weights each time."""
    torch.manual_seed(0)
    return make_layers([N_FEATURES, *hidden, N_CLASSES]).eval()


def make_ours(hidden: Sequence[int]) -> Network:
    """Make a 0/1 network of the same shape, for bytes."""
    scaling = Scaling.fit(torch.from_numpy(random_bytes(64)))
    return Network.build((N_FEATURES,), hidden, N_CLASSES, SoftmaxCE(), scaling=scaling)


def relu_as_onnx(relu: nn.Sequential) -> bytes:
    """Write a ReLU network as ONNX, for ONNX Runtime."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, last = [], [], "inputs"
    for k, layer in enumerate(relu):
        if isinstance(layer, nn.Linear):
            W, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
            constants += [numpy_helper.from_array(a, f"{n}{k}") for a, n in ((W, "W"), (b, "b"))]
            node = helper.make_node("Gemm", [last, f"W{k}", f"b{k}"], [f"u{k}"], transB=1)
        else:
            node = helper.make_node("Relu", [last], [f"u{k}"])
        nodes.append(node)
        last = f"u{k}"
    inputs = helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["n", N_FEATURES])
    output = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", N_CLASSES])
    graph = helper.make_graph(nodes, "relu", [inputs], [output], constants)
    opset = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return model


def contenders(network: IntegerNetwork, relu: nn.Sequential) -> dict[str, Callable[[Any], Any]]:
    """Return the functions to time, by name: of a batch of bytes (ours) or of float32 numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends another package
        from torch.ao.quantization import quantize_dynamic

        dynamic = quantize_dynamic(  # type: ignore[no-untyped-call]
            relu, {nn.Linear}, dtype=torch.qint8
        )
    threads = torch.get_num_threads()
    ours = IntegerModel(network, threads)
    # Threads that spin after a call would slow down the next measurement.
    ours.session = open_session(make_model(network).SerializeToString(), threads, spin=False)
    theirs = open_session(relu_as_onnx(relu), threads, spin=False)

    def by_torch(module: Any) -> Callable[[Any], Any]:
        def call(batch: Any) -> Any:
            with torch.inference_mode():
                return module(batch)

        return call

    return {
        OURS: ours.engine,
        f"{OURS}, ONNX Runtime": lambda batch: ours.session.run(["scores"], {"inputs": batch}),
        TORCH: by_torch(relu),
        "ReLU float32, ONNX Runtime": lambda batch: theirs.run(None, {"inputs": batch}),
        "ReLU int8 (dynamic), torch": by_torch(dynamic),
    }


def time_in_turns(
    calls: dict[str, Callable[[Any], Any]], inputs: dict[str, Any], repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of each call, interleaved, after one round to warm up."""
    rounds = {}
    for name, call in calls.items():
        call(inputs[name])
        begun = time.perf_counter()
        call(inputs[name])
        rounds[name] = max(1, round(LEAST_SECONDS / (time.perf_counter() - begun)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begun = time.perf_counter()
            for _ in range(rounds[name]):
                call(inputs[name])
            times[name].append((time.perf_counter() - begun) / rounds[name])
    return times


def compare_inference(
    network: IntegerNetwork,
    relu: nn.Sequential,
    repeats: int,
    X: NDArray[np.uint8],
    *,
    quiet: bool = True,
) -> list[dict[str, Any]]:
    """Time the first samples of X; return medians, quartiles and ratios for each batch size."""
    calls, rows = contenders(network, relu), []
    for batch in BATCHES:
        if not quiet:
            say(f"batches of {batch}, threads: {torch.get_num_threads()}")
        floats = X[:batch].astype(np.float32) / 255
        inputs = {
            name: X[:batch]
            if name.startswith(OURS)
            else (torch.from_numpy(floats) if name.endswith("torch") else floats)
            for name in calls
        }
        times = time_in_turns(calls, inputs, repeats)
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        rows.append(
            {
                "batch": batch,
                "threads": torch.get_num_threads(),
                "seconds": medians,
                "quartiles": {n: np.quantile(t, [0.25, 0.75]).tolist() for n, t in times.items()},
                "ratios": {name: _ratio(taken, times[OURS]) for name, taken in times.items()},
            }
        )
    return rows


def _ratio(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """Return how many times faster ours is, turn by turn: quartiles and median."""
    low, median, high = np.quantile(np.array(theirs) / np.array(ours), [0.25, 0.5, 0.75])
    return {"low": float(low), "median": float(median), "high": float(high)}


def file_sizes(network: Network, integers: IntegerNetwork) -> dict[str, int]:
    """Return the bytes of a float32 model, of its integer form, and of that as ONNX."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        float32 = network.save(folder / "float.safetensors").stat().st_size
        int8 = write_integers(integers, folder / "int8.safetensors").stat().st_size
    onnx = len(make_model(integers).SerializeToString())
    return {"float32": float32, "int8": int8, "onnx": onnx}


def describe_kernels() -> str:
    """Say which instructions our own kernels use, or why there are none."""
    found = kernels()
    return f"none: {found.why_not}" if found.library is None else LEVELS[found.level]


def measure_inference(
    hidden: Sequence[int], repeats: int, threads: Sequence[int], *, quiet: bool = False
) -> dict[str, Any]:
    """Measure and print a table; return the record."""
    settings = {"hidden": list(hidden), "repeats": repeats, "threads": list(threads)}
    record = new_record("bench inference", settings, seed=0) | {"kernels": describe_kernels()}
    before, rows = torch.get_num_threads(), []
    network, relu = make_ours(hidden), make_relu(hidden)
    integers = quantise(network)
    try:
        for number in threads:
            torch.set_num_threads(number)
            rows += compare_inference(
                integers, relu, repeats, random_bytes(max(BATCHES)), quiet=quiet
            )
    finally:
        torch.set_num_threads(before)
    sizes = file_sizes(network, integers)
    table = Table()
    for heading in ("threads", "batch", "method", "ms", "quartiles", "samples/s", "ours is faster"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        for name, median in row["seconds"].items():
            low, high = row["quartiles"][name]
            table.add_row(
                str(row["threads"]),
                str(row["batch"]),
                name,
                f"{1e3 * median:.3g}",
                f"{1e3 * low:.3g}-{1e3 * high:.3g}",
                f"{row['batch'] / median:,.0f}",
                ""
                if name == OURS
                else "{median:.1f}x ({low:.1f}-{high:.1f})".format(**row["ratios"][name]),
            )
    shape = "-".join(map(str, (N_FEATURES, *hidden, N_CLASSES)))
    print(f"{shape}, medians of {repeats} measurements, in turns; own kernels: {record['kernels']}")
    print_table(table, width=110)
    print(
        f"file: {sizes['float32']:,} bytes in float32, {sizes['int8']:,} in int8 "
        f"({sizes['float32'] / sizes['int8']:.1f} times smaller), {sizes['onnx']:,} as ONNX"
    )
    return record | {"result": {"rows": rows, "bytes": sizes}}


def bench_inference(
    *,
    hidden: str = "2000,2000",
    repeats: int = 7,
    threads: int | None = None,
    json: Path | None = None,
    quiet: bool = False,
) -> None:
    """Time predictions of an int8 0/1 network beside ReLU networks of the same shape.

    The table shows latency, throughput and how many times faster the 0/1 network is, for batches
    of 1, 16, 256 and 4096 samples, and the sizes of the model files.

    Example: zeroone bench inference --threads 1 --json speed.json

    Args:
        hidden: widths of the hidden layers, such as 300,300.
        repeats: measurements of each.
        threads: CPU threads (default: one, then all cores).
    """
    check_output(json)
    each = sorted({1, torch.get_num_threads()})
    if threads is not None:
        each = [count("threads", threads, most=1024)]
    record = measure_inference(as_widths(hidden), count("repeats", repeats), each, quiet=quiet)
    if json is not None:
        write_record(json, record)
