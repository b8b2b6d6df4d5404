"""Shipped networks on MNIST: errors, exactness of every export, sizes and speed.

    python benchmarks/deploy.py --json results/deploy.json

Trains 784-2000-2000-10 on MNIST as it is, with half of its units removed (keep=0.5), with ternary
and with binary weights, or reuses the runs of an earlier call from --runs. Every engine must give
the reference's scores on all 10,000 test images, bit for bit. Speed is measured on test images,
against the whole ReLU network.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_inference import OURS, compare_inference, describe_kernels, make_relu
from benchmarks.engines import by_c_program, engines, has_32_bits
from benchmarks.measure import begin, finish, parser
from zeroone import IntegerModel, TrainSettings, load, quantise, train
from zeroone.data.registry import REGISTRY
from zeroone.deploy import IntegerNetwork
from zeroone.training.text_progress import Lines

HIDDEN = (2000, 2000)
PAGES = ("node", "browser")
MODELS: dict[str, dict[str, Any]] = {
    "whole": {},
    "half": {"keep": 0.5},
    "ternary": {"weights": "ternary"},
    "binary": {"weights": "binary"},
}


def trained(name: str, split: Any, folder: Path, epochs: int) -> Path:
    path = folder / name / "model.safetensors"
    if not path.is_file():
        settings = TrainSettings.from_options(hidden=HIDDEN, epochs=epochs, **MODELS[name])
        train(split.X, split.y, settings, test=split.test, out=path.parent, callbacks=[Lines(name)])
    return path


def are_exact(integers: IntegerNetwork, X: np.ndarray, *, pages: bool) -> dict[str, bool]:
    """Compare each engine with the reference; ``pages`` includes the slow JavaScript ones."""
    reference, exact = integers.scores(X), {}
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), engines()
        if has_32_bits(folder):
            found["c, 32 bits"] = partial(by_c_program, flags=("-m32",))
        for engine, run in found.items():
            if engine in PAGES and not pages:
                continue
            exact[engine] = bool(np.array_equal(run(integers, X, folder), reference))
            print(f"  {engine} {'is' if exact[engine] else 'IS NOT'} exact", flush=True)
    return exact


def look_at(path: Path, split: Any) -> tuple[dict[str, Any], IntegerNetwork]:
    network = load(path)
    integers = quantise(network)
    X, y = split.test
    with tempfile.TemporaryDirectory() as name:
        small = IntegerModel(integers).save(Path(name) / "int8.safetensors").stat().st_size
    found = {
        "error": float((network.predict(X) != y).mean()),
        "error_int8": float((integers.predict(X) != y).mean()),
        "exact": are_exact(integers, X, pages=path.parent.name in ("whole", "half")),
        "bytes": {"float32": path.stat().st_size, "int8": small},
        "inputs": integers.inputs.n_taken,
        "units": [stage.main.n_out for stage in integers.stages],
    }
    return found, integers


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=7, threads=1)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--runs", default="runs/deploy")
    arguments.add_argument("--models", default=",".join(MODELS), help="some of these, whole first")
    options = arguments.parse_args()
    split = REGISTRY["mnist"].get()
    record = begin("deploy", options)
    record |= {"models": {}, "speed": {}, "kernels": describe_kernels()}
    relu = make_relu(HIDDEN)
    images = np.ascontiguousarray(split.test[0])
    networks = {}
    for name in options.models.split(","):
        path = trained(name, split, Path(options.runs), options.epochs)
        print(name, flush=True)
        model, networks[name] = look_at(path, split)
        record["models"][name] = model
        float32 = record["models"]["whole"]["bytes"]["float32"]
        model["times_smaller"] = float32 / model["bytes"]["int8"]
        print(f"  {model}")
    for name, integers in networks.items():
        print(f"{name}, against the ReLU network of {HIDDEN} units", flush=True)
        record["speed"][name] = compare_inference(integers, relu, options.repeats, images)
        for row in record["speed"][name]:
            ratios = {other: f"{ratio['median']:.1f}x" for other, ratio in row["ratios"].items()}
            print(f"  batch {row['batch']}: {1e3 * row['seconds'][OURS]:.3g} ms, {ratios}")
    finish(record, options.json)


if __name__ == "__main__":
    main()
