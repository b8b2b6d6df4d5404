"""Whole calls, from an array of bytes to labels, beside int8 networks in ONNX Runtime.

    python benchmarks/calls.py --json results/calls.json

Everything runs on one thread, in turns, on test images of MNIST. The least time of each is what it
takes where other programs leave the processor alone. The weights are random: times do not depend on
what a network has learned, but on how many inputs are 0.

- Wide networks: ternary weights and our kernels, beside int8 weights in ONNX Runtime.
- Small networks: batches, and one sample, beside a ReLU network in int8, quantised statically.
  ``kernel`` is the compiled code alone, without what Python adds.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bench_inference import describe_kernels, make_layers
from benchmarks.measure import begin, finish, interleaved, parser
from benchmarks.pareto import by_session
from benchmarks.pareto_models import Part, as_int8
from zeroone import load
from zeroone.data.registry import REGISTRY
from zeroone.deploy import IntegerModel, IntegerNetwork
from zeroone.deploy.build import kernels
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.nn.heads import SoftmaxCE

Tasks = dict[str, Callable[[], Any]]
BATCH, FEW = 256, 300  # FEW inputs are in use where the others were removed
RELU = "ReLU 128-128 int8, ONNX Runtime"
SMALL = {
    "ternary 128-128": ((128, 128), "ternary", 784),
    "int8 128-128": ((128, 128), "int8", 784),
    "ternary 256-256": ((256, 256), "ternary", 784),
    "int8 256-256": ((256, 256), "int8", 784),
    f"ternary 256-256, {FEW} inputs": ((256, 256), "ternary", FEW),
    f"int8 256-256, {FEW} inputs": ((256, 256), "int8", FEW),
}


def make_model(hidden: tuple[int, ...], kind: str, n_taken: int, folder: Path) -> IntegerModel:
    """Write a network of random weights to a file, and load it."""
    rng, stages = np.random.default_rng(0), []
    widths = (n_taken, *hidden, 10)
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        few = kind == "ternary" and i < len(hidden)
        W = rng.integers(-1, 2, (n_out, n_in)) if few else rng.normal(0, 15, (n_out, n_in))
        main = Map(W.clip(-64, 64).round().astype(np.int8), (n_in,))
        stages.append(Stage(main, rng.normal(0, 50, n_out).astype(np.int32)))
    taken = np.sort(rng.choice(784, n_taken, replace=False)) if n_taken < 784 else None
    network = IntegerNetwork(Inputs(784, taken), stages, list(range(10)), SoftmaxCE())
    model = load(IntegerModel(network).save(folder / "model.safetensors"))
    assert isinstance(model, IntegerModel)
    model.threads = 1
    return model


def in_session(model: IntegerModel, X: Any) -> Any:
    """Predict in ONNX Runtime, as it was done before there were such kernels."""
    network = model.network
    return np.asarray(network.classes)[
        network.in_parts(model._by_session, network.check(X)).argmax(1)
    ]


def measure(title: str, tasks: Tasks, repeats: int, calls: int) -> dict[str, Any]:
    """Time tasks in turns, some calls at a time; compare each with the first one."""

    def several(task: Callable[[], Any]) -> None:
        for _ in range(calls):
            task()

    turns = interleaved({name: partial(several, task) for name, task in tasks.items()}, repeats)
    times = {name: 1e6 / calls * np.array(one["all"]) for name, one in turns.items()}
    first, rows = next(iter(times.values())), {}
    for name, taken in times.items():
        low, median, high = np.quantile(taken / first, [0.25, 0.5, 0.75]).tolist()
        row = {"us": float(np.median(taken)), "least_us": float(taken.min())}
        row |= {"of_first": median, "low": low, "high": high}
        rows[name] = row | {"least_of_first": float(taken.min() / first.min())}
        print(f"{title}, {name}: {row['us']:.1f} us (least {row['least_us']:.1f}), ", end="")
        print(f"{median:.2f} of the first ({low:.2f}-{high:.2f})", flush=True)
    return rows


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=201, threads=1)
    options = arguments.parse_args()
    record = begin("calls", options) | {"kernels": describe_kernels()}
    if kernels().library is None:
        print(record["kernels"])
        finish(record, options.json)
        return
    test = REGISTRY["mnist"].get().test
    assert test is not None
    X = np.ascontiguousarray(test[0][:2000], np.uint8)
    batch, one, out = X[:BATCH].copy(), X[:1].copy(), np.empty(1, np.int32)
    record["zeros"] = float((batch == 0).mean())
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        layers = make_layers([784, 128, 128, 10]).eval()
        relu = by_session(as_int8(layers, Part(X, np.zeros(0, np.int64)), folder), bytes_in=True)
        wide = {kind: make_model((2000, 2000), kind, 784, folder) for kind in ("int8", "ternary")}
        small = {name: make_model(*about, folder) for name, about in SMALL.items()}
    tasks: Tasks = {
        "int8, ONNX Runtime": partial(in_session, wide["int8"], batch),
        "ternary": partial(wide["ternary"].predict, batch),
        "int8": partial(wide["int8"].predict, batch),
    }
    result["wide"] = measure("2000-2000, 256 samples", tasks, options.repeats, 1)
    tasks = {RELU: partial(relu, batch)}
    tasks |= {name: partial(model.predict, batch) for name, model in small.items()}
    result["small"] = measure("256 samples", tasks, options.repeats, 10)
    for name, model in small.items():
        native: Any = model.native
        tasks = {
            "predict": partial(model.predict, one),
            "predict_into": partial(model.predict_into, one, out),
            "kernel": partial(native._run_one, native._address, one.ctypes.data, native._to),
            RELU: partial(relu, one),
        }
        result[f"one sample, {name}"] = measure(name, tasks, options.repeats, 100)
    record["result"] = result
    finish(record, options.json)


if __name__ == "__main__":
    main()
