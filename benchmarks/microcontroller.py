"""A ternary 0/1 network and an int8 ReLU network of equal error on microcontrollers under QEMU.

    python benchmarks/microcontroller.py --json results/microcontroller.json

Trains what is not in the folder --runs yet, on 90% of MNIST's training images. Of our networks,
the one of the least flash is taken whose error on the other 10% is no larger than that of the ReLU
network, or the best one if there is none; test errors are for the report only. The ReLU network is
plain C (``relu_int8``), once as TensorFlow Lite Micro's reference computes it, once by input and
skipping those that are 0.

QEMU counts instructions, not cycles: it knows no wait states, and an instruction may take several
cycles. ``no zeros`` is the same for images without bytes of 0, which all but the reference skip.
"""

import subprocess
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import pareto_models as models
from benchmarks.boards import CPUS, run_on_board, why_not
from benchmarks.measure import begin, finish, parser
from benchmarks.relu_int8 import Layer, quantised, scores_of, write_relu
from zeroone import IntegerModel, TrainSettings, load, quantise, train
from zeroone.commands.console import print_table
from zeroone.deploy import IntegerNetwork
from zeroone.deploy.exporters.c import size_of, write_c

OURS = {  # units and thresholds of each hidden layer; the share of weights other than 0
    "96x8-48x8": 0.3,
    "128x4-64x4": 0.25,
    "128x8-64x4": 0.15,
    "128x8-64x8": 0.2,
    "160x8-64x8": 0.2,
}
LEVELS = ("-Os", "-O2")
CALIBRATION = 2000  # training images that show how large activations become
SEEDS = 3  # of ReLU networks, each with and without dropout of inputs
WITHOUT_ZEROS = 50  # images whose bytes are at least 1
Scores = Callable[[NDArray[np.uint8]], NDArray[Any]]


def our_network(name: str, data: models.Data, folder: Path, epochs: int) -> IntegerNetwork:
    path = folder / f"ternary {name}.safetensors"
    if not path.is_file():
        options = models.our_form(name, OURS[name]) | {"epochs": epochs}
        network = train(data.fitted.X, data.fitted.y, TrainSettings.from_options(**options)).network
        path.parent.mkdir(parents=True, exist_ok=True)
        IntegerModel(quantise(network)).save(path)
    return load(path).network


def relu_network(hidden: int, data: models.Data, epochs: int) -> list[Layer]:
    """Train some, round them, take the one of the least error on the held-out part."""
    tried = []
    for seed, dropout in product(range(SEEDS), models.DROPOUTS):
        torch.manual_seed(seed)
        layers = models.make_layers(models.widths_of(hidden))
        models.fit(layers, data.fitted, epochs, 1e-3, dropout, seed)
        made = quantised(layers, data.fitted.X[:CALIBRATION])
        tried.append((error(lambda X, made=made: scores_of(made, X), data.held_out), made))
        print(f"ReLU, seed {seed}, dropout {dropout}: {tried[-1][0]:.2%} held out", flush=True)
    return min(tried, key=lambda one: one[0])[1]


def error(scores: Scores, part: models.Part) -> float:
    return float((scores(part.X).argmax(1) != part.y).mean())


def measure(write: Callable[[Path], Any], scores: Scores, X: NDArray[np.uint8]) -> list[dict]:
    """Run a network on each processor at each level, and compare labels and scores with numpy."""
    rows, wanted = [], scores(X)
    for cpu in CPUS:
        for level in LEVELS:
            with tempfile.TemporaryDirectory() as name:
                write(Path(name))
                found = run_on_board(Path(name), X, cpu, level)
                slow = run_on_board(Path(name), np.maximum(X[:WITHOUT_ZEROS], 1), cpu, level)
            exact = np.array_equal(found.scores, wanted)
            exact = exact and found.labels == [str(k) for k in wanted.argmax(1)]
            row = {"cpu": cpu, "optimise": level, "exact": exact, **found.sizes}
            rows.append(row | {"instructions_without_zeros": slow.instructions})
    return rows


def versions() -> dict[str, str]:
    programs = ("arm-none-eabi-gcc", "qemu-system-arm")
    commands = {name: [name, "--version"] for name in programs}
    return {
        name: subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )[0]
        for name, command in commands.items()
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=1)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--hidden", type=int, default=128, help="units of both ReLU layers")
    arguments.add_argument("--runs", default="runs/microcontroller")
    arguments.add_argument("--samples", type=int, default=1000, help="test images to run")
    options = arguments.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    record = begin("microcontroller", options) | {"programs": versions(), "tried": {}}
    data = models.Data.of("mnist")
    relu = relu_network(options.hidden, data, options.epochs)
    limit = error(lambda X: scores_of(relu, X), data.held_out)
    networks = {name: our_network(name, data, Path(options.runs), options.epochs) for name in OURS}
    for name, network in networks.items():
        held_out = error(network.scores, data.held_out)
        flash = size_of(network).flash
        record["tried"][name] = {"density": OURS[name], "held_out": held_out, "flash": flash}
    good = [name for name, one in record["tried"].items() if one["held_out"] <= limit]
    least = min(record["tried"], key=lambda name: record["tried"][name]["held_out"])
    best = min(good or [least], key=lambda name: record["tried"][name]["flash"])
    ours = networks[best]
    units = "-".join(str(m.n_out) for m in ours.maps)
    both = {
        f"ternary {best} ({ours.inputs.n_taken}-{units})": (
            lambda folder: write_c(ours, folder / "network.c"),
            ours.scores,
        )
    }
    for way, skip in (("as the reference", False), ("skipping zeros", True)):
        both[f"ReLU int8 784-{options.hidden}-{options.hidden}-10, {way}"] = (
            lambda folder, skip=skip: write_relu(relu, folder, skip=skip),
            lambda X: scores_of(relu, X),
        )
    record["networks"] = {}
    table = Table(title=f"{options.samples} test images of MNIST")
    for heading in (
        "network",
        "test error",
        "cpu",
        "",
        "flash",
        "RAM",
        "stack",
        "instructions",
        "no zeros",
    ):
        table.add_column(heading)
    for name, (write, scores) in both.items():
        about = {"held_out": error(scores, data.held_out), "test": error(scores, data.test)}
        rows = measure(write, scores, data.test.X[: options.samples])
        record["networks"][name] = about | {"boards": rows}
        for row in rows:
            sizes = (f"{row[key]:,}" for key in list(row)[3:])
            exact = "" if row["exact"] else "NOT EXACT"
            cpu = (row["cpu"], row["optimise"] + exact)
            table.add_row(name, f"{about['test']:.2%}", *cpu, *sizes)
    print_table(table)
    finish(record, options.json)


if __name__ == "__main__":
    main()
